#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "base/image.h"
#include "base/tensor.h"
#include "base/thread_team.h"
#include "prepare/input.h"
#include "prepare/statistics.h"
#include "prepare/volume_geometry.h"

namespace radserve {

/// The box that counts of the volumes of all channels together (ResamplingSpec::crop_nonzero).
struct VolumeBody {
  VolumeBox box;
  /// One byte a source voxel, 1 where a channel is not 0; empty unless asked for.
  std::vector<uint8_t> inside;
};

/// Finds the body of channels that lie on one grid, one after the other.
class BodyFinder {
 public:
  /// `sides` are slices, rows, columns; `marks` asks for VolumeBody::inside.
  BodyFinder(const std::array<int, 3>& sides, bool marks);
  /// Finds what is not 0 before `clip`. Throws series_invalid for slices of other sides;
  /// `cancelled` once `stop` is requested.
  void Add(std::span<const Plane> slices, const InputSpec& spec, const std::stop_token& stop);
  /// The box is the whole volume where all is 0.
  VolumeBody Take();

 private:
  std::array<int, 3> sides_;
  std::array<int, 3> low_;
  std::array<int, 3> high_ = {-1, -1, -1};
  std::vector<uint8_t> inside_;
};

struct PreparedVolume {
  /// Shape [1,C,D,H,W], or [1,D,H,W,C] for channels last.
  Tensor tensor;
  VolumePlacement placement;
  /// The statistics that min_max, z_score and percentile found, over all slices.
  std::optional<Statistics> found;
  /// Slices, rows, columns of the source.
  std::array<int, 3> sides{};
  /// The tensor's type cut off values (CutValues).
  bool cut = false;
  /// One byte a source voxel, 1 if it is Pixel Padding; empty if nothing is.
  std::vector<uint8_t> padding;
};

/// The slices of one volume to the tensor that the manifest describes, by the steps of
/// PrepareImage: each slice by its own modality transform and its own window, then clip, statistics
/// over all slices without padding, resampling along the three axes one after the other (see
/// PlaceVolume), clip, normalisation. One slice is resampled at a time: beside the tensor, which
/// `make` makes, it needs a few planes. Throws EngineError, `cancelled` once `stop` is requested.
///
/// With `resampling` the box around what is not 0 is found first, statistics are those of the box,
/// padding included, and instead of the second clip values stay within the range of what they are
/// made of. `body` is that of all channels of the tensor, where the volume is one of several; else
/// its own is found. NormalisationSpec::nonzero needs one with `inside`: what is outside becomes
/// the mean of what is inside. `threads` resample; the values are the same whatever their number.
/// Null is the caller's thread.
PreparedVolume PrepareVolume(std::span<const Plane> slices, const VolumeGeometry& geometry,
                             const InputSpec& spec, const std::stop_token& stop,
                             const TensorMaker& make = MakeTensorForOverwrite,
                             const VolumeBody* body = nullptr, ThreadTeam* threads = nullptr);

}  // namespace radserve
