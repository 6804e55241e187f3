#include "runtime/ort.h"

#include <unistd.h>

#include <iostream>
#include <memory>
#include <utility>

#include "base/error.h"
#include "runtime/runtime_failure.h"

namespace radserve {
namespace {

/// EX_SOFTWARE of sysexits.h, an internal software error. The supervisor restarts after any status but 0.
constexpr int kDeviceLostStatus = 70;

}  // namespace

std::optional<Dtype> FromOrt(ONNXTensorElementDataType type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
      return Dtype::kFloat32;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
      return Dtype::kFloat16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE:
      return Dtype::kFloat64;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8:
      return Dtype::kUint8;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8:
      return Dtype::kInt8;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16:
      return Dtype::kUint16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16:
      return Dtype::kInt16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32:
      return Dtype::kInt32;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64:
      return Dtype::kInt64;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32:
      return Dtype::kUint32;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL:
      return Dtype::kBool;
    default:
      return std::nullopt;
  }
}

ONNXTensorElementDataType ToOrt(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
    case Dtype::kFloat16:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
    case Dtype::kFloat64:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE;
    case Dtype::kUint8:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
    case Dtype::kInt8:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
    case Dtype::kUint16:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16;
    case Dtype::kInt16:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16;
    case Dtype::kInt32:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
    case Dtype::kInt64:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
    case Dtype::kUint32:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32;
    case Dtype::kBool:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL;
  }
  return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

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

void ThrowRunFailure(const Ort::Exception& e) {
  const std::string what = e.what();
  switch (ClassifyFailure(what)) {
    case RuntimeFailure::kDeviceLost:
      std::cerr << "radserve: the GPU is lost for this process, which ends so that a fresh one can go on: "
                << what << std::endl;
      // No destructors: they would call into the broken device.
      _exit(kDeviceLostStatus);
    case RuntimeFailure::kMemory:
      throw OutOfMemory("The memory did not suffice to run the model: " + what);
    case RuntimeFailure::kRun:
      break;
  }
  throw EngineError("internal", "The model could not run: " + what);
}

}  // namespace radserve
