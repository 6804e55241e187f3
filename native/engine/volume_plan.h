#pragma once

#include <array>

#include "engine/image_model.h"
#include "prepare/volume_geometry.h"
#include "tiling/tiling.h"

namespace radserve {

/// Windows over a volume go along the source's slices, in their order, because the source's slices
/// are decided one after the other.
LeadAxis LeadAlongSlices(const VolumePlacement& placement);

/// Whether a model's only output is blended slice by slice over a tensor of these sides (depth,
/// height, width), because all of it would take more than 256 MiB.
bool BlendsBySlices(const ImageModel& model, const std::array<int, 3>& sides, const LeadAxis& lead);

/// Bytes that a model which takes volumes in windows needs for a volume of these sides (slices,
/// rows, columns) beside its weights, the source and the results on its grid: its input, the sums
/// of the windows, one batch of windows in and out with the most that the network was seen to take
/// between (ImageModel::window_bytes; a network that has seen no window yet is planned without),
/// the planes of each channel on the way back, and a mask on the model's own grid. 0 for other
/// models. Throws what PlaceVolume throws.
double BytesOfPlan(const ImageModel& model, const std::array<int, 3>& sides,
                   const VolumeGeometry& geometry);

}  // namespace radserve
