#ifndef RADSERVE_VOLUME_POSTPROCESS_H_
#define RADSERVE_VOLUME_POSTPROCESS_H_

#include <cstdint>
#include <span>
#include <stop_token>

#include "postprocess/postprocess.h"
#include "prepare/volume.h"

namespace radserve {

/// Raw tensors of one volume to one output, by the rules of Postprocess: scores and regressions as there;
/// segmentations go back to the slices as given, by the placement that PrepareVolume made. Maps are read one
/// slice of the source at a time, so that only a few planes of each channel are in memory beside the tensor
/// and the mask. Throws output_invalid for shapes that do not fit the manifest and for values that are no
/// finite numbers, `cancelled` once `stop` is requested, model_unavailable for kinds that have no volumes.
OutputResult PostprocessVolume(const OutputSpec& spec, const TensorByName& tensors,
                               const PreparedVolume& volume, bool channels_last,
                               std::span<const double> thresholds, const std::stop_token& stop);

}  // namespace radserve

#endif  // RADSERVE_VOLUME_POSTPROCESS_H_
