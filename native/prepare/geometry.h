#pragma once

#include "base/spec.h"

namespace radserve {

/// Where the image lies in the tensor. Coordinates are continuous and count from edges: pixel i covers [i,
/// i+1), its centre is i + 0.5. The map is affine along each axis, so it inverts exactly.
struct Geometry {
  int source_rows = 0;
  int source_columns = 0;
  /// The tensor's sides.
  int rows = 0;
  int columns = 0;
  /// The part of the tensor that image content fills; the rest is background.
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;
  /// The part of the source that is seen (smaller than the image for crop).
  double source_top = 0;
  double source_left = 0;
  double source_height = 0;
  double source_width = 0;
  /// InputSpec::antialias, for the way back.
  bool antialias = true;

  double ToSourceX(double x) const { return source_left + (x - left) * source_width / width; }
  double ToSourceY(double y) const { return source_top + (y - top) * source_height / height; }
  double ToTensorX(double x) const { return left + (x - source_left) * width / source_width; }
  double ToTensorY(double y) const { return top + (y - source_top) * height / source_height; }
};

/// Places a source of rows x columns into a tensor.
/// - stretch: the whole image fills the tensor;
/// - letterbox: the whole image, centred, physical aspect kept (`pixel_aspect` is a pixel's height by its
///   width); with multiple_of the image keeps its own size unless a side exceeds max_side;
/// - crop: the tensor is filled, the centre kept, physical aspect kept;
/// - none: no resampling; with multiple_of the image lies at the top left and the rest is background.
/// Throws no_model_accepts if `none` would have to resample.
Geometry PlaceImage(int rows, int columns, double pixel_aspect, const SizeSpec& size, Fit fit);

}  // namespace radserve
