#pragma once

#include <cstdint>
#include <span>
#include <stop_token>

#include "base/description.h"
#include "base/tensor.h"
#include "prepare/volume_geometry.h"

namespace radserve {

struct InputSpec;

/// How many channels `cascade` of an input adds: one for each label of the other model.
int LabelChannelsOf(const Description& input);

/// The label of a voxel that is outside the body, which competes as a label of its own.
inline constexpr uint8_t kOutside = 255;

/// Fills the label channels of a prepared tensor with what another model marked on the source's
/// grid (slices, rows, columns; 0 is background). It goes to the model's grid as nnU-Net 2.8 takes
/// the segmentation of the stage before (batchgenerators' resize_segmentation of order 1): each
/// label's indicator is resampled linearly, in double precision, and the highest wins; of several
/// that are as high the one that is nearest, if it is among them, else the least. Throws
/// `cancelled` once `stop` is requested.
void FillLabelChannels(std::span<const uint8_t> labels, const VolumePlacement& placement,
                       const InputSpec& spec, const std::stop_token& stop, Tensor& tensor);

}  // namespace radserve
