#include "runtime/ort.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/error.h"
#include "runtime/gpu.h"
#include "runtime/runtime_failure.h"

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

}  // namespace

std::optional<Dtype> FromOrt(ONNXTensorElementDataType type) {
  const auto found = std::find(kTypes.begin(), kTypes.end(), type);
  return found == kTypes.end() ? std::nullopt : std::optional(static_cast<Dtype>(found - kTypes.begin()));
}

ONNXTensorElementDataType ToOrt(Dtype dtype) { return kTypes[static_cast<size_t>(dtype)]; }

Tensor FromValue(std::string name, Ort::Value value) {
  const auto info = value.GetTensorTypeAndShapeInfo();
  const auto dtype = FromOrt(info.GetElementType());
  if (!dtype) throw EngineError("output_invalid", "The output \"" + name + "\" is no tensor of numbers.");
  auto owner = std::make_shared<Ort::Value>(std::move(value));
  auto* data = static_cast<std::byte*>(owner->GetTensorMutableRawData());
  return Tensor{std::move(name), *dtype, info.GetShape(), std::move(owner), data};
}

Ort::Value OverMemory(const Ort::MemoryInfo& where, const Tensor& tensor) {
  return Ort::Value::CreateTensor(where, tensor.data, tensor.Bytes(), tensor.shape.data(),
                                  tensor.shape.size(), ToOrt(tensor.dtype));
}

void CheckGpu(int gpu) {
  if (gpu == kNoGpu || !GpuLost(gpu)) return;
  throw EngineError("model_unavailable",
                    "GPU " + std::to_string(gpu) + " was lost; restart the server to use it again.");
}

void ThrowRunFailure(const Ort::Exception& e, int gpu) {
  const std::string what = e.what();
  switch (ClassifyFailure(what)) {
    case RuntimeFailure::kDeviceLost:
      LoseGpu(gpu, what);
      break;
    case RuntimeFailure::kMemory:
      throw OutOfMemory("The memory did not suffice to run the model: " + what);
    case RuntimeFailure::kRun:
      break;
  }
  CheckGpu(gpu);
  throw EngineError("internal", "The model could not run: " + what);
}

}  // namespace radserve
