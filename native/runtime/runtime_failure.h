#ifndef RADSERVE_RUNTIME_FAILURE_H_
#define RADSERVE_RUNTIME_FAILURE_H_

#include <string_view>

namespace radserve {

enum class RuntimeFailure {
  /// This run failed; others may succeed.
  kRun,
  /// The device (or the memory limit set for it) had too little memory: a smaller batch may succeed.
  kMemory,
  /// The CUDA context is broken: every later call of this process fails.
  kDeviceLost,
};

/// What a message of ONNX Runtime means. The runtime has one code for all of these, so the text decides: its
/// own words for the arena, and "CUDA failure NUMBER" with the numbers of cudaError_t.
RuntimeFailure ClassifyFailure(std::string_view message);

}  // namespace radserve

#endif  // RADSERVE_RUNTIME_FAILURE_H_
