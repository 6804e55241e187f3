#include "runtime/ort.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <utility>

#include "base/error.h"
#include "runtime/cuda.h"
#include "runtime/run_memory.h"

namespace radserve {
namespace {

/// In the order of Dtype.
constexpr std::array<ONNXTensorElementDataType, 11> kTypes = {
    ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,   ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL};
static_assert(kTypes[static_cast<size_t>(Dtype::kBool)] == ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL);

/// cudaError_t after which a context answers every call with the same error, and devices that are
/// gone.
constexpr std::array kLost = {46,    // devices unavailable
                              214,   // uncorrectable ECC error
                              220,   // uncorrectable NVLink error
                              700,   // illegal address
                              702,   // launch timeout
                              709,   // context is destroyed
                              710,   // assert
                              714,   // hardware stack error
                              715,   // illegal instruction
                              716,   // misaligned address
                              717,   // invalid address space
                              718,   // invalid program counter
                              719,   // launch failure
                              721,   // tensor memory leak
                              999};  // unknown
constexpr int kCudaOutOfMemory = 2;

/// The runtime's arena, and the status names of cuDNN and cuBLAS.
constexpr std::array<std::string_view, 6> kMemoryWords = {
    "Failed to allocate memory for requested buffer",
    "is smaller than requested bytes of",
    "out of memory",
    "ALLOC_FAILED",
    "ALLOCATION_FAILED",
    "bad_alloc"};

/// How the runtime begins to say that a node of the graph failed.
constexpr std::string_view kNodeFailed = "Non-zero status code returned while running";

/// The number in "CUDA failure 700: ...", or 0 if there is no number.
int CudaNumber(std::string_view message) {
  constexpr std::string_view kWords = "CUDA failure ";
  const size_t at = message.find(kWords);
  if (at == std::string_view::npos) return 0;
  const std::string_view rest = message.substr(at + kWords.size());
  int number = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), number);
  return number;
}

std::string Mebibytes(size_t bytes) {
  return std::to_string((bytes + (size_t{1} << 20) - 1) >> 20) + " MiB";
}

/// Throws OutOfMemory for a run of the CPU that was refused that, or was refused something that
/// nobody counts.
[[noreturn]] void ThrowRefused(const std::optional<RunRefusal>& refused) {
  const size_t limit = RunMemoryLimit();
  const std::string given = limit == 0 ? std::string("the machine has not as much left")
                                       : "all runs together may have " + Mebibytes(limit) + " here";
  const std::string needs =
      refused ? "its network needs " + Mebibytes(refused->bytes) + " or more at once, and " + given
              : "its network asked for more than there is";
  if (refused && !refused->alone)
    throw OutOfMemory("The model had no memory for this image: " + needs +
                          ", of which other images have some now. Send the request again.",
                      refused->bytes);
  throw MemoryExceeded("The model cannot have the memory for this image: " + needs +
                       ". Send a smaller image, give the server more memory, or correct the "
                       "network.");
}

}  // namespace

std::optional<Dtype> FromOrt(ONNXTensorElementDataType type) {
  const auto found = std::find(kTypes.begin(), kTypes.end(), type);
  return found == kTypes.end() ? std::nullopt
                               : std::optional(static_cast<Dtype>(found - kTypes.begin()));
}

ONNXTensorElementDataType ToOrt(Dtype dtype) { return kTypes[static_cast<size_t>(dtype)]; }

Tensor FromValue(std::string name, Ort::Value value) {
  const auto info = value.GetTensorTypeAndShapeInfo();
  const auto dtype = FromOrt(info.GetElementType());
  if (!dtype)
    throw EngineError("output_invalid", "The output \"" + name + "\" is not a numeric tensor.");
  auto owner = std::make_shared<Ort::Value>(std::move(value));
  auto* data = static_cast<std::byte*>(owner->GetTensorMutableRawData());
  return Tensor{std::move(name), *dtype, info.GetShape(), std::move(owner), data};
}

Ort::Value OverMemory(const Ort::MemoryInfo& where, const Tensor& tensor) {
  return Ort::Value::CreateTensor(where, tensor.data, tensor.Bytes(), tensor.shape.data(),
                                  tensor.shape.size(), ToOrt(tensor.dtype));
}

RuntimeFailure ClassifyFailure(std::string_view message) {
  const int number = CudaNumber(message);
  if (std::find(kLost.begin(), kLost.end(), number) != kLost.end())
    return RuntimeFailure::kDeviceLost;
  const auto in_message = [&](std::string_view words) {
    return message.find(words) != std::string_view::npos;
  };
  const bool memory = number == kCudaOutOfMemory ||
                      std::any_of(kMemoryWords.begin(), kMemoryWords.end(), in_message);
  return memory ? RuntimeFailure::kMemory : RuntimeFailure::kRun;
}

void CheckGpu(int gpu) {
  if (gpu == kNoGpu || !GpuLost(gpu)) return;
  throw EngineError("model_unavailable", "GPU " + std::to_string(gpu) +
                                             " was lost; restart the server to use it again.");
}

void ThrowRunFailure(const Ort::Exception& e, int gpu) {
  const std::string what = e.what();
  switch (ClassifyFailure(what)) {
    case RuntimeFailure::kDeviceLost:
      LoseGpu(gpu, what);
      break;
    case RuntimeFailure::kMemory:
      if (gpu != kNoGpu)
        throw OutOfMemory("The memory did not suffice to run the model: " + what, 0);
      ThrowRefused(RefusedInLastRun());
    case RuntimeFailure::kRun:
      break;
  }
  CheckGpu(gpu);
  // On a CPU a node fails for the same input each time; a GPU may have its own reasons
  const bool of_input = gpu == kNoGpu && what.find(kNodeFailed) != std::string::npos;
  throw EngineError(of_input ? "output_invalid" : "internal", "The model could not run: " + what);
}

std::vector<Tensor> RunOnce(Ort::Session& session, const Ort::RunOptions& run,
                            std::span<const Tensor> feeds, std::span<const std::string> outputs,
                            const RunPlace& place) {
  try {
    CheckGpu(place.gpu);
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    std::vector<const char*> input_names;
    std::vector<const char*> output_names;
    std::vector<Ort::Value> inputs;
    for (const Tensor& feed : feeds) {
      input_names.push_back(feed.name.c_str());
      inputs.push_back(OverMemory(memory, feed));
    }
    for (const std::string& name : outputs) output_names.push_back(name.c_str());
    const RunScope scope(place.cache);
    std::vector<Ort::Value> values =
        session.Run(run, input_names.data(), inputs.data(), inputs.size(), output_names.data(),
                    output_names.size());
    std::vector<Tensor> results;
    for (size_t i = 0; i < values.size(); ++i)
      results.push_back(FromValue(outputs[i], std::move(values[i])));
    return results;
  } catch (const Ort::Exception& e) {
    ThrowRunFailure(e, place.gpu);
  }
}

}  // namespace radserve
