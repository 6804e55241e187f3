#pragma once

#include <array>
#include <span>
#include <stop_token>
#include <vector>

#include "base/image.h"
#include "prepare/volume_geometry.h"

namespace radserve {

/// A volume and where it lies: slices, rows, columns.
struct VolumeGrid {
  VolumeGeometry geometry;
  std::array<int, 3> sides{};
};

/// Slices of modality values that lie on another grid. `planes` show `values`.
struct RegriddedSlices {
  std::vector<float> values;
  std::vector<Plane> planes;
};

/// The modality values of a volume at the voxel centres of another grid in the same frame of
/// reference, linear along all three axes, as ITK's linear interpolation does it: a place is inside
/// up to half a voxel beyond the outermost centres, where the outermost value holds. Voxels outside
/// are no numbers, which count as Pixel Padding; so do those nearest to Pixel Padding, and beside
/// it the mean is that of the voxels that hold something. There is no antialiasing. Throws
/// no_model_accepts for colour; `cancelled` once `stop` is requested; what PixelSource throws.
RegriddedSlices RegridSlices(std::span<const Plane> slices, const VolumeGrid& own,
                             const VolumeGrid& grid, const std::stop_token& stop);

}  // namespace radserve
