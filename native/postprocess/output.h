#pragma once

#include <any>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace radserve {

enum class Activation { kNone, kSigmoid, kSoftmax, kArgmax, kLabelMap, kPrototypes };

/// Whether a segmentation has one channel for each label, judged by thresholds, instead of one
/// label a pixel.
inline bool MayOverlap(Activation activation) {
  return activation == Activation::kSigmoid || activation == Activation::kNone ||
         activation == Activation::kPrototypes;
}

struct CalibrationSpec {
  enum class Kind { kNone, kTemperature, kPlatt, kIsotonic } kind = Kind::kNone;
  double temperature = 1;
  double a = 0;
  double b = 0;
  std::vector<double> x, y;
};

struct MaskStep {
  enum class Kind { kDropBorderConnected, kLargestComponent, kMinimumArea, kFillHoles } kind;
  /// Label indices, from 1.
  std::vector<int> labels;
  int pixels = 0;
  /// kLargestComponent: pixels that touch by corners are of one region.
  bool corners = false;
};

enum class BoxFormat { kXyxy, kXywh, kCxcywh, kYxyx };
/// What two boxes share: by their edges, as outlines of turned boxes, or as distributions
/// (turned.h).
enum class Overlap { kEdges, kPolygon, kProbabilistic };

/// Where the numbers of a box stand in the one tensor that holds them all; columns count from 0.
struct TableSpec {
  /// [1, columns, boxes] instead of [1, boxes, columns].
  bool columns_first = false;
  int columns = 0;
  /// The box's four numbers, in the order of its format.
  std::array<int, 4> box = {};
  /// The one score of a box, or the first of one score a label.
  int score = 0;
  bool score_a_label = false;
  std::optional<int> class_column;
  std::optional<int> objectness;
  /// kNone or kSigmoid.
  Activation objectness_activation = Activation::kNone;
  /// The first coefficient of a box's mask, and how many there are.
  std::optional<int> coefficients = std::nullopt;
  int coefficient_count = 0;
  /// How much each box is turned, and how many radians clockwise a number of that column stands
  /// for.
  std::optional<int> angle = std::nullopt;
  double angle_unit = 1;
};

struct OutputKind;

struct OutputSpec {
  /// postprocess/kind.h; it lives as long as the process.
  const OutputKind* kind = nullptr;
  /// The tensor; for detections the one with the boxes.
  std::string tensor;
  /// Number of the input whose grid maps and boxes are on.
  size_t input = 0;
  Activation activation = Activation::kNone;
  int labels = 0;
  /// The manifest's thresholds, one a label; NaN for a label without a threshold.
  std::vector<double> thresholds;
  /// Fields that only the file of its kind knows, and reads and asks for by their type.
  std::any own;
  CalibrationSpec calibration;
  std::vector<MaskStep> steps;
  /// segmentation: give the probabilities beside the mask.
  bool fractional = false;
  /// segmentation of a volume: give a mask on the grid of the tensor too.
  bool model_grid = false;
  BoxFormat box_format = BoxFormat::kXyxy;
  bool normalised = false;
  std::string scores_tensor;
  std::string classes_tensor;
  /// Those of a graph that gives scores and boxes level by level, from the second level on.
  std::vector<std::string> level_tensors;
  /// Then `tensor` holds boxes, scores and classes.
  std::optional<TableSpec> table;
  /// kPrototypes: number of the output that finds the boxes.
  size_t boxes_output = 0;
  int first_class = 0;
  /// A box counts for each label whose threshold it reaches, instead of for its best label.
  bool several_labels = false;
  std::optional<double> nms_iou;
  bool nms_per_class = false;
  /// A box goes because of any better one, whether that stays or not.
  bool nms_fast = false;
  Overlap nms_overlap = Overlap::kEdges;
  int max_boxes = 1;
  double map_threshold = 0.5;
  double minimum_area = 0;
  double unclip = 0;

  /// Names of the tensors it reads, in the manifest's order.
  std::vector<std::string> Tensors() const {
    std::vector<std::string> names = {tensor};
    if (!scores_tensor.empty()) names.push_back(scores_tensor);
    if (!classes_tensor.empty()) names.push_back(classes_tensor);
    names.insert(names.end(), level_tensors.begin(), level_tensors.end());
    return names;
  }
};

}  // namespace radserve
