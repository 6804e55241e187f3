#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "postprocess/activation.h"
#include "postprocess/detections.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

/// Numbers of a box along one axis of the tensor: its edges, or its middle and its side.
struct AxisColumns {
  size_t first = 0;
  size_t second = 0;
  bool centred = false;
};

/// A level of a network with anchors: its two tensors, and the sides of its anchors.
struct Level {
  std::string scores;
  std::string boxes;
  std::vector<std::array<float, 3>> anchors;
};

struct Own {
  std::array<AxisColumns, 3> columns;
  /// From how the graph counts to edges: 0.5 where 0 is the centre of the first voxel.
  double shift = 0;
  /// Empty where the graph lists its boxes.
  std::vector<Level> levels;
  std::vector<double> coder;
  double least_score = 0;
  float least_size = 0;
  size_t most = 0;
  std::optional<double> windows_iou;
  bool windows_per_class = false;
  bool weighted = false;
};

/// No side of an anchor grows more than so many times (MONAI's and torchvision's BoxCoder).
const float kMostGrowth = std::log(1000.0F / 16.0F);

/// What one run of the graph found, and what is known of it.
struct Run {
  const OutputSpec& spec;
  const Own& own;
  const TensorByName& tensors;
  const VolumePlacement& placement;
  const SeenWindow& window;
  std::span<const double> thresholds;
};

/// Puts a box of a window into the tensor, cut off where window or image end. False if too little is left.
bool Place(const Run& run, Cuboid& box) {
  const auto& [spec, own, tensors, placement, window, thresholds] = run;
  bool large = true;
  double weight = 0;
  for (size_t a = 0; a < 3; ++a) {
    float& low = box.low[a];
    float& high = box.high[a];
    if (!std::isfinite(low + high)) {
      throw EngineError("output_invalid", "The model gave a box that is no finite number.");
    }
    const auto side = static_cast<float>(window.sides[a]);
    if (window.mirrored[a]) {
      const float end = side - 2 * static_cast<float>(own.shift);
      low = end - std::exchange(high, end - low);
    }
    const VolumeAxis& axis = placement.axes[a];
    const auto start = static_cast<float>(window.start[a]);
    const float first = std::max(0.0F, static_cast<float>(axis.first) - start);
    const float last = std::min(side, static_cast<float>(axis.first + axis.count) - start);
    low = std::min(std::max(low, first), last);
    high = std::min(std::max(high, first), last);
    large = large && high > low && high >= low + own.least_size;
    const double middle = side / 2.0;
    const double away = ((low + high) / 2.0 - middle) / (0.8 * middle);
    weight += std::exp(-away * away / 2) / 3;
    low += start;
    high += start;
  }
  box.weight = weight;
  return large;
}

/// Intersection over union.
double Overlap(const Cuboid& a, const Cuboid& b) {
  double shared = 1;
  double own = 1;
  double other = 1;
  for (size_t i = 0; i < 3; ++i) {
    shared *=
        std::max(0.0, static_cast<double>(std::min(a.high[i], b.high[i]) - std::max(a.low[i], b.low[i])));
    own *= static_cast<double>(a.high[i] - a.low[i]);
    other *= static_cast<double>(b.high[i] - b.low[i]);
  }
  return shared / (own + other - shared);
}

/// Sorts, and leaves the best of those that overlap: greedy non-maximum suppression.
std::vector<Cuboid> Suppressed(std::vector<Cuboid> boxes, std::optional<double> iou, bool per_class) {
  std::ranges::stable_sort(boxes, std::greater{}, &Cuboid::score);
  if (!iou) return boxes;
  std::vector<Cuboid> kept;
  for (const Cuboid& box : boxes) {
    const bool hidden = std::ranges::any_of(kept, [&](const Cuboid& better) {
      return (!per_class || better.label == box.label) && Overlap(better, box) > *iou;
    });
    if (!hidden) kept.push_back(box);
  }
  return kept;
}

/// How many windows see a voxel of a box, in the mean.
double SeenBy(const Cuboid& box, std::span<const SeenWindow> windows, const VolumePlacement& placement) {
  double seen = 0;
  double voxels = 1;
  std::array<int, 3> from{};
  std::array<int, 3> to{};
  for (size_t a = 0; a < 3; ++a) {
    from[a] = std::clamp(static_cast<int>(box.low[a]), 0, placement.axes[a].tensor - 1);
    to[a] = std::clamp(static_cast<int>(box.high[a]), from[a] + 1, placement.axes[a].tensor);
    voxels *= to[a] - from[a];
  }
  for (const SeenWindow& window : windows) {
    double shared = 1;
    for (size_t a = 0; a < 3; ++a) {
      const int end = std::min(to[a], window.start[a] + window.sides[a]);
      shared *= std::max(0, end - std::max(from[a], window.start[a]));
    }
    seen += shared;
  }
  return seen / voxels;
}

