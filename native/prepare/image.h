#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/image.h"
#include "base/tensor.h"
#include "prepare/geometry.h"
#include "prepare/input.h"
#include "prepare/statistics.h"
#include "prepare/values.h"

namespace radserve {

struct PreparedImage {
  /// Shape [1,C,H,W], or [1,H,W,C] for channels last.
  Tensor tensor;
  Geometry geometry;
  /// The statistics that min_max, z_score and percentile found.
  std::optional<Statistics> found;
  /// Least and greatest modality value, if a window that the file lacks was taken from them.
  std::optional<Range> observed;
  /// The tensor's type cut off values (CutValues).
  bool cut = false;
  /// One byte a source pixel, 1 if it is Pixel Padding; empty if nothing is.
  std::vector<uint8_t> padding;
};

/// One frame to the tensor that the manifest describes, in this order: values (see PixelSource),
/// clip, statistics over the source's pixels without padding, resampling, clip again (cubic
/// overshoots), normalisation, rounding to the tensor's type. Mean and standard deviation are in
/// the tensor's channel order; an image without contrast becomes the low end of min_max and
/// percentile, and 0 of z_score. The tensor is made by `make`. Throws EngineError. `frames` are the
/// frame, whose number is `centre`, and as many of its neighbours, further channels
/// (ChannelSource), as there are. Where the frame lies and its padding are those of the frame
/// itself.
PreparedImage PrepareImage(std::span<const Plane> frames, size_t centre, const InputSpec& spec,
                           const TensorMaker& make = MakeTensorForOverwrite);

}  // namespace radserve
