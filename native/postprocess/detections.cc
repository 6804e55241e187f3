#include "postprocess/detections.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "postprocess/activation.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

/// A candidate in tensor pixels; `area` as torchvision has it.
struct Candidate {
  Box box;
  float area = 0;
  Turned turned = {};
};

/// Edges in tensor pixels, of numbers in the order of the format.
std::array<float, 4> Edges(const float* v, BoxFormat format) {
  switch (format) {
    case BoxFormat::kXyxy:
      return {v[0], v[1], v[2], v[3]};
    case BoxFormat::kYxyx:
      return {v[1], v[0], v[3], v[2]};
    case BoxFormat::kXywh:
      return {v[0], v[1], v[0] + v[2], v[1] + v[3]};
    case BoxFormat::kCxcywh:
      return {v[0] - 0.5f * v[2], v[1] - 0.5f * v[3], v[0] + 0.5f * v[2], v[1] + 0.5f * v[3]};
  }
  return {};
}

std::array<float, 4> Edges(const float* v, const DetectionSpec& spec, const Geometry& g) {
  std::array<float, 4> edges = Edges(v, spec.format);
  if (!spec.normalised) return edges;
  for (size_t i = 0; i < edges.size(); ++i)
    edges[i] *= static_cast<float>((i % 2 == 0 ? g.columns : g.rows).tensor);
  return edges;
}

/// Intersection over union; NaN, which is no overlap, where neither has an area.
float OfEdges(const Candidate& a, const Candidate& b) {
  const auto side = [](double a0, double a1, double b0, double b1) {
    return std::max(0.0f,
                    static_cast<float>(std::min(a1, b1)) - static_cast<float>(std::max(a0, b0)));
  };
  const float shared =
      side(a.box.x0, a.box.x1, b.box.x0, b.box.x1) * side(a.box.y0, a.box.y1, b.box.y0, b.box.y1);
  return shared / (a.area + b.area - shared);
}

/// What is compared.
double Shared(const Candidate& a, const Candidate& b, Overlap overlap) {
  switch (overlap) {
    case Overlap::kEdges:
      return static_cast<double>(OfEdges(a, b));
    case Overlap::kPolygon:
      // What does not meet by its edges shares nothing
      return OfEdges(a, b) > 0 ? PolygonOverlap(*a.box.corners, *b.box.corners) : 0;
    case Overlap::kProbabilistic:
      return ProbabilisticOverlap(a.turned, b.turned);
  }
  return 0;
}

/// Whether a box in pixels of the tensor lies where a network that saw it puts none.
bool IsImplausible(const Box& box, const Geometry& g) {
  const double x = (box.x0 + box.x1) / 2;
  const double y = (box.y0 + box.y1) / 2;
  return x < 0 || x > g.columns.tensor || y < 0 || y > g.rows.tensor ||
         (box.x1 - box.x0 < 1 && box.y1 - box.y0 < 1);
}

/// `candidates` best first.
std::vector<Box> Choose(const std::vector<Candidate>& candidates, const DetectionSpec& spec,
                        const Geometry& g, size_t& implausible) {
  std::vector<Candidate> kept;
  std::vector<Box> out;
  for (const Candidate& candidate : candidates) {
    if (out.size() >= static_cast<size_t>(spec.max_boxes)) break;
    const auto& nms = spec.nms;
    const bool hidden = nms && std::ranges::any_of(kept, [&](const Candidate& better) {
                          return (!nms->per_class || better.box.label == candidate.box.label) &&
                                 Shared(better, candidate, nms->overlap) > nms->iou;
                        });
    if (nms && (nms->fast || !hidden)) kept.push_back(candidate);
    if (hidden) continue;
    if (IsImplausible(candidate.box, g)) ++implausible;
    if (const std::optional<Box> seen = InSource(candidate.box, g)) out.push_back(*seen);
  }
  return out;
}

void Activate(std::span<float> scores, Activation activation) {
  if (activation == Activation::kSigmoid) Sigmoid(scores);
  if (activation == Activation::kSoftmax) Softmax(scores);
}

/// The scores of all boxes as they count: activated, and multiplied with the objectness.
void FinishScores(RawDetections& raw, size_t columns, const OutputSpec& spec) {
  const size_t count = raw.boxes.size() / 4;
  const auto of_box = [&](size_t i) { return std::span(raw.scores).subspan(i * columns, columns); };
  const auto& own = spec.Own<DetectionSpec>();
  const auto& table = own.table;
  // Before the sigmoid, which makes 1 of an infinity
  CheckFinite(raw.scores, table ? spec.tensor : own.list.scores);
  CheckFinite(raw.objectness, spec.tensor);
  for (size_t i = 0; i < count; ++i) Activate(of_box(i), spec.activation);
  if (!table) return;
  CheckProbabilities(raw.scores, spec.tensor);
  if (raw.objectness.empty()) return;
  Activate(raw.objectness, table->objectness_activation);
  CheckProbabilities(raw.objectness, spec.tensor);
  for (size_t i = 0; i < count; ++i) {
    for (float& score : of_box(i)) score *= raw.objectness[i];
  }
}

