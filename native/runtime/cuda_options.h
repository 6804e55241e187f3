#ifndef RADSERVE_CUDA_OPTIONS_H_
#define RADSERVE_CUDA_OPTIONS_H_

#include <cstddef>
#include <string>
#include <unordered_map>

#include "runtime/session.h"

namespace radserve {

/// What the CUDA execution provider is told, by its own names (onnxruntime.ai, CUDA execution provider,
/// configuration options). `weights` is what the graph's weights take, in bytes.
std::unordered_map<std::string, std::string> CudaOptions(const SessionSettings& settings, size_t weights);

}  // namespace radserve

#endif  // RADSERVE_CUDA_OPTIONS_H_
