#pragma once

#include <span>
#include <stop_token>

#include "base/image.h"
#include "base/thread_team.h"
#include "prepare/input.h"
#include "prepare/volume_geometry.h"

namespace radserve {

/// The values of a volume on a grid whose ends are the volume's (ResamplingSpec::Grid::kEnds):
/// linear along the three axes, in float64, and cut to whole numbers toward zero where the
/// placement says so. The sum over the eight neighbours has the order that scipy.ndimage.zoom has
/// for an array whose axes are width, height and depth, which is how TotalSegmentator holds its
/// NIfTI images; bits depend on it. `out` has room for the tensor of the placement, whose axes are
/// not cut. The values are the same whatever the number of threads. Throws `cancelled` once `stop`
/// is requested.
void ResampleByEnds(std::span<const Plane> slices, const InputSpec& spec,
                    const VolumePlacement& placement, const std::stop_token& stop, ThreadTeam& team,
                    float* out);

}  // namespace radserve
