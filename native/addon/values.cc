#include "addon/values.h"

#include <cstring>

#include "addon/environment.h"
#include "base/error.h"

namespace radserve {
namespace {

/// Copying so much costs less than sharing it.
constexpr size_t kCopied = 4096;

Tensor Copied(const Tensor& tensor) {
  Tensor copy = MakeTensorForOverwrite(tensor.name, tensor.dtype, tensor.shape);
  std::memcpy(copy.data, tensor.data, tensor.Bytes());
  return copy;
}

Dtype ReadDtype(const Given& object) {
  const auto dtype = DtypeFromName(object.Text("dtype"));
  if (!dtype || !IsNumber(*dtype)) Unexpected("dtype");
  return *dtype;
}

/// Lets no exception but Napi::Error reach Node.
Napi::Value Guarded(const Export& called, const Napi::CallbackInfo& info) {
  try {
    return called.call(info);
  } catch (const EngineError& e) {
    throw MakeError(info.Env(), Failure::Of(e));
  } catch (const Napi::Error&) {
    throw;
  } catch (const std::exception& e) {
    throw MakeError(info.Env(), {"internal", e.what()});
  }
}

}  // namespace

std::span<uint8_t> Bytes(const Napi::Value& value, const char* name) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_uint8_array)
    Unexpected(name);
  auto array = value.As<Napi::Uint8Array>();
  return {array.Data(), array.ByteLength()};
}

std::shared_ptr<Napi::ObjectReference> Hold(const Napi::Value& array) {
  return std::make_shared<Napi::ObjectReference>(Napi::Persistent(array.As<Napi::Object>()));
}

std::span<uint8_t> Given::Bytes(const char* field) const {
  return radserve::Bytes(At(field), field);
}

size_t Whole(const Napi::Value& value, int64_t least, const char* name) {
  if (!value.IsNumber() || value.As<Napi::Number>().Int64Value() < least) Unexpected(name);
  return static_cast<size_t>(value.As<Napi::Number>().Int64Value());
}

SessionSettings ReadSessionSettings(const Given& o) {
  SessionSettings settings;
  settings.provider = o.OneOf<Provider>(
      "provider",
      {{"cpu", Provider::kCpu}, {"cuda", Provider::kCuda}, {"openvino", Provider::kOpenVino}});
  settings.precision = o.OneOf<Precision>("precision", {{"float32", Precision::kFloat32},
                                                        {"tf32", Precision::kTf32},
                                                        {"float16", Precision::kFloat16},
                                                        {"bfloat16", Precision::kBfloat16}});
  settings.device_memory = static_cast<size_t>(o.Number("gpuMemory"));
  o.List("hashes", [&](const Given& file) {
    return settings.hashes.insert_or_assign(file.Text("path"), file.Text("sha256")).second;
  });
  return settings;
}

Tensor ReadTensor(const Given& o) {
  Tensor tensor{o.Text("name"), ReadDtype(o), {}, nullptr, nullptr};
  tensor.shape = o.List(
      "shape", [](const Given& side) { return static_cast<int64_t>(side.Get<double>("shape")); });
  const auto data = o.At("data");
  if (!data.IsTypedArray()) Unexpected("data");
  const auto bytes = data.As<Napi::Uint8Array>();
  if (bytes.ByteLength() != tensor.Bytes()) Unexpected("data");
  tensor.data = reinterpret_cast<std::byte*>(const_cast<uint8_t*>(bytes.Data()));
  if (reinterpret_cast<uintptr_t>(tensor.data) % DtypeSize(tensor.dtype) != 0)
    return Copied(tensor);
  return tensor;
}

Tensor ReadOwnTensor(const Given& value) { return Copied(ReadTensor(value)); }

Napi::ArrayBuffer Wrap(Napi::Env env, std::shared_ptr<void> owner, void* data, size_t bytes) {
  if (bytes <= kCopied) {
    Napi::ArrayBuffer copy = Napi::ArrayBuffer::New(env, bytes);
    if (bytes > 0) std::memcpy(copy.Data(), data, bytes);
    return copy;
  }
  auto share = std::make_unique<std::shared_ptr<void>>(std::move(owner));
  const auto release = [](Napi::Env, void*, std::shared_ptr<void>* share) {
    const std::unique_ptr<std::shared_ptr<void>> dropped(share);
  };
  Napi::ArrayBuffer buffer = Napi::ArrayBuffer::New(env, data, bytes, release, share.get());
  static_cast<void>(share.release());
  return buffer;
}

Napi::Uint8Array WriteBytes(Napi::Env env, const Tensor& tensor) {
  const size_t bytes = tensor.Bytes();
  return Napi::Uint8Array::New(env, bytes, Wrap(env, tensor.owner, tensor.data, bytes), 0);
}

Napi::Object WriteTensor(Napi::Env env, const Tensor& tensor) {
  return WriteFields(env, "name", tensor.name, "dtype", std::string(DtypeName(tensor.dtype)),
                     "shape", WriteNumbers(env, tensor.shape), "data", WriteBytes(env, tensor));
}

Napi::Array WriteTensors(Napi::Env env, const std::vector<Tensor>& tensors) {
  return WriteList(env, tensors, [&](const Tensor& t) { return WriteTensor(env, t); });
}

Napi::Object WriteGraph(Napi::Env env, const GraphInfo& graph) {
  const auto text = [&](const std::string& name) { return Napi::String::New(env, name); };
  const auto info = [&](const TensorInfo& t) {
    return WriteFields(env, "name", t.name, "dtype", std::string(DtypeName(t.dtype)), "shape",
                       WriteNumbers(env, t.shape), "names", WriteList(env, t.names, text));
  };
  return WriteFields(env, "inputs", WriteList(env, graph.inputs, info), "outputs",
                     WriteList(env, graph.outputs, info));
}

Napi::Array WriteSessions(Napi::Env env, const std::vector<SessionMemory>& sessions) {
  return WriteList(env, sessions, [&](const SessionMemory& session) {
    return WriteFields(env, "spread", session.wide, "bytes", session.bytes);
  });
}

Napi::Object InitAddon(Napi::Env env, Napi::Object exports,
                       std::span<const std::span<const Export>> all) {
  env.SetInstanceData(std::make_unique<Environment>(env).release());
  for (const std::span<const Export>& functions : all) {
    for (const Export& each : functions) {
      const auto call = [&each](const Napi::CallbackInfo& info) { return Guarded(each, info); };
      exports.Set(each.name, Napi::Function::New(env, call, each.name));
    }
  }
  return exports;
}

}  // namespace radserve
