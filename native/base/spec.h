#ifndef RADSERVE_SPEC_H_
#define RADSERVE_SPEC_H_

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/image.h"
#include "base/tensor.h"

namespace radserve {

/// These mirror the inputs and outputs of src/manifest/manifest.ts, which says what the fields mean.
enum class Interpolation {
  kArea,
  kLinear,
  kCubic,
  kNearest,
  /// For pictures: area where an axis shrinks, linear where it grows.
  kDisplay,
};
enum class Fit { kStretch, kLetterbox, kCrop, kNone };
enum class ChannelOrder { kGrayscale, kRgb, kBgr };

struct SizeSpec {
  enum class Kind { kFixed, kMultipleOf, kSource } kind = Kind::kSource;
  int height = 0;
  int width = 0;
  int multiple = 1;
  int max_side = 0;
  int depth = 0;
};

struct ValuesSpec {
  enum class Kind { kStored, kModality, kVoi, kWindow } kind = Kind::kStored;
  int index = 0;
  enum class IfAbsent { kFullRange, kMinMax, kRefuse } if_absent = IfAbsent::kRefuse;
  Window window;
};

struct NormalisationSpec {
  enum class Kind { kNone, kScale, kMeanStd, kMinMax, kZScore, kPercentile } kind = Kind::kNone;
  double multiply = 1;
  double add = 0;
  std::vector<double> mean, std;
  double low = 0;
  double high = 100;
  std::array<double, 2> to = {0, 1};
};

struct InputSpec {
  std::string tensor;
  Dtype dtype = Dtype::kFloat32;
  bool channels_last = false;
  /// NCDHW and NDHWC.
  bool volume = false;
  SizeSpec size;
  Fit fit = Fit::kStretch;
  Interpolation interpolation = Interpolation::kLinear;
  ValuesSpec values;
  enum class Monochrome1 { kInvert, kAsStored, kRefuse } monochrome1 = Monochrome1::kInvert;
  ChannelOrder channels = ChannelOrder::kGrayscale;
  bool accept_colour = false;
  std::optional<std::pair<double, double>> clip;
  NormalisationSpec normalisation;
  double background = 0;
  /// Volumes, in the order of the tensor's axes: depth, height, width.
  std::optional<std::array<double, 3>> spacing_mm;
  /// Three letters, or empty.
  std::string orientation;

  int Channels() const { return channels == ChannelOrder::kGrayscale ? 1 : 3; }
};

enum class Activation { kNone, kSigmoid, kSoftmax, kArgmax, kLabelMap };

/// Whether a segmentation has one channel for each label, judged by thresholds, instead of one label a pixel.
inline bool MayOverlap(Activation activation) {
  return activation == Activation::kSigmoid || activation == Activation::kNone;
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
};

enum class BoxFormat { kXyxy, kXywh, kCxcywh, kYxyx };

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
};

struct OutputSpec {
  enum class Kind {
    kClassification,
    kRegression,
    kSegmentation,
    kDetection,
    kProbabilityMap,
    kHeatmap
  } kind = Kind::kClassification;
  /// The tensor; for detections the one with the boxes.
  std::string tensor;
  Activation activation = Activation::kNone;
  int labels = 0;
  /// The manifest's thresholds, one a label; NaN for a label without a threshold.
  std::vector<double> thresholds;
  CalibrationSpec calibration;
  /// regression: value * multiply + add
  std::vector<double> multiply, add;
  std::vector<MaskStep> steps;
  /// segmentation: give the probabilities beside the mask.
  bool fractional = false;
  BoxFormat box_format = BoxFormat::kXyxy;
  bool normalised = false;
  std::string scores_tensor;
  std::string classes_tensor;
  /// Then `tensor` holds boxes, scores and classes.
  std::optional<TableSpec> table;
  int first_class = 0;
  /// A box counts for each label whose threshold it reaches, instead of for its best label.
  bool several_labels = false;
  std::optional<double> nms_iou;
  bool nms_per_class = false;
  int max_boxes = 1;
  double map_threshold = 0.5;
  double minimum_area = 0;
  double unclip = 0;

  /// Names of the tensors it reads, in the manifest's order.
  std::vector<std::string> Tensors() const {
    std::vector<std::string> names = {tensor};
    if (!scores_tensor.empty()) names.push_back(scores_tensor);
    if (!classes_tensor.empty()) names.push_back(classes_tensor);
    return names;
  }
};

}  // namespace radserve

#endif  // RADSERVE_SPEC_H_
