#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>

#include "postprocess/activation.h"
#include "postprocess/detections.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

/// A level of a network with anchors: its two tensors, and three sides for each anchor.
struct Level {
  std::string scores;
  std::string boxes;
  std::vector<double> anchors;
};

struct VolumeBoxes {
  ListSpec list;
  int first_class = 0;
  /// Of listed boxes: 0 to 1 of the tensor's sides, instead of its voxels.
  bool normalised = false;
  /// Of listed boxes, for each axis of the tensor: where its two numbers stand, and whether they
  /// are middle and side.
  std::vector<int> columns;
  /// From how the graph counts to edges: 0.5 where 0 is the centre of the first voxel.
  double shift = 0;
  /// Empty where the graph lists its boxes.
  std::vector<Level> levels;
  std::vector<double> coder;
  /// Whether anchors lie in the middle of the voxels that a place stands for.
  bool in_middle = false;
  double least_score = 0;
  double least_size = 0;
  size_t most = 0;
  /// Of what one run of the graph gives.
  std::optional<SuppressionSpec> nms;
  size_t max_boxes = 0;
  std::optional<double> windows_iou;
  bool windows_per_class = false;
  bool weighted = false;
};

/// One run of the graph, and what is known of it.
struct Run {
  const OutputSpec& spec;
  const VolumeBoxes& own;
  const TensorByName& tensors;
  const VolumePlacement& placement;
  const SeenWindow& window;
  std::span<const double> thresholds;
};

/// The logarithm of how many times the side of an anchor grows at most (MONAI's and torchvision's
/// BoxCoder).
const double kMostGrowth = std::log(1000.0 / 16);

/// Puts a box of a window into the tensor, cut off where window or image end. False if too little
/// is left. `plausible` is set to whether it lies where a network that saw it puts one: around the
/// window, larger than a voxel, and with its edges in order.
bool Place(const Run& run, Cuboid& box, bool& plausible) {
  bool large = true;
  bool tiny = true;
  plausible = true;
  box.weight = 0;
  for (size_t a = 0; a < 3; ++a) {
    double& low = box.low[a];
    double& high = box.high[a];
    if (!std::isfinite(low + high)) {
      throw EngineError("output_invalid", "The model gave a box that is no finite number.");
    }
    const int side = run.window.sides[a];
    const int start = run.window.start[a];
    if (run.window.mirrored[a]) {
      const double end = side - 2 * run.own.shift;
      low = end - std::exchange(high, end - low);
    }
    const double middle = (low + high) / 2;
    // Anchors at the edge of a window may move out of it.
    plausible = plausible && middle >= -side / 2.0 && middle <= side * 1.5 && low <= high;
    tiny = tiny && high - low < 1;
    const VolumeAxis& axis = run.placement.axes[a];
    const double first = std::max(0, axis.first - start);
    const double last = std::min(side, axis.first + axis.count - start);
    low = std::min(std::max(low, first), last);
    high = std::min(std::max(high, first), last);
    large = large && high > low && high >= low + run.own.least_size;
    // A normal distribution around the window's middle (nnDetection's BoxEnsembler)
    const double away = ((low + high) / side - 1) / 0.8;
    box.weight += std::exp(-away * away / 2) / 3;
    low += start;
    high += start;
  }
  plausible = plausible && !tiny;
  return large;
}

/// Intersection over union.
double Overlap(const Cuboid& a, const Cuboid& b) {
  double shared = 1;
  double own = 1;
  double other = 1;
  for (size_t i = 0; i < 3; ++i) {
    shared *= std::max(0.0, std::min(a.high[i], b.high[i]) - std::max(a.low[i], b.low[i]));
    own *= a.high[i] - a.low[i];
    other *= b.high[i] - b.low[i];
  }
  return shared / (own + other - shared);
}

