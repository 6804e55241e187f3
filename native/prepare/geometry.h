#pragma once

#include <optional>

#include "base/description.h"
#include "resample/resample.h"

namespace radserve {

enum class Fit { kStretch, kLetterbox, kCrop, kNone };

struct SizeSpec {
  enum class Kind { kFixed, kMultipleOf, kEdges, kSource } kind = Kind::kSource;
  /// How libraries round the sides of kEdges.
  enum class Edges { kTransformers, kTorchvision, kDetectron2 };

  int height = 0;
  int width = 0;
  int multiple = 1;
  int max_side = 0;
  int depth = 0;
  int shortest = 0;
  int longest = 0;
  Edges edges = Edges::kTransformers;
};

/// A fit in whole pixels, as libraries do it (`placement` of an input): the image is resized to
/// whole pixels and then cut or padded, or cut to whole pixels and then resized. Without it a cut
/// may run through pixels.
struct WholePixels {
  enum class Kind { kResizeThenCrop, kCropThenResize, kResizeThenPad };
  /// What becomes of the part of a pixel in a side that is computed: cut off, or rounded, a half
  /// upwards or to the even number.
  enum class Rounding { kDown, kHalfUp, kHalfEven };
  /// Where the middle begins if an odd number of pixels is left over: half of it cut off, or to the
  /// even number; half of the image less half of the middle, each cut off; or at the first pixel.
  enum class Offset { kHalf, kHalfEven, kHalves, kTopLeft };

  Kind kind = Kind::kResizeThenCrop;
  /// The side to which the shorter one is resized; 0: the image is resized to height and width.
  int shortest_edge = 0;
  int height = 0;
  int width = 0;
  Rounding rounding = Rounding::kDown;
  Offset offset = Offset::kHalf;
};

/// The fields of an input by which an image comes to the tensor's sides.
struct PlacementFields {
  SizeSpec size;
  Fit fit = Fit::kStretch;
  std::optional<WholePixels> placement;
  Interpolation interpolation = Interpolation::kLinear;
  /// Kernels grow where an axis shrinks, on the way to the tensor and back.
  bool antialias = true;
  /// With stretch: the centres of the outermost pixels of image and tensor lie at the same places,
  /// instead of their edges.
  bool align_corners = false;
  /// Interpolation::kGaussian: the value beyond the image; nullopt: it goes on mirrored.
  std::optional<double> border;

  PlacementFields() = default;
  PlacementFields(const SizeSpec& its_size, Fit its_fit,
                  const std::optional<WholePixels>& its_placement = std::nullopt)
      : size(its_size), fit(its_fit), placement(its_placement) {}
  void ReadPlacement(const Description& input);
  /// Pixels of the source for one of the tensor, where an axis is stretched.
  double ScaleToFill(int source, int tensor) const;
};

/// Where an image lies in the tensor, along its rows or its columns. Coordinates are continuous and
/// count from edges: pixel i covers [i, i+1), its centre is i + 0.5. The map is affine, so it
/// inverts exactly.
struct ImageAxis {
  int source = 0;
  /// The tensor's side.
  int tensor = 0;
  /// The part of the tensor that image content fills; the rest is background.
  int first = 0;
  int count = 0;
  /// The part of the source that is seen (smaller than the image for crop).
  double seen_from = 0;
  double seen = 0;
  /// The source is cut to the part that is seen, in whole pixels, before it is resampled: no kernel
  /// reaches beyond it.
  bool apart = false;

  double ToSource(double place) const { return seen_from + (place - first) * seen / count; }
  double ToTensor(double place) const { return first + (place - seen_from) * count / seen; }
  /// From the source to the tensor's pixels [first, first + count).
  Taps Forward(const PlacementFields& fields) const;
};

/// Where an image lies in the tensor.
struct Geometry {
  ImageAxis rows;
  ImageAxis columns;
  /// PlacementFields::antialias, for the way back.
  bool antialias = true;
};

/// The placement of the same source in a tensor of its own pixels.
Geometry SourceItself(const Geometry& geometry);

/// Places a source of rows x columns into a tensor, by size, fit, placement and align_corners.
/// - stretch: the whole image fills the tensor;
/// - letterbox: the whole image, centred, physical aspect kept (`pixel_aspect` is a pixel's height
///   by its width); with multiple_of the image keeps its own size unless a side exceeds max_side;
/// - crop: the tensor is filled, the centre kept, physical aspect kept;
/// - with edges the image is resized whole, physical aspect kept, so that its shorter side is
///   `shortest`, or less where the longer one would exceed `longest`; it lies at the top left;
/// - none: no resampling; with multiple_of the image lies at the top left and the rest is
/// background. Throws no_model_accepts if `none` would have to resample.
Geometry PlaceImage(int rows, int columns, double pixel_aspect, const PlacementFields& fields);

}  // namespace radserve
