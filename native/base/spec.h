#pragma once

#include <algorithm>
#include <any>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/image.h"
#include "base/tensor.h"

namespace radserve {

/// These mirror the inputs and outputs of src/manifest/manifest.ts, which says what the fields
/// mean.
enum class Interpolation {
  kArea,
  /// Each pixel that is touched counts whole.
  kAdaptiveArea,
  kLinear,
  kCubic,
  kNearest,
  /// For pictures: area where an axis shrinks, linear where it grows.
  kDisplay,
  /// Volumes: by ResamplingSpec.
  kSpline,
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
  /// kWindow: if there are any, each gives a channel of its own, and `window` is not used.
  std::vector<Window> windows;
};

/// Slices beside the one that is looked at, as further channels.
struct NeighboursSpec {
  int before = 0;
  int after = 0;
  /// Beyond the first and the last slice: the edge slice again, instead of background.
  bool repeat = false;

  int Slices() const { return before + 1 + after; }
};

struct NormalisationSpec {
  enum class Kind { kNone, kScale, kMeanStd, kMinMax, kZScore, kPercentile } kind = Kind::kNone;
  double multiply = 1;
  double add = 0;
  std::vector<double> mean, std;
  double low = 0;
  double high = 100;
  std::array<double, 2> to = {0, 1};
  /// kZScore of volumes with ResamplingSpec::crop_nonzero: mean and deviation are those of the
  /// body, and what lies outside of it is 0 (nnU-Net's use_mask_for_norm).
  bool nonzero = false;
};

/// A change of values by their own statistics, which is none of an affine map of the source's.
struct IntensitySpec {
  enum class Kind { kMinMax, kZScore, kPercentile, kClipPercentiles } kind = Kind::kZScore;
  /// Before resampling, instead of the tensor's values. Of volumes those of one channel.
  bool at_source = false;
  /// Values that are 0 are not counted, and stay.
  bool nonzero = false;
  /// Each channel has statistics of its own.
  bool each_channel = false;
  double low = 0;
  double high = 100;
  std::array<double, 2> to = {0, 1};
  /// kPercentile: what lies beyond the percentiles becomes `to`.
  bool clip = false;
};

/// How a volume gets the spacing of the model, and its maps go back, if it is by splines and
/// without antialiasing.
struct ResamplingSpec {
  /// kEdges: the tensor covers the volume, and its spacing is rounded so that voxels are whole
  /// (nnU-Net). kFirstVoxel: the first voxels of both lie at the same place, and the spacing is
  /// exact (MONAI).
  enum class Grid { kEdges, kFirstVoxel } grid = Grid::kEdges;
  /// Order of the splines: 0 nearest, 1 linear, 3 cubic.
  int order = 3;
  int order_back = 1;
  /// mm along the tensor's axes; 0: the volume's own.
  std::array<double, 3> spacing_mm = {0, 0, 0};
  /// If the largest spacing of the volume, or else of the tensor, is more than so many times the
  /// smallest, each slice is resampled by itself, and the nearest slice counts between them. 0:
  /// never.
  double separate_above = 0;
  /// The tensor's sides are rounded up to multiples of these; what is more lies behind the volume
  /// and is background.
  std::array<int, 3> multiple_of = {1, 1, 1};
  /// No value leaves the range of those that it is made of: of the volume, or of the slice if
  /// slices are separate.
  bool keep_range = false;
  /// Only the box around all values that are not 0 counts; the rest is as if the volume did not
  /// have it.
  bool crop_nonzero = false;
  /// Only the box around all values of the tensor above 0 counts, as they are in the end; what the
  /// model says of the rest is 0 (MONAI's CropForeground).
  bool crop_foreground = false;
  /// The input's clip comes after resampling.
  bool clip_last = false;
  /// Maps are activated after they have gone back, instead of before.
  bool activate_last = false;
};

struct InputSpec {
  std::string tensor;
  Dtype dtype = Dtype::kFloat32;
  bool channels_last = false;
  /// NCWH: columns of the image are rows of the tensor.
  bool transposed = false;
  /// NCDHW and NDHWC.
  bool volume = false;
  /// Not 0: the input holds so many numbers, which come with each request, and nothing below but
  /// `flat` counts.
  int numbers = 0;
  /// Numbers as [1] instead of [1, numbers].
  bool flat = false;
  SizeSpec size;
  Fit fit = Fit::kStretch;
  Interpolation interpolation = Interpolation::kLinear;
  /// Single images, to the tensor and back: kernels grow where an axis shrinks.
  bool antialias = true;
  ValuesSpec values;
  enum class Monochrome1 { kInvert, kAsStored, kRefuse } monochrome1 = Monochrome1::kInvert;
  ChannelOrder channels = ChannelOrder::kGrayscale;
  bool accept_colour = false;
  std::optional<std::pair<double, double>> clip;
  NormalisationSpec normalisation;
  /// One after the other, behind `normalisation`; those at the source come first.
  std::vector<IntensitySpec> intensity;
  double background = 0;
  /// Volumes, in the order of the tensor's axes: depth, height, width.
  std::optional<std::array<double, 3>> spacing_mm;
  /// Three letters, or empty.
  std::string orientation;
  std::optional<NeighboursSpec> neighbours;
  /// Volumes; then `size`, `fit` and `spacing_mm` do not count.
  std::optional<ResamplingSpec> resampling;
  /// Which source of a case it is made of; 0 where there is only one.
  size_t source = 0;
  /// Not empty: the tensor's channels are those of several sources of a case, one after the other,
  /// each prepared by a specification of its own, which differs in source, values, clip,
  /// normalisation and background alone.
  std::vector<InputSpec> parts;

