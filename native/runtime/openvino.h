#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

/// OpenVINO's library for C (docs.openvino.ai, OpenVINO Runtime C API), which nothing is linked
/// with: `npm run setup:openvino` puts it into the folder `openvino` beside the addon, and it is
/// opened when a model first asks for it.
namespace radserve::openvino {

/// Why it cannot be used here, in the words of the dynamic linker or of the library; "" if it can.
/// The process tries once. Any thread.
std::string Problem();
/// "2026.4.1-..."; "" where Problem says why.
std::string Version();

// Its types, of which only the library knows more.
struct Core;
struct Model;
struct CompiledModel;
struct InferRequest;
struct Tensor;
struct Port;

/// ov_status_e; what it is beside kOk the library says in words.
using Status = int;
inline constexpr Status kOk = 0;

/// ov_element_type_e, of which these are taken.
enum class ElementType : unsigned {
  kBool = 1,
  kBfloat16 = 2,
  kFloat16 = 3,
  kFloat32 = 4,
  kFloat64 = 5,
  kInt8 = 7,
  kInt16 = 8,
  kInt32 = 9,
  kInt64 = 10,
  kUint8 = 16,
  kUint16 = 17,
  kUint32 = 18,
  kUint64 = 19
};

/// ov_shape_t, by value.
struct Shape {
  int64_t rank = 0;
  int64_t* sides = nullptr;
};

/// The functions that are used, by their names in the library.
struct Library {
  Status (*ov_core_read_model_from_memory_buffer)(const Core*, const char* bytes, size_t length,
                                                  const Tensor* weights, Model**) = nullptr;
  void (*ov_model_free)(Model*) = nullptr;
  /// `words` are the names of properties, each before its value.
  Status (*ov_core_compile_model)(const Core*, const Model*, const char* device, size_t words,
                                  CompiledModel**, ...) = nullptr;
  Status (*ov_compiled_model_get_property)(const CompiledModel*, const char* name,
                                           char** value) = nullptr;
  Status (*ov_compiled_model_input_by_name)(const CompiledModel*, const char* name,
                                            Port**) = nullptr;
  Status (*ov_compiled_model_output_by_name)(const CompiledModel*, const char* name,
                                             Port**) = nullptr;
  void (*ov_output_const_port_free)(Port*) = nullptr;
  Status (*ov_compiled_model_create_infer_request)(const CompiledModel*, InferRequest**) = nullptr;
  void (*ov_compiled_model_free)(CompiledModel*) = nullptr;
  Status (*ov_infer_request_set_tensor)(InferRequest*, const char* name, const Tensor*) = nullptr;
  Status (*ov_infer_request_get_tensor)(const InferRequest*, const char* name, Tensor**) = nullptr;
  Status (*ov_infer_request_start_async)(InferRequest*) = nullptr;
  Status (*ov_infer_request_wait)(InferRequest*) = nullptr;
  Status (*ov_infer_request_cancel)(InferRequest*) = nullptr;
  void (*ov_infer_request_free)(InferRequest*) = nullptr;
  Status (*ov_tensor_create_from_host_ptr)(ElementType, Shape, void* memory, Tensor**) = nullptr;
  Status (*ov_tensor_get_shape)(const Tensor*, Shape*) = nullptr;
  Status (*ov_shape_free)(Shape*) = nullptr;
  Status (*ov_tensor_get_element_type)(const Tensor*, ElementType*) = nullptr;
  Status (*ov_tensor_data)(const Tensor*, void**) = nullptr;
  void (*ov_tensor_free)(Tensor*) = nullptr;
  const char* (*ov_get_last_err_msg)() = nullptr;
  void (*ov_free)(const char*) = nullptr;

  /// The one of the process. It is never freed: its end would race with the end of the process.
  const Core* core = nullptr;

  /// What failed last, in the library's words, on one line.
  std::string LastError() const;
};

/// Throws EngineError model_unavailable, with what to do, where Problem says why.
const Library& Get();

}  // namespace radserve::openvino
