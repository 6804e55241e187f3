#ifndef RADSERVE_CUDA_OPTIONS_H_
#define RADSERVE_CUDA_OPTIONS_H_

#include <string>
#include <unordered_map>

#include "runtime/session.h"

namespace radserve {

/// What the CUDA execution provider is told, by its own names (onnxruntime.ai, CUDA execution provider,
/// configuration options). Without graphs the limit of its memory is the arena's, which all such sessions of a GPU share.
std::unordered_map<std::string, std::string> CudaOptions(const SessionSettings& settings, bool graphs);

}  // namespace radserve

#endif  // RADSERVE_CUDA_OPTIONS_H_
