#include "runtime/shared_graph.h"

#include <malloc.h>

#include <algorithm>
#include <new>
#include <stdexcept>

#include "runtime/nameless_file.h"
#include "runtime/weights.h"

namespace radserve {
namespace {

/// Smaller ones are not worth an entry.
constexpr size_t kLeastBytes = 4096;
/// Alignment of a cache line, and of what the runtime's own allocator gives its kernels.
constexpr size_t kAlignment = 64;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

SharedWeights::SharedWeights(onnx_file::Bytes model) {
  const std::vector<RawInitializer> initializers = RawInitializers(model, kLeastBytes);
  for (const RawInitializer& each : initializers) bytes_ += Aligned(each.content.size());
  if (bytes_ == 0) return;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes_)));
  if (memory_ == nullptr) throw std::bad_alloc();
  const Ort::MemoryInfo where = Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
  std::byte* next = memory_.get();
  for (const RawInitializer& each : initializers) {
    std::ranges::copy(each.content, next);
    // TensorProto.DataType has the numbers of ONNXTensorElementDataType.
    values_.emplace_back(
        each.name, Ort::Value::CreateTensor(where, next, each.content.size(), each.shape.data(),
                                            each.shape.size(),
                                            static_cast<ONNXTensorElementDataType>(each.type)));
    next += Aligned(each.content.size());
  }
}

Ort::Session SharedWeights::Open(onnx_file::Bytes model, Ort::SessionOptions& options,
                                 const std::stop_token& stop) {
  const LoadEnd end(options, stop);
  for (const auto& [name, value] : values_) options.AddInitializer(name.c_str(), value);
  return {Env(), model.data(), model.size(), options, prepacked_};
}

OptimisedModel::OptimisedModel(GraphSource& source, Ort::SessionOptions& options,
                               const std::function<void(const Ort::Session&)>& look) {
  const NamelessFile file;
  options.SetOptimizedModelFilePath(file.path().c_str());
  look(source.Open(options));
  // Its memory comes in pieces that the C library would keep, beside what the next sessions take.
  malloc_trim(0);
  file_.emplace(file.path());
  const auto locations = ExternalLocations(bytes());
  if (!locations || !locations->empty())
    throw std::runtime_error("the optimised model is not whole");
}

}  // namespace radserve