/// Weighted box clustering of sorted boxes (Jaeger et al. 2020, Retina U-Net, section 3; nnDetection's): those of a label
/// that share more than `iou` with its best become one, at the mean of their places by score, overlap with the best, and
/// place in the window; its score is the mean by the last two, less where windows that saw the place found nothing.
std::vector<Cuboid> Clustered(std::vector<Cuboid> boxes, double iou, std::span<const SeenWindow> windows,
                              const VolumePlacement& placement) {
  std::vector<Cuboid> clusters;
  while (!boxes.empty()) {
    const Cuboid best = boxes.front();
    std::array<double, 6> edges{};
    double weights = 0;
    double scores = 0;
    double expected = 0;
    double found = 0;
    std::vector<Cuboid> others;
    for (const Cuboid& box : boxes) {
      const double overlap = Overlap(best, box);
      if (box.label != best.label || overlap <= iou) {
        others.push_back(box);
        continue;
      }
      const double weight = overlap * box.weight;
      const double share = weight * static_cast<double>(box.score);
      for (size_t a = 0; a < 3; ++a) {
        edges[a] += share * static_cast<double>(box.low[a]);
        edges[a + 3] += share * static_cast<double>(box.high[a]);
      }
      weights += weight;
      scores += share;
      expected += SeenBy(box, windows, placement);
      ++found;
    }
    const double missing = std::max(0.0, expected / found - found);
    Cuboid cluster = best;
    for (size_t a = 0; a < 3; ++a) {
      cluster.low[a] = static_cast<float>(edges[a] / scores);
      cluster.high[a] = static_cast<float>(edges[a + 3] / scores);
    }
    cluster.score = static_cast<float>(scores / (weights + missing * weights / found));
    // Scores of 0 have no place of their own.
    if (scores > 0) clusters.push_back(cluster);
    boxes = std::move(others);
    if (scores <= 0) break;
  }
  return Suppressed(std::move(clusters), std::nullopt, false);
}

/// Adds the best boxes of a list or of a level. `scores` has so many for each box; `decode` gives the box of a number, as the
/// graph counts.
template <typename Decode>
void AddBest(const Run& run, const std::string& tensor, std::vector<float> scores, size_t columns,
             std::span<const float> classes, const Decode& decode, std::vector<Cuboid>& found) {
  const OutputSpec& spec = run.spec;
  CheckFinite(scores, tensor);
  if (spec.activation == Activation::kSigmoid) Sigmoid(scores);
  for (size_t i = 0; spec.activation == Activation::kSoftmax && i < scores.size(); i += columns) {
    Softmax(std::span(scores).subspan(i, columns));
  }
  CheckProbabilities(scores, tensor);
  std::vector<std::pair<size_t, int>> best;
  for (size_t i = 0; i < scores.size(); ++i) {
    const int label =
        classes.empty() ? static_cast<int>(i % columns) : LabelOfClass(classes[i], scores[i] > 0, spec);
    if (label < 0) continue;
    const double least = std::fmin(run.own.least_score, run.thresholds[static_cast<size_t>(label)]);
    if (scores[i] >= static_cast<float>(least)) best.emplace_back(i, label);
  }
  std::ranges::stable_sort(best, std::greater{}, [&](const auto& one) { return scores[one.first]; });
  if (best.size() > run.own.most) best.resize(run.own.most);
  for (const auto& [at, label] : best) {
    Cuboid box = decode(at / columns);
    box.score = scores[at];
    box.label = label;
    if (Place(run, box)) found.push_back(box);
  }
}

