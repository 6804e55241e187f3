#pragma once

#include <onnxruntime_cxx_api.h>

#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "runtime/run_memory.h"

/// The part of ONNX Runtime that session.cc and bucket.cc share; nothing else includes its header.
namespace radserve {

const Ort::Env& Env();

std::optional<Dtype> FromOrt(ONNXTensorElementDataType type);
ONNXTensorElementDataType ToOrt(Dtype dtype);

/// An output of the runtime as a tensor that owns it; text is copied. Throws output_invalid if it
/// is no tensor, or one of a type that is no Dtype.
Tensor FromValue(std::string name, Ort::Value value);

/// A value over memory that somebody else owns and keeps; text is copied.
Ort::Value OverMemory(const Ort::MemoryInfo& where, const Tensor& tensor);

/// Sessions of the CPU with these options compute InstanceNormalization, which has to be of
/// float32, with sums in float64 as PyTorch does, on all of their threads, with the same bits
/// however many. The runtime sums a channel in float32, which is off by 0.0002 of a standard
/// deviation over 128 cubed values, on one thread.
void AddInstanceNorm(Ort::SessionOptions& options);

/// While it lives, `stop` ends what makes a session with these options, as soon as the runtime
/// looks: it throws then.
class LoadEnd {
 public:
  LoadEnd(Ort::SessionOptions& options, const std::stop_token& stop)
      : on_stop_(stop, [&options] { options.SetLoadCancellationFlag(true); }) {}

 private:
  std::stop_callback<std::function<void()>> on_stop_;
};

enum class RuntimeFailure {
  /// This run failed; others may succeed.
  kRun,
  /// The device (or the memory limit set for it) had too little memory: a smaller batch may
  /// succeed.
  kMemory,
  /// The CUDA context is broken: every later call of this process fails.
  kDeviceLost,
};

/// The meaning of a message of ONNX Runtime. The runtime has one code for all of these, so the text
/// decides: its own words for the arena, and "CUDA failure NUMBER" with the numbers of cudaError_t.
RuntimeFailure ClassifyFailure(std::string_view message);

/// A message of ONNX Runtime without the places in its source, and without the path of a
/// NamelessFile: neither helps who made the model.
std::string HelpfulText(std::string_view message);

/// The number that ThrowRunFailure takes for what ran on the CPU.
constexpr int kNoGpu = -1;

/// Where a session runs: the number of the GPU or kNoGpu, and what keeps the memory of its runs, if
/// that is not the calling thread.
struct RunPlace {
  int gpu = kNoGpu;
  RunCache* cache = nullptr;
};

/// Turns the failure of a run on that GPU, the calling thread's last, into an EngineError:
/// OutOfMemory if that was it. If the GPU itself is lost for this process, see LoseGpu; where it
/// returns, the error is model_unavailable.
[[noreturn]] void ThrowRunFailure(const Ort::Exception& e, int gpu);
/// Throws model_unavailable if that GPU is lost.
void CheckGpu(int gpu);

/// Runs a session on the calling thread. Feeds are not copied; outputs own the runtime's memory.
/// Throws what ThrowRunFailure does.
std::vector<Tensor> RunOnce(Ort::Session& session, const Ort::RunOptions& run,
                            std::span<const Tensor> feeds, std::span<const std::string> outputs,
                            const RunPlace& place);

}  // namespace radserve