  /// Whether it takes a part of a case other than the first source.
  bool OfCase() const {
    if (source > 0) return true;
    for (const InputSpec& part : parts) {
      if (part.source > 0) return true;
    }
    return false;
  }
  /// Channels that one frame and one window give.
  int PixelChannels() const { return channels == ChannelOrder::kGrayscale ? 1 : 3; }
  /// Windows, if there are several; each frame has so many layers of PixelChannels.
  int Windows() const {
    return values.windows.empty() ? 1 : static_cast<int>(values.windows.size());
  }
  int Channels() const {
    if (parts.empty()) return PixelChannels() * Windows() * (neighbours ? neighbours->Slices() : 1);
    int channels = 0;
    for (const InputSpec& part : parts) channels += part.Channels();
    return channels;
  }
  /// Channels behind those of the pixels: one for each label of another model, 1 where that label
  /// is (nnU-Net's cascade).
  int label_channels = 0;

  /// The parts of which it is made, one after the other: itself, where it has no parts.
  std::span<const InputSpec> Parts() const {
    return parts.empty() ? std::span<const InputSpec>(this, 1) : std::span<const InputSpec>(parts);
  }
  /// Whether the preparation has the tensor's values twice for a while.
  bool NeedsCopy() const {
    return (resampling && resampling->crop_foreground) ||
           std::ranges::any_of(intensity, [](const IntensitySpec& step) {
             return step.kind == IntensitySpec::Kind::kPercentile ||
                    step.kind == IntensitySpec::Kind::kClipPercentiles;
           });
  }
  /// Whether the preparation has to know which voxels are not 0, beside the box around them.
  bool AsksForInside() const {
    return label_channels > 0 || std::ranges::any_of(Parts(), [](const InputSpec& part) {
             return part.normalisation.nonzero;
           });
  }
};

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

/// Windows over a tensor that is larger than what the graph takes.
struct TilingSpec {
  /// Sides in the order of the tensor's axes: [depth,] height, width.
  std::vector<int> window;
  /// Part of a window that the next one covers too, from 0 to below 1.
  double overlap = 0.5;
  enum class Steps { kEven, kStride } steps = Steps::kEven;
  struct Gaussian {
    /// In window sides.
    double sigma = 0.125;
    /// The greatest weight is in the middle, (side - 1) / 2, instead of at floor(side / 2).
    bool middle = false;
    /// No weight is less.
    double least = 0;
  };
  /// Absent: all voxels of a window count the same.
  std::optional<Gaussian> gaussian;
  /// Axes along which each window runs mirrored too, alone and together, counted as in `window`.
  std::vector<int> mirrored;
  /// The value of the tensor that surrounds a tensor which is smaller than the window.
  float padding = 0;
  /// The nearest value of the tensor does, instead.
  bool pad_edge = false;
};

}  // namespace radserve