/// Sorts, and leaves the best of those that overlap: greedy non-maximum suppression.
std::vector<Cuboid> Suppressed(std::vector<Cuboid> boxes, std::optional<double> iou,
                               bool per_class) {
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
double SeenBy(const Cuboid& box, std::span<const SeenWindow> windows,
              const VolumePlacement& placement) {
  double seen = 0;
  for (const SeenWindow& window : windows) {
    double part = 1;
    for (size_t a = 0; a < 3; ++a) {
      const int from = std::clamp(static_cast<int>(box.low[a]), 0, placement.axes[a].tensor - 1);
      const int to = std::clamp(static_cast<int>(box.high[a]), from + 1, placement.axes[a].tensor);
      const int end = std::min(to, window.start[a] + window.sides[a]);
      part *= static_cast<double>(std::max(0, end - std::max(from, window.start[a]))) / (to - from);
    }
    seen += part;
  }
  return seen;
}

/// Weighted box clustering of sorted boxes (Jaeger et al. 2020, Retina U-Net, section 3;
/// nnDetection's): those of a label that share more than `iou` with its best become one, at the
/// mean of their places by score, overlap with the best, and place in the window; its score is the
/// mean by the last two, less where windows that saw the place found nothing.
std::vector<Cuboid> Clustered(std::vector<Cuboid> boxes, double iou,
                              std::span<const SeenWindow> windows,
                              const VolumePlacement& placement) {
  std::vector<Cuboid> clusters;
  // Scores of 0, which come last, have no place in a mean.
  while (!boxes.empty() && boxes.front().score > 0) {
    const Cuboid best = boxes.front();
    Cuboid cluster{{}, {}, 0, best.label};
    double weights = 0;
    double scores = 0;
    double expected = 0;
    double found = 0;
    std::vector<Cuboid> others;
    for (const Cuboid& box : boxes) {
      const double overlap = Overlap(best, box);
      // The best is of its own cluster, though nothing shares more than all.
      const bool own = &box == &boxes.front();
      if (!own && (box.label != best.label || overlap <= iou)) {
        others.push_back(box);
        continue;
      }
      const double share = overlap * box.weight * static_cast<double>(box.score);
      for (size_t a = 0; a < 3; ++a) {
        cluster.low[a] += share * box.low[a];
        cluster.high[a] += share * box.high[a];
      }
      weights += overlap * box.weight;
      scores += share;
      expected += SeenBy(box, windows, placement);
      ++found;
    }
    for (size_t a = 0; a < 3; ++a) {
      cluster.low[a] /= scores;
      cluster.high[a] /= scores;
    }
    const double missing = std::max(0.0, expected / found - found);
    cluster.score = static_cast<float>(scores / (weights + missing * weights / found));
    clusters.push_back(cluster);
    boxes = std::move(others);
  }
  return Suppressed(std::move(clusters), std::nullopt, false);
}

/// Adds the best boxes of a list or of a level. `scores` has so many for each box; `decode` gives
/// the edges of the box of a number along an axis, as the graph counts.
template <typename Decode>
void AddBest(const Run& run, const std::string& tensor, std::vector<float> scores, size_t columns,
             std::span<const float> classes, const Decode& decode, FoundCuboids& found) {
  const OutputSpec& spec = run.spec;
  CheckFinite(scores, tensor);
  if (spec.activation == Activation::kSigmoid) Sigmoid(scores);
  for (size_t i = 0; spec.activation == Activation::kSoftmax && i < scores.size(); i += columns) {
    Softmax(std::span(scores).subspan(i, columns));
  }
  CheckProbabilities(scores, tensor);
  std::vector<std::pair<size_t, int>> best;
  for (size_t i = 0; i < scores.size(); ++i) {
    const int label = classes.empty()
                          ? spec.PlaceOf(static_cast<int>(i % columns))
                          : LabelOfClass(classes[i], scores[i] > 0, run.own.first_class, spec);
    if (label < 0) continue;
    const double least = std::fmin(run.own.least_score, run.thresholds[static_cast<size_t>(label)]);
    if (scores[i] >= static_cast<float>(least)) best.emplace_back(i, label);
  }
  std::ranges::stable_sort(best, std::greater{},
                           [&](const auto& one) { return scores[one.first]; });
  if (best.size() > run.own.most) best.resize(run.own.most);
  for (const auto& [at, label] : best) {
    Cuboid box{{}, {}, scores[at], label};
    for (size_t a = 0; a < 3; ++a) std::tie(box.low[a], box.high[a]) = decode(at / columns, a);
    bool plausible = true;
    if (Place(run, box, plausible)) found.boxes.push_back(box);
    if (!plausible && Reaches(box.score, run.thresholds[static_cast<size_t>(label)]))
      ++found.implausible;
  }
}

using Ends = std::pair<double, double>;

Ends Around(double middle, double side) { return {middle - side / 2, middle + side / 2}; }

void AddListed(const Run& run, FoundCuboids& found) {
  const OutputSpec& spec = run.spec;
  const RawDetections raw = ReadLists(spec, run.own.list, run.tensors, 6);
  const size_t columns = raw.classes.empty() ? spec.Columns() : 1;
  const auto decode = [&](size_t box, size_t axis) -> Ends {
    const auto number = [&](size_t k) {
      const float value = raw.boxes[box * 6 + static_cast<size_t>(run.own.columns[axis * 3 + k])];
      return static_cast<double>(value) * (run.own.normalised ? run.window.sides[axis] : 1);
    };
    return run.own.columns[axis * 3 + 2] != 0 ? Around(number(0), number(1))
                                              : Ends{number(0), number(1)};
  };
  AddBest(run, run.own.list.scores, raw.scores, columns, raw.classes, decode, found);
}

/// Boxes that a network made of anchors: the middle moves by sides of the anchor, and the sides
/// grow by exponents (Girshick et al. 2014, appendix C). Anchors lie at the first of the voxels
/// that a place of the map stands for, or in their middle, cut off to a whole one. Half their sides
/// are rounded to whole voxels, halves to even (MONAI's AnchorGeneratorWithAnchorShape).
void AddLevel(const Run& run, const Level& level, FoundCuboids& found) {
  const Tensor& scores = run.tensors(level.scores);
  const Tensor& codes = run.tensors(level.boxes);
  const size_t anchors = level.anchors.size() / 3;
  const size_t labels = run.spec.Columns();
  const size_t channels = anchors * labels;
  std::vector<int64_t> shape = scores.shape;
  if (shape.size() != 5 || shape[0] != 1 || shape[1] != static_cast<int64_t>(channels) ||
      std::ranges::count(shape, 0) > 0) {
    InvalidOutput(scores, "[1, " + std::to_string(channels) +
                              ", depth, height, width], a score of each label for each anchor,");
  }
  for (size_t axis = 0; axis < 3; ++axis) {
    if (run.window.sides[axis] % shape[axis + 2] != 0) {
      InvalidOutput(scores, "sides that are whole parts of what the graph was given, " +
                                ShapeText({run.window.sides.begin(), run.window.sides.end()}) +
                                ", so that anchors have a place,");
    }
  }
  shape[1] = static_cast<int64_t>(anchors * 6);
  if (codes.shape != shape) InvalidOutput(codes, "the shape " + ShapeText(shape));
  const std::vector<float> maps = AsFloats(scores);
  const size_t places = maps.size() / channels;
  // In the order of places, then anchors, then labels: of equal scores the first counts.
  std::vector<float> ordered(maps.size());
  for (size_t i = 0; i < ordered.size(); ++i)
    ordered[i] = maps[i % channels * places + i / channels];
  const auto decode = [&](size_t box, size_t axis) {
    const size_t anchor = box % anchors;
    const size_t place = box / anchors;
    const auto code = [&](size_t k) {
      float value = 0;
      LoadRow(codes, static_cast<ptrdiff_t>((anchor * 6 + k) * places + place), 1, 1, &value);
      return static_cast<double>(value) / run.own.coder[k];
    };
    auto index = static_cast<int64_t>(place);
    for (size_t later = 2; later > axis; --later) index /= shape[later + 2];
    index %= shape[axis + 2];
    const int64_t stride = run.window.sides[axis] / shape[axis + 2];
    const int64_t centre = index * stride + (run.own.in_middle ? stride / 2 : 0);
    const double side = 2 * std::nearbyint(level.anchors[anchor * 3 + axis] / 2);
    return Around(code(axis) * side + static_cast<double>(centre),
                  std::exp(std::min(code(axis + 3), kMostGrowth)) * side);
  };
  AddBest(run, scores.name, std::move(ordered), labels, {}, decode, found);
}

void Collect(const OutputSpec& spec, const TensorByName& tensors, const VolumePlacement& placement,
             const SeenWindow& window, std::span<const double> thresholds, FoundCuboids& found) {
  const Run run{spec, spec.Own<VolumeBoxes>(), tensors, placement, window, thresholds};
  FoundCuboids own;
  if (run.own.levels.empty()) AddListed(run, own);
  for (const Level& level : run.own.levels) AddLevel(run, level, own);
  found.implausible += own.implausible;
  const auto& nms = run.own.nms;
  std::vector<Cuboid> all = Suppressed(
      std::move(own.boxes), nms ? std::optional(nms->iou) : std::nullopt, nms && nms->per_class);
  if (all.size() > run.own.max_boxes) all.resize(run.own.max_boxes);
  found.boxes.insert(found.boxes.end(), all.begin(), all.end());
}

/// In pixels and slices of the source, cut off where it ends; nothing if no part of it is left.
std::optional<Box> InSource(const Cuboid& cuboid, double shift, const VolumePlacement& placement) {
  std::array<std::array<double, 2>, 3> edges{};
  for (size_t a = 0; a < 3; ++a) {
    const VolumeAxis& axis = placement.axes[a];
    const double from =
        std::clamp(axis.ToSource(cuboid.low[a] + shift), 0.0, static_cast<double>(axis.source));
    const double to =
        std::clamp(axis.ToSource(cuboid.high[a] + shift), 0.0, static_cast<double>(axis.source));
    if (from == to) return std::nullopt;
    edges[static_cast<size_t>(axis.source_axis)] = {std::min(from, to), std::max(from, to)};
  }
  const auto& [slices, rows, columns] = edges;
  return Box{columns[0],   rows[0], columns[1],   rows[1],   cuboid.score,
             cuboid.label, 0,       std::nullopt, slices[0], slices[1]};
}

std::vector<Box> Settle(const OutputSpec& spec, std::vector<Cuboid> found,
                        std::span<const SeenWindow> windows, const VolumePlacement& placement,
                        std::span<const double> thresholds) {
  const VolumeBoxes& own = spec.Own<VolumeBoxes>();
  found = Suppressed(std::move(found), own.weighted ? std::nullopt : own.windows_iou,
                     own.windows_per_class);
  if (own.windows_iou && own.weighted) {
    if (found.size() > own.most) found.resize(own.most);
    found = Clustered(std::move(found), *own.windows_iou, windows, placement);
  }
  std::vector<Box> boxes;
  for (const Cuboid& one : found) {
    if (boxes.size() >= own.max_boxes) break;
    if (!Reaches(one.score, thresholds[static_cast<size_t>(one.label)])) continue;
    if (const std::optional<Box> box = InSource(one, own.shift, placement)) boxes.push_back(*box);
  }
  return boxes;
}

/// Where the numbers of each axis stand in a listed box (VolumeBoxes::columns).
std::vector<int> ColumnsOf(const Description& boxes) {
  const std::vector<std::string> names = boxes.Texts("columns");
  const auto at = [&](const std::string& name) {
    return static_cast<int>(std::ranges::find(names, name) - names.begin());
  };
  std::vector<int> columns;
  for (const std::string axis : {"depth", "height", "width"}) {
    const int middle = at(axis + "_centre");
    const bool centred = middle < static_cast<int>(names.size());
    columns.insert(columns.end(), {centred ? middle : at(axis + "_min"),
                                   at(axis + (centred ? "_size" : "_max")), centred ? 1 : 0});
  }
  return columns;
}

std::vector<Level> ReadLevels(const Description& boxes) {
  return boxes.List("levels", [](const Description& one) {
    Level level{one.Text("scores"), one.Text("boxes"), {}};
    for (const Description& anchor : one.Child("anchors").Get<Description::Items>("anchors")) {
      for (const Description& side : anchor.Get<Description::Items>("anchors"))
        level.anchors.push_back(side.Get<double>("anchors"));
    }
    return level;
  });
}

void ReadVolumeBoxes(const Description& output, OutputSpec& spec) {
  auto& own = spec.Set<VolumeBoxes>();
  const Description& boxes = output.Child("boxes");
  if (boxes.Text("kind") == "anchors") {
    own.coder = boxes.Numbers("coder");
    own.in_middle = boxes.Text("places") == "middle";
    own.levels = ReadLevels(boxes);
    spec.activation = ReadActivation(output.Child("scores"));
    spec.tensor = own.levels.front().boxes;
    spec.further_tensors = {own.levels.front().scores};
    for (size_t i = 1; i < own.levels.size(); ++i) {
      spec.further_tensors.insert(spec.further_tensors.end(),
                                  {own.levels[i].scores, own.levels[i].boxes});
    }
  } else {
    own.columns = ColumnsOf(boxes);
    own.normalised = boxes.Flag("normalised");
    own.list = ReadList(output, spec);
    own.first_class = FirstClassOf(output);
  }
  own.shift = output.Text("counted_from") == "centres" ? 0.5 : 0;
  const Description& candidates = output.Child("candidates");
  candidates.Into("least_score", own.least_score, "least_size", own.least_size);
  own.most = static_cast<size_t>(candidates.Int("most"));
  own.nms = ReadSuppression(output);
  own.max_boxes = static_cast<size_t>(output.Int("max_boxes"));
  if (!output.Has("windows")) return;
  const Description& windows = output.Child("windows");
  own.windows_iou = windows.Number("iou");
  own.weighted = windows.Text("kind") == "weighted";
  own.windows_per_class = windows.Flag("per_class");
}

}  // namespace

const OutputKind kinds::volume_detection = {
    .name = "volume_detection",
    .gives = "boxes",
    .placed = true,
    .read = ReadVolumeBoxes,
    .collect = Collect,
    .settle = Settle,
};

}  // namespace radserve
