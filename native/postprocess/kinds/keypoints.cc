#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "postprocess/activation.h"
#include "postprocess/kind.h"
#include "postprocess/maps.h"

namespace radserve {
namespace {

/// Where the numbers of a point stand in its row of a table; columns count from 0.
struct Table {
  size_t columns = 0;
  size_t x = 0;
  size_t y = 0;
  std::optional<size_t> score;
  /// 0 to 1 of the tensor's sides, instead of its pixels.
  bool normalised = false;
  /// In pixels of the source, instead of the tensor's.
  bool in_source = false;
  /// 0 is the middle of the first pixel, and of normalised ones 1 that of the last; else both are
  /// outer edges.
  bool centres = false;
};

/// The table is absent where the tensor holds heatmaps.
struct KeypointsSpec {
  std::optional<Table> table;
};

void ReadKeypoints(const Description& output, OutputSpec& spec) {
  if (!output.Has("table")) return;
  const Description& o = output.Child("table");
  Table& table = spec.Set<KeypointsSpec>().table.emplace();
  for (const std::string& column : o.Texts("columns")) {
    if (column == "x") table.x = table.columns;
    if (column == "y") table.y = table.columns;
    if (column == "score") table.score = table.columns;
    ++table.columns;
  }
  table.normalised = o.Flag("normalised");
  table.in_source = InPixelsOfSource(o);
  table.centres = o.Text("counted_from") == "centres";
}

/// A number of a table in the tensor's pixels, counted from the outer edge of the first.
double FromEdge(float value, int side, const Table& table) {
  const double last = table.centres ? side - 1 : side;
  return static_cast<double>(value) * (table.normalised ? last : 1) + (table.centres ? 0.5 : 0);
}

/// Points of tensor pixels, of the rows of a table.
std::vector<Point> OfTable(const OutputSpec& spec, const Tensor& tensor, const Table& table,
                           const Geometry& g) {
  const size_t rows = spec.Columns();
  const size_t last = tensor.shape.empty() ? 0 : static_cast<size_t>(tensor.shape.back());
  // With the columns first the numbers would be as many, and each another label's.
  if (tensor.Elements() != rows * table.columns ||
      (last != table.columns && last != tensor.Elements())) {
    InvalidOutput(tensor, std::to_string(table.columns) + " numbers for each of " +
                              std::to_string(rows) + " labels, those of a label side by side");
  }
  const std::vector<float> values = AsFloats(tensor);
  CheckFinite(values, tensor.name);
  std::vector<Point> points;
  for (size_t at = 0; at < rows; ++at) {
    const int label = spec.PlaceOf(static_cast<int>(at));
    if (label < 0) continue;
    const float* const row = values.data() + at * table.columns;
    points.push_back({FromEdge(row[table.x], g.columns.tensor, table),
                      FromEdge(row[table.y], g.rows.tensor, table),
                      table.score ? row[*table.score] : std::numeric_limits<float>::quiet_NaN(),
                      label});
  }
  return points;
}

/// Whether all of several points lie within one pixel, where no network puts them.
bool IsOnePixel(const std::vector<Point>& points) {
  if (points.size() < 2) return false;
  const auto [left, right] = std::ranges::minmax(points, {}, &Point::x);
  const auto [top, bottom] = std::ranges::minmax(points, {}, &Point::y);
  return right.x - left.x < 1 && bottom.y - top.y < 1;
}

/// The same of maps: the middle of the pixel with the highest value, the first of equal ones.
std::vector<Point> OfHeatmaps(const OutputSpec& spec, const Tensor& tensor, bool channels_last,
                              const Geometry& g) {
  const Maps maps(tensor, spec.Columns(), channels_last);
  CheckFinite(maps.values(), tensor.name);
  const MapGrid grid = GridOf(spec, maps, g);
  std::vector<Point> points;
  for (size_t channel = 0; channel < maps.channels(); ++channel) {
    const int label = spec.PlaceOf(static_cast<int>(channel));
    if (label < 0) continue;
    const float* const map = maps.Channel(channel);
    const float* const highest = std::max_element(map, map + maps.pixels());
    const auto at = static_cast<int>(highest - map);
    const int row = at / maps.columns();
    points.push_back({grid.columns.side.InTensor(at % maps.columns() + 0.5),
                      grid.rows.side.InTensor(row + 0.5), *highest, label});
  }
  return points;
}

/// The error that rounding adds to a place at most, in pixels of the source.
constexpr double kRounding = 1e-3;

/// A place within the pixels of the source that are seen, if in part only; else NaN.
double WithinSeen(double place, const ImageAxis& axis) {
  const double first = std::floor(axis.seen_from + kRounding);
  const double end = std::ceil(axis.seen_from + axis.seen - kRounding);
  const double nearest =
      std::clamp(place, std::max(0.0, first), std::min<double>(axis.source, end));
  return std::abs(place - nearest) <= kRounding ? nearest
                                                : std::numeric_limits<double>::quiet_NaN();
}

void Decode(const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
            std::span<const double>, OutputResult& out) {
  const Tensor& tensor = tensors(spec.tensor);
  const auto& table = spec.Own<KeypointsSpec>().table;
  const Geometry g = table && table->in_source ? SourceItself(grid.geometry) : grid.geometry;
  out.points =
      table ? OfTable(spec, tensor, *table, g) : OfHeatmaps(spec, tensor, grid.channels_last, g);
  if (table && IsOnePixel(out.points)) out.implausible = out.points.size();
  for (Point& point : out.points) {
    if (spec.activation == Activation::kSigmoid) Sigmoid(std::span(&point.score, 1));
    // Who tells pixels of the source has seen no more of it
    point.x = WithinSeen(g.columns.ToSource(point.x), grid.geometry.columns);
    point.y = WithinSeen(g.rows.ToSource(point.y), grid.geometry.rows);
  }
}

}  // namespace

/// The place of a point for each label, and its score. A point outside the part of the source that
/// is seen has no place: NaN.
const OutputKind kinds::keypoints = {
    .name = "keypoints",
    .gives = "points",
    .placed = true,
    .read = ReadKeypoints,
    .decode = Decode,
};

}  // namespace radserve