void AddListed(const Run& run, std::vector<Cuboid>& found) {
  const OutputSpec& spec = run.spec;
  const Tensor& boxes = run.tensors(spec.tensor);
  const Tensor& scores = run.tensors(spec.scores_tensor);
  if (boxes.shape.empty() || boxes.shape.back() != 6) InvalidOutput(boxes, "six numbers a box");
  const std::vector<float> values = AsFloats(boxes);
  const size_t count = values.size() / 6;
  const size_t columns = spec.classes_tensor.empty() ? static_cast<size_t>(spec.labels) : 1;
  const bool side_by_side =
      columns == 1 || (!scores.shape.empty() && scores.shape.back() == static_cast<int64_t>(columns));
  if (scores.Elements() != count * columns || !side_by_side) {
    InvalidOutput(scores, std::to_string(columns) + " score(s) for each of " + std::to_string(count) +
                              " boxes, those of a box side by side");
  }
  std::vector<float> classes;
  if (!spec.classes_tensor.empty()) {
    classes = AsFloats(run.tensors(spec.classes_tensor));
    CheckFinite(classes, spec.classes_tensor);
    if (classes.size() != count)
      InvalidOutput(run.tensors(spec.classes_tensor),
                    "one class for each of " + std::to_string(count) + " boxes");
  }
  AddBest(
      run, scores.name, AsFloats(scores), columns, classes,
      [&](size_t number) {
        Cuboid box;
        for (size_t a = 0; a < 3; ++a) {
          const auto& [first, second, centred] = run.own.columns[a];
          const float unit = spec.normalised ? static_cast<float>(run.window.sides[a]) : 1;
          const float at = values[number * 6 + first] * unit;
          const float other = values[number * 6 + second] * unit;
          box.low[a] = centred ? at - 0.5F * other : at;
          box.high[a] = centred ? at + 0.5F * other : other;
        }
        return box;
      },
      found);
}

/// Boxes that a network made of anchors: the middle moves by sides of the anchor, and the sides grow by exponents (Girshick et
/// al. 2014, appendix C). Anchors lie in the middle of the voxels that a place of the map stands for, cut off to a whole
/// one, and half their sides are rounded to whole voxels, halves to even (MONAI's AnchorGeneratorWithAnchorShape).
void AddLevel(const Run& run, const Level& level, std::vector<Cuboid>& found) {
  const Tensor& scores = run.tensors(level.scores);
  const Tensor& codes = run.tensors(level.boxes);
  const auto labels = static_cast<size_t>(run.spec.labels);
  const size_t channels = level.anchors.size() * labels;
  std::vector<int64_t> shape = scores.shape;
  if (shape.size() != 5 || shape[0] != 1 || shape[1] != static_cast<int64_t>(channels) ||
      std::ranges::count(shape, 0) > 0) {
    InvalidOutput(scores, "[1, " + std::to_string(channels) +
                              ", depth, height, width], a score of each label for each anchor,");
  }
  shape[1] = static_cast<int64_t>(level.anchors.size() * 6);
  if (codes.shape != shape) InvalidOutput(codes, "the shape " + ShapeText(shape));
  const std::array<size_t, 3> sides = {static_cast<size_t>(shape[2]), static_cast<size_t>(shape[3]),
                                       static_cast<size_t>(shape[4])};
  const size_t places = sides[0] * sides[1] * sides[2];
  // In the order of places, then anchors, then labels: of equal scores the first counts.
  const std::vector<float> maps = AsFloats(scores);
  std::vector<float> ordered(maps.size());
  for (size_t i = 0; i < ordered.size(); ++i) ordered[i] = maps[i % channels * places + i / channels];
  AddBest(
      run, scores.name, std::move(ordered), labels, {},
      [&](size_t number) {
        const size_t anchor = number % level.anchors.size();
        const size_t place = number / level.anchors.size();
        std::array<size_t, 3> index = {place / sides[2] / sides[1], place / sides[2] % sides[1],
                                       place % sides[2]};
        Cuboid box;
        for (size_t a = 0; a < 3; ++a) {
          const auto code = [&](size_t k) {
            float value = 0;
            LoadRow(codes, static_cast<ptrdiff_t>((anchor * 6 + k) * places + place), 1, 1, &value);
            return value / static_cast<float>(run.own.coder[k]);
          };
          const size_t stride = static_cast<size_t>(run.window.sides[a]) / sides[a];
          const float side = 2 * std::nearbyint(level.anchors[anchor][a] / 2);
          const float middle = code(a) * side + static_cast<float>(index[a] * stride + stride / 2);
          const float size = std::exp(std::min(code(a + 3), kMostGrowth)) * side;
          box.low[a] = middle - 0.5F * size;
          box.high[a] = middle + 0.5F * size;
        }
        return box;
      },
      found);
}

