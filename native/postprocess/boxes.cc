#include "postprocess/boxes.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "base/error.h"
#include "postprocess/activation.h"
#include "postprocess/regions.h"

namespace radserve {
namespace {

bool Before(const Box& a, const Box& b) {
  return std::tuple(-a.score, a.y0, a.x0, a.y1, a.x1, a.label) <
         std::tuple(-b.score, b.y0, b.x0, b.y1, b.x1, b.label);
}

double Area(const Box& b) { return std::max(0.0, b.x1 - b.x0) * std::max(0.0, b.y1 - b.y0); }

double Overlap(const Box& a, const Box& b) {
  const double width = std::min(a.x1, b.x1) - std::max(a.x0, b.x0);
  const double height = std::min(a.y1, b.y1) - std::max(a.y0, b.y0);
  if (width <= 0 || height <= 0) return 0;
  const double shared = width * height;
  return shared / (Area(a) + Area(b) - shared);
}

/// `boxes` best first.
std::vector<Box> Suppress(const std::vector<Box>& boxes, double iou, bool per_class) {
  std::vector<Box> kept;
  for (const Box& box : boxes) {
    const bool hidden = std::any_of(kept.begin(), kept.end(), [&](const Box& better) {
      return (!per_class || better.label == box.label) && Overlap(better, box) > iou;
    });
    if (!hidden) kept.push_back(box);
  }
  return kept;
}

/// Sorted, in source pixels, clamped; at most max_boxes.
std::vector<Box> ToSource(const std::vector<Box>& boxes, const Geometry& g, int max_boxes) {
  std::vector<Box> out;
  for (const Box& box : boxes) {
    Box b = box;
    b.x0 = std::clamp(g.ToSourceX(box.x0), 0.0, static_cast<double>(g.source_columns));
    b.x1 = std::clamp(g.ToSourceX(box.x1), 0.0, static_cast<double>(g.source_columns));
    b.y0 = std::clamp(g.ToSourceY(box.y0), 0.0, static_cast<double>(g.source_rows));
    b.y1 = std::clamp(g.ToSourceY(box.y1), 0.0, static_cast<double>(g.source_rows));
    if (b.x1 > b.x0 && b.y1 > b.y0) out.push_back(b);
  }
  std::sort(out.begin(), out.end(), Before);
  if (out.size() > static_cast<size_t>(max_boxes)) out.resize(static_cast<size_t>(max_boxes));
  return out;
}

Box Corners(const float* v, const OutputSpec& spec, const Geometry& g) {
  const double sx = spec.normalised ? g.columns : 1;
  const double sy = spec.normalised ? g.rows : 1;
  switch (spec.box_format) {
    case BoxFormat::kXyxy:
      return {v[0] * sx, v[1] * sy, v[2] * sx, v[3] * sy};
    case BoxFormat::kYxyx:
      return {v[1] * sx, v[0] * sy, v[3] * sx, v[2] * sy};
    case BoxFormat::kXywh:
      return {v[0] * sx, v[1] * sy, (static_cast<double>(v[0]) + v[2]) * sx,
              (static_cast<double>(v[1]) + v[3]) * sy};
    case BoxFormat::kCxcywh:
      return {(v[0] - v[2] / 2.0) * sx, (v[1] - v[3] / 2.0) * sy, (v[0] + v[2] / 2.0) * sx,
              (v[1] + v[3] / 2.0) * sy};
  }
  return {};
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
      region.sum += static_cast<double>(map[line * static_cast<size_t>(columns) + static_cast<size_t>(x)]);
    }
    region.bottom = y;
    region.left = std::min(region.left, begin);
    region.right = std::max(region.right, end - 1);
  });
  return regions;
}

}  // namespace

std::vector<Box> DecodeDetections(const RawDetections& raw, const OutputSpec& spec, const Geometry& geometry,
                                  std::span<const double> thresholds) {
  const size_t count = raw.boxes.size() / 4;
  const size_t columns = spec.classes_tensor.empty() ? static_cast<size_t>(spec.labels) : 1;
  std::vector<Box> boxes;
  for (size_t i = 0; i < count; ++i) {
    std::vector<float> scores(raw.scores.begin() + static_cast<ptrdiff_t>(i * columns),
                              raw.scores.begin() + static_cast<ptrdiff_t>((i + 1) * columns));
    if (spec.activation == Activation::kSigmoid) Sigmoid(scores);
    if (spec.activation == Activation::kSoftmax) Softmax(scores);
    const auto best = std::max_element(scores.begin(), scores.end());
    Box box = Corners(raw.boxes.data() + i * 4, spec, geometry);
    box.score = *best;
    box.label = static_cast<int>(best - scores.begin());
    if (!std::isfinite(box.score) || !std::isfinite(box.x0 + box.y0 + box.x1 + box.y1)) {
      throw EngineError("output_invalid", "The model gave a box or a score that is no finite number.");
    }
    if (!raw.classes.empty()) {
      box.label = static_cast<int>(std::lround(raw.classes[i])) - spec.first_class;
    }
    const bool known = box.label >= 0 && box.label < spec.labels;
    const double threshold = known ? thresholds[static_cast<size_t>(box.label)] : 0;
    if (box.score < threshold || Area(box) <= 0) continue;
    if (!known) {
      throw EngineError("output_invalid", "The model gave class " +
                                              std::to_string(box.label + spec.first_class) + "; expected " +
                                              std::to_string(spec.first_class) + " to " +
                                              std::to_string(spec.first_class + spec.labels - 1) + ".");
    }
    boxes.push_back(box);
  }
  std::sort(boxes.begin(), boxes.end(), Before);
  if (spec.nms_iou) boxes = Suppress(boxes, *spec.nms_iou, spec.nms_per_class);
  return ToSource(boxes, geometry, spec.max_boxes);
}

std::vector<Box> BoxesOfMap(std::span<const float> map, int rows, int columns, const OutputSpec& spec,
                            const Geometry& geometry, double threshold) {
  std::vector<uint8_t> members(map.size());
  ToMask(map, spec.map_threshold, members.data());
  const Regions found = FindRegions(members, rows, columns, 1, Members::kEqual, Neighbours::kCorners);
  const std::vector<Region> regions = Measure(found, map, columns);
  const double sx = static_cast<double>(geometry.columns) / columns;
  const double sy = static_cast<double>(geometry.rows) / rows;
  std::vector<Box> boxes;
  for (const Region& region : regions) {
    const double score = region.sum / static_cast<double>(region.pixels);
    if (static_cast<double>(region.pixels) < spec.minimum_area || score < threshold) continue;
    const double width = region.right - region.left + 1;
    const double height = region.bottom - region.top + 1;
    const double grow = width * height * spec.unclip / (2 * (width + height));
    boxes.push_back({(region.left - grow) * sx, (region.top - grow) * sy, (region.right + 1 + grow) * sx,
                     (region.bottom + 1 + grow) * sy, static_cast<float>(score), 0});
  }
  return ToSource(boxes, geometry, spec.max_boxes);
}

}  // namespace radserve