/// The candidate of a turned box: its edges are those round it.
void Turn(Candidate& candidate, const RawDetections& raw, const TableSpec& table) {
  Box& box = candidate.box;
  const auto number = [&](size_t k) { return static_cast<double>(raw.boxes[box.row * 4 + k]); };
  const double angle = static_cast<double>(raw.angles[box.row]) * table.angle_unit;
  candidate.turned = {number(0), number(1), number(2), number(3), angle};
  box.corners = CornersOf(candidate.turned);
  const auto [left, right] = std::ranges::minmax(*box.corners, {}, &Corner::x);
  const auto [top, bottom] = std::ranges::minmax(*box.corners, {}, &Corner::y);
  box.x0 = left.x, box.x1 = right.x, box.y0 = top.y, box.y1 = bottom.y;
  candidate.area = static_cast<float>((box.x1 - box.x0) * (box.y1 - box.y0));
}

}  // namespace

int LabelOfClass(float number, bool counts, int first_class, const OutputSpec& spec) {
  const auto classes = static_cast<int>(spec.Columns());
  const float column = std::round(number) - static_cast<float>(first_class);
  const bool whole = std::fabs(number - std::round(number)) < 1e-3f;
  if (whole && column >= 0 && column < static_cast<float>(classes))
    return spec.PlaceOf(static_cast<int>(column));
  if (!counts) return -1;
  throw EngineError("output_invalid", "The model gave class " + std::to_string(number) +
                                          "; expected " + std::to_string(first_class) + " to " +
                                          std::to_string(first_class + classes - 1) + ".");
}

std::optional<SuppressionSpec> ReadSuppression(const Description& output) {
  if (!output.Has("nms")) return std::nullopt;
  const Description& nms = output.Child("nms");
  if (nms.Has("kind") && nms.Text("kind") == "none") return std::nullopt;
  SuppressionSpec spec{nms.Number("iou"), nms.Flag("per_class")};
  spec.fast = nms.Has("kind") && nms.Text("kind") == "fast";
  if (nms.Has("overlap"))
    spec.overlap = nms.OneOf<Overlap>(
        "overlap", {{"polygon", Overlap::kPolygon}, {"probabilistic", Overlap::kProbabilistic}});
  return spec;
}

ListSpec ReadList(const Description& output, OutputSpec& spec) {
  spec.tensor = output.Child("boxes").Text("tensor");
  spec.activation = ReadActivation(output.Child("scores"));
  ListSpec list{output.Child("scores").Text("tensor"), {}};
  spec.further_tensors = {list.scores};
  if (output.Has("classes")) {
    list.classes = output.Child("classes").Text("tensor");
    spec.further_tensors.push_back(list.classes);
  }
  return list;
}

int FirstClassOf(const Description& output) {
  return output.Has("classes") ? output.Child("classes").Int("first") : 0;
}

RawDetections ReadLists(const OutputSpec& spec, const ListSpec& list, const TensorByName& tensors,
                        size_t numbers) {
  const Tensor& boxes = tensors(spec.tensor);
  const Tensor& scores = tensors(list.scores);
  if (boxes.shape.empty() || boxes.shape.back() != static_cast<int64_t>(numbers)) {
    InvalidOutput(boxes, std::to_string(numbers) + " numbers a box");
  }
  const size_t count = boxes.Elements() / numbers;
  const size_t columns = list.classes.empty() ? spec.Columns() : 1;
  // With the labels first the numbers would be as many, and each another's.
  const auto labels = static_cast<int64_t>(columns);
  const bool side_by_side =
      columns == 1 || (!scores.shape.empty() && scores.shape.back() == labels);
  if (scores.Elements() != count * columns || !side_by_side) {
    InvalidOutput(scores, std::to_string(columns) + " score(s) for each of " +
                              std::to_string(count) + " boxes, those of a box side by side");
  }
  RawDetections raw{AsFloats(boxes), AsFloats(scores), {}, {}, {}};
  if (!list.classes.empty()) {
    const Tensor& classes = tensors(list.classes);
    if (classes.Elements() != count)
      InvalidOutput(classes, "one class for each of " + std::to_string(count) + " boxes");
    raw.classes = AsFloats(classes);
    CheckFinite(raw.classes, classes.name);
  }
  return raw;
}