void Collect(const OutputSpec& spec, const TensorByName& tensors, const VolumePlacement& placement,
             const SeenWindow& window, std::span<const double> thresholds, std::vector<Cuboid>& found) {
  const Run run{spec, std::any_cast<const Own&>(spec.own), tensors, placement, window, thresholds};
  std::vector<Cuboid> all;
  if (run.own.levels.empty()) AddListed(run, all);
  for (const Level& level : run.own.levels) AddLevel(run, level, all);
  all = Suppressed(std::move(all), spec.nms_iou, spec.nms_per_class);
  if (all.size() > static_cast<size_t>(spec.max_boxes)) all.resize(static_cast<size_t>(spec.max_boxes));
  found.insert(found.end(), all.begin(), all.end());
}

/// In pixels and slices of the source, cut off where it ends; nothing if no part of it is left.
std::optional<Box> InSource(const Cuboid& cuboid, double shift, const VolumePlacement& placement) {
  std::array<std::array<double, 2>, 3> edges{};
  for (size_t a = 0; a < 3; ++a) {
    const VolumeAxis& axis = placement.axes[a];
    const auto at = [&](float edge) {
      return std::clamp(axis.ToSource(static_cast<double>(edge) + shift), 0.0,
                        static_cast<double>(axis.source));
    };
    auto& [from, to] = edges[static_cast<size_t>(axis.source_axis)];
    from = at(axis.flipped ? cuboid.high[a] : cuboid.low[a]);
    to = at(axis.flipped ? cuboid.low[a] : cuboid.high[a]);
    if (to <= from) return std::nullopt;
  }
  const auto& [slices, rows, columns] = edges;
  Box box{columns[0], rows[0], columns[1], rows[1], cuboid.score, cuboid.label};
  box.z0 = slices[0];
  box.z1 = slices[1];
  return box;
}

std::vector<Box> Settle(const OutputSpec& spec, std::vector<Cuboid> found,
                        std::span<const SeenWindow> windows, const VolumePlacement& placement,
                        std::span<const double> thresholds) {
  const Own& own = std::any_cast<const Own&>(spec.own);
  found = Suppressed(std::move(found), own.weighted ? std::nullopt : own.windows_iou, own.windows_per_class);
  if (own.windows_iou && own.weighted) {
    if (found.size() > own.most) found.resize(own.most);
    found = Clustered(std::move(found), *own.windows_iou, windows, placement);
  }
  std::vector<Box> boxes;
  for (const Cuboid& one : found) {
    if (boxes.size() >= static_cast<size_t>(spec.max_boxes)) break;
    if (one.score < static_cast<float>(thresholds[static_cast<size_t>(one.label)])) continue;
    if (const std::optional<Box> box = InSource(one, own.shift, placement)) boxes.push_back(*box);
  }
  return boxes;
}

void Read(const Description& o, OutputSpec& spec) {
  Own own;
  ReadBoxes(o, spec);
  spec.scores_tensor = o.Text("scores");
  if (o.Has("classes")) spec.classes_tensor = o.Text("classes");
  own.shift = o.Flag("centres") ? 0.5 : 0;
  own.least_score = o.Number("least_score");
  own.least_size = static_cast<float>(o.Number("least_size"));
  own.most = static_cast<size_t>(o.Int("most"));
  if (o.Has("windows_iou")) own.windows_iou = o.Number("windows_iou");
  own.windows_per_class = o.Flag("windows_per_class");
  own.weighted = o.Flag("weighted");
  if (o.Has("columns")) {
    const std::vector<int> columns = o.Ints("columns");
    for (size_t a = 0; a < 3; ++a) {
      own.columns[a] = {static_cast<size_t>(columns.at(3 * a)), static_cast<size_t>(columns.at(3 * a + 1)),
                        columns.at(3 * a + 2) != 0};
    }
  }
  if (o.Has("levels")) {
    own.coder = o.Numbers("coder");
    own.levels = o.List("levels", [](const Description& one) {
      Level level{one.Text("scores"), one.Text("boxes"), {}};
      const std::vector<double> sides = one.Numbers("anchors");
      for (size_t i = 0; i + 2 < sides.size(); i += 3) {
        level.anchors.push_back({static_cast<float>(sides[i]), static_cast<float>(sides[i + 1]),
                                 static_cast<float>(sides[i + 2])});
      }
      return level;
    });
  }
  for (size_t i = 1; i < own.levels.size(); ++i) {
    spec.level_tensors.push_back(own.levels[i].scores);
    spec.level_tensors.push_back(own.levels[i].boxes);
  }
  spec.own = std::move(own);
}

}  // namespace

const OutputKind kinds::volume_detection = {
    .name = "volume_detection",
    .gives = "boxes",
    .values = "",
    .placed = true,
    .read = Read,
    .collect = Collect,
    .settle = Settle,
};

}  // namespace radserve
