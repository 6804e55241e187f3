#pragma once

#include "postprocess/activation.h"
#include "postprocess/maps.h"
#include "postprocess/postprocess.h"

namespace radserve {

/// Activates a map of one channel. Throws output_invalid for what is not finite.
inline void ActivateMap(const OutputSpec& spec, const Tensor& tensor, Maps& map) {
  if (spec.activation == Activation::kSigmoid) map.Activate(spec.activation);
  CheckFinite(map.values(), tensor.name);
}

}  // namespace radserve