RawDetections ReadTable(const Tensor& tensor, const OutputSpec& spec) {
  const TableSpec& table = *spec.Own<DetectionSpec>().table;
  const auto& shape = tensor.shape;
  const size_t rank = shape.size();
  const auto columns = static_cast<size_t>(table.columns);
  const bool whole = rank == 2 || (rank == 3 && shape[0] == 1);
  if (!whole || shape[table.columns_first ? rank - 2 : rank - 1] != table.columns) {
    const std::string sides = table.columns_first ? std::to_string(columns) + ", boxes"
                                                  : "boxes, " + std::to_string(columns);
    InvalidOutput(tensor, "[1, " + sides + "]");
  }
  const std::vector<float> values = AsFloats(tensor);
  const size_t count = values.size() / columns;
  // One column of all boxes into every `width`-th place from `at` on.
  const auto take = [&](int column, size_t width, size_t at, std::vector<float>& out) {
    out.resize(count * width);
    const auto c = static_cast<size_t>(column);
    for (size_t i = 0; i < count; ++i) {
      out[i * width + at] = values[table.columns_first ? c * count + i : i * columns + c];
    }
  };
  RawDetections raw;
  for (size_t k = 0; k < 4; ++k) take(table.box[k], 4, k, raw.boxes);
  const size_t scores = table.score_a_label ? spec.Columns() : 1;
  for (size_t k = 0; k < scores; ++k)
    take(table.score + static_cast<int>(k), scores, k, raw.scores);
  if (table.class_column) take(*table.class_column, 1, 0, raw.classes);
  if (table.objectness) take(*table.objectness, 1, 0, raw.objectness);
  if (table.angle) take(*table.angle, 1, 0, raw.angles);
  const auto kinds = static_cast<size_t>(table.coefficients ? table.coefficient_count : 0);
  for (size_t k = 0; k < kinds; ++k) {
    take(*table.coefficients + static_cast<int>(k), kinds, k, raw.coefficients);
  }
  CheckFinite(raw.classes, tensor.name);
  CheckFinite(raw.angles, tensor.name);
  return raw;
}

std::vector<Box> DecodeDetections(RawDetections raw, const OutputSpec& spec, const Geometry& placed,
                                  std::span<const double> thresholds, size_t* implausible) {
  const auto& own = spec.Own<DetectionSpec>();
  const Geometry geometry = own.in_source ? SourceItself(placed) : placed;
  const size_t count = raw.boxes.size() / 4;
  const size_t columns = count == 0 ? 1 : raw.scores.size() / count;
  FinishScores(raw, columns, spec);
  std::vector<Candidate> candidates;
  size_t doubtful = 0;
  for (size_t i = 0; i < count; ++i) {
    const std::span<const float> scores = std::span(raw.scores).subspan(i * columns, columns);
    const auto [x0, y0, x1, y1] = Edges(raw.boxes.data() + i * 4, own, geometry);
    const auto sum = [](float a, float b) { return a + b; };
    if (!std::isfinite(x0 + y0 + x1 + y1 +
                       std::accumulate(scores.begin(), scores.end(), 0.0f, sum))) {
      throw EngineError("output_invalid",
                        "The model gave a box or a score that is no finite number.");
    }
    const bool area = x1 > x0 && y1 > y0;
    // Edges in the wrong order are those of another format
    const bool reversed = x1 < x0 || y1 < y0;
    const auto add = [&](int label, float score) {
      if (!Reaches(score, thresholds[static_cast<size_t>(label)])) return;
      if (reversed) ++doubtful;
      if (!area) return;
      Candidate candidate{{x0, y0, x1, y1, score, label, i}, (x1 - x0) * (y1 - y0)};
      if (!raw.angles.empty()) Turn(candidate, raw, *own.table);
      candidates.push_back(candidate);
    };
    if (!raw.classes.empty()) {
      // Rows that a network fills up with nothing have no area or no score.
      const int label = LabelOfClass(raw.classes[i], area && scores[0] > 0, own.first_class, spec);
      if (label >= 0) add(label, scores[0]);
      continue;
    }
    std::optional<std::pair<int, float>> best;
    for (size_t k = 0; k < columns; ++k) {
      const int label = spec.PlaceOf(static_cast<int>(k));
      if (label < 0) continue;
      if (own.several_labels) {
        add(label, scores[k]);
      } else if (!best || scores[k] > best->second) {
        best = {label, scores[k]};
      }
    }
    if (best) add(best->first, best->second);
  }
  std::ranges::stable_sort(candidates, std::greater{},
                           [](const Candidate& c) { return c.box.score; });
  std::vector<Box> boxes = Choose(candidates, own, geometry, doubtful);
  if (implausible != nullptr) *implausible = doubtful;
  return boxes;
}

}  // namespace radserve
