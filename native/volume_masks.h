#ifndef RADSERVE_VOLUME_MASKS_H_
#define RADSERVE_VOLUME_MASKS_H_

#include <array>
#include <cstdint>
#include <span>

namespace radserve {

/// A mask over the source's voxels that the steps below change in place: 0 is background. They are those of
/// masks.h in three dimensions: regions are 6-connected.
struct VolumeMask {
  std::span<uint8_t> voxels;
  /// Slices, rows, columns.
  std::array<int, 3> sides{};
  /// One byte a voxel, or empty.
  std::span<const uint8_t> padding;
};

/// Regions of `label` that touch the border of a slice (first or last row or column), or a Pixel Padding
/// voxel, become background. The first and the last slice are no border: what a scan begins or ends within is
/// no less inside.
void DropBorderConnected(const VolumeMask& mask, uint8_t label);

/// Of the regions of `label` the largest stays; of equal ones the first in raster order.
void KeepLargestComponent(const VolumeMask& mask, uint8_t label);

/// Regions of `label` with fewer voxels become background.
void DropSmallComponents(const VolumeMask& mask, uint8_t label, int64_t voxels);

/// Background that `label` shuts off from all six faces of the volume becomes `label`; voxels of other labels
/// and Pixel Padding stay what they are. A hole that is open at the first or last slice is not filled.
void FillHoles(const VolumeMask& mask, uint8_t label);

}  // namespace radserve

#endif  // RADSERVE_VOLUME_MASKS_H_
