#include "postprocess/boxes.h"

#include <algorithm>
#include <tuple>

#include "postprocess/activation.h"
#include "postprocess/regions.h"

namespace radserve {
namespace {

bool Before(const Box& a, const Box& b) {
  return std::tuple(-a.score, a.y0, a.x0, a.y1, a.x1, a.label) <
         std::tuple(-b.score, b.y0, b.x0, b.y1, b.x1, b.label);
}

/// Sorted, in source pixels, clamped; at most max_boxes.
std::vector<Box> ToSource(const std::vector<Box>& boxes, const Geometry& g, int max_boxes) {
  std::vector<Box> out;
  for (const Box& box : boxes) {
    if (const std::optional<Box> seen = InSource(box, g)) out.push_back(*seen);
  }
  std::sort(out.begin(), out.end(), Before);
  if (out.size() > static_cast<size_t>(max_boxes)) out.resize(static_cast<size_t>(max_boxes));
  return out;
}

/// A region of a map; the bounds are inclusive.
struct Region {
  int64_t pixels = 0;
  double sum = 0;
  int top = 0, left = 0, bottom = 0, right = 0;
};

std::vector<Region> Measure(const Regions& found, std::span<const float> map, int columns) {
  std::vector<Region> regions(found.count);
  found.ForRuns([&](size_t line, size_t run) {
    const auto [begin, end] = found.runs[run];
    const int y = static_cast<int>(line);
    Region& region = regions[found.region[run]];
    if (region.pixels == 0) region = {0, 0, y, begin, y, end - 1};
    region.pixels += end - begin;
    for (int x = begin; x < end; ++x) {
      region.sum +=
          static_cast<double>(map[line * static_cast<size_t>(columns) + static_cast<size_t>(x)]);
    }
    region.bottom = y;
    region.left = std::min(region.left, begin);
    region.right = std::max(region.right, end - 1);
  });
  return regions;
}

}  // namespace

std::optional<Box> InSource(const Box& box, const Geometry& g) {
  Box b = box;
  if (b.corners) {
    for (Corner& corner : *b.corners)
      corner = {g.columns.ToSource(corner.x), g.rows.ToSource(corner.y)};
    const double height = g.rows.source, width = g.columns.source;
    const std::vector<Corner> seen =
        Clipped(*b.corners, CornersOf({width / 2, height / 2, width, height, 0}));
    if (!(AreaOf(seen) > 0)) return std::nullopt;
    const auto [left, right] = std::ranges::minmax(seen, {}, &Corner::x);
    const auto [top, bottom] = std::ranges::minmax(seen, {}, &Corner::y);
    b.x0 = left.x, b.x1 = right.x, b.y0 = top.y, b.y1 = bottom.y;
    return b;
  }
  const auto within = [](const ImageAxis& axis, double place) {
    return std::clamp(axis.ToSource(place), 0.0, static_cast<double>(axis.source));
  };
  b.x0 = within(g.columns, box.x0);
  b.x1 = within(g.columns, box.x1);
  b.y0 = within(g.rows, box.y0);
  b.y1 = within(g.rows, box.y1);
  if (b.x1 > b.x0 && b.y1 > b.y0) return b;
  return std::nullopt;
}

std::vector<Box> BoxesOfMap(std::span<const float> map, const MapGrid& grid,
                            const MapBoxesSpec& spec, const Geometry& geometry, double threshold) {
  const MapSide& along_rows = grid.rows.side;
  const MapSide& along_columns = grid.columns.side;
  std::vector<uint8_t> members(map.size());
  ToMask(map, spec.threshold, members.data());
  const Regions found = FindRegions(members, along_rows.map, along_columns.map, 1, Members::kEqual,
                                    Neighbours::kCorners);
  const std::vector<Region> regions = Measure(found, map, along_columns.map);
  std::vector<Box> boxes;
  for (const Region& region : regions) {
    const auto score = static_cast<float>(region.sum / static_cast<double>(region.pixels));
    if (static_cast<double>(region.pixels) < spec.minimum_area || !Reaches(score, threshold))
      continue;
    const double width = region.right - region.left + 1;
    const double height = region.bottom - region.top + 1;
    const double grow = width * height * spec.unclip / (2 * (width + height));
    boxes.push_back({along_columns.InTensor(region.left - grow),
                     along_rows.InTensor(region.top - grow),
                     along_columns.InTensor(region.right + 1 + grow),
                     along_rows.InTensor(region.bottom + 1 + grow), score, 0});
  }
  return ToSource(boxes, geometry, spec.max_boxes);
}

}  // namespace radserve
