#pragma once

#include "base/description.h"
#include "resample/resample.h"

namespace radserve {

enum class Fit { kStretch, kLetterbox, kCrop, kNone };

struct SizeSpec {
  enum class Kind { kFixed, kMultipleOf, kSource } kind = Kind::kSource;
  int height = 0;
  int width = 0;
  int multiple = 1;
  int max_side = 0;
  int depth = 0;
};

/// The fields of an input by which an image comes to the tensor's sides.
struct PlacementFields {
  SizeSpec size;
  Fit fit = Fit::kStretch;
  Interpolation interpolation = Interpolation::kLinear;
  /// Single images, to the tensor and back: kernels grow where an axis shrinks.
  bool antialias = true;

  void ReadPlacement(const Description& input);
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

  double ToSource(double place) const { return seen_from + (place - first) * seen / count; }
  double ToTensor(double place) const { return first + (place - seen_from) * count / seen; }
  Axis Forward(bool antialias) const { return {source, count, seen_from, seen / count, antialias}; }
  /// The way back: centres of source pixels in the coordinates of a map of so many that covers the
  /// tensor.
  Axis Back(int map, bool antialias) const {
    const double ratio = static_cast<double>(map) / tensor;
    return {map, source, ToTensor(0) * ratio, count / seen * ratio, antialias};
  }
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

/// Places a source of rows x columns into a tensor.
/// - stretch: the whole image fills the tensor;
/// - letterbox: the whole image, centred, physical aspect kept (`pixel_aspect` is a pixel's height
///   by its width); with multiple_of the image keeps its own size unless a side exceeds max_side;
/// - crop: the tensor is filled, the centre kept, physical aspect kept;
/// - none: no resampling; with multiple_of the image lies at the top left and the rest is
/// background. Throws no_model_accepts if `none` would have to resample.
Geometry PlaceImage(int rows, int columns, double pixel_aspect, const SizeSpec& size, Fit fit);

}  // namespace radserve
