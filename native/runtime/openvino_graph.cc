/// Graphs as OpenVINO holds them, on the CPU.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "runtime/loaded_graph.h"
#include "runtime/openvino.h"
#include "runtime/ort.h"
#include "runtime/weights.h"

namespace radserve {
namespace {

using openvino::ElementType;
using openvino::kOk;
using openvino::Library;

constexpr std::array<std::pair<Dtype, ElementType>, 13> kElementTypes = {{
    {Dtype::kFloat32, ElementType::kFloat32},
    {Dtype::kFloat16, ElementType::kFloat16},
    {Dtype::kFloat64, ElementType::kFloat64},
    {Dtype::kUint8, ElementType::kUint8},
    {Dtype::kInt8, ElementType::kInt8},
    {Dtype::kUint16, ElementType::kUint16},
    {Dtype::kInt16, ElementType::kInt16},
    {Dtype::kInt32, ElementType::kInt32},
    {Dtype::kInt64, ElementType::kInt64},
    {Dtype::kUint32, ElementType::kUint32},
    {Dtype::kBool, ElementType::kBool},
    {Dtype::kUint64, ElementType::kUint64},
    {Dtype::kBfloat16, ElementType::kBfloat16},
}};

std::optional<ElementType> ElementTypeOf(Dtype dtype) {
  const auto* const found =
      std::ranges::find(kElementTypes, dtype, &std::pair<Dtype, ElementType>::first);
  return found == kElementTypes.end() ? std::nullopt : std::optional(found->second);
}

/// Frees what the library gave, with the function that it has for it.
template <typename T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

/// Bytes of this process in memory (proc(5), statm): the library does not say what it takes.
size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  size_t resident = 0;
  file >> pages >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

size_t Growth(size_t before) {
  const size_t now = ResidentBytes();
  return now - std::min(now, before);
}

/// Its words as a sentence. Of operators that it does not have, it tells where in its source that
/// was noticed, and where to read how to write them: here, their names.
std::string Sentence(std::string why) {
  constexpr std::string_view kUnknown = "No conversion rule found for operations: ";
  if (const size_t at = why.find(kUnknown); at != std::string::npos) {
    why = why.substr(at + kUnknown.size());
    why = "it has no operator " + why.substr(0, why.find(" To facilitate"));
  }
  const size_t last = why.find_last_not_of(" .");
  return why.substr(0, last == std::string::npos ? 0 : last + 1) + ".";
}

/// Always said: left alone, the library computes in bfloat16 on processors that are faster so.
const char* PrecisionHint(Precision precision) {
  return precision == Precision::kBfloat16 ? "bf16" : "f32";
}

/// One compiled graph and one request, so that it takes its memory once: runs wait for each other,
/// and each has all threads of the engine. The same number of threads adds in the same order, so
/// that equal inputs give equal bits.
class OpenVinoGraph final : public LoadedGraph {
 public:
  explicit OpenVinoGraph(const Library& library)
      : library_(library), compiled_(nullptr, library.ov_compiled_model_free) {}

  /// Throws EngineError with `code`, NoRoomToLoad.
  void Compile(std::string bytes, const SessionSettings& settings, const std::string& code) {
    const size_t before = ResidentBytes();
    openvino::Model* read = nullptr;
    if (library_.ov_core_read_model_from_memory_buffer(library_.core, bytes.data(), bytes.size(),
                                                       nullptr, &read) != kOk)
      Refuse(code, "read");
    const Owned<openvino::Model> model(read, library_.ov_model_free);
    bytes = std::string();
    CheckStop(settings.stop);
    const std::string threads = std::to_string(settings.threads);
    const char* const hint = PrecisionHint(settings.precision);
    openvino::CompiledModel* compiled = nullptr;
    constexpr size_t kWords = 8;
    if (library_.ov_core_compile_model(library_.core, model.get(), "CPU", kWords, &compiled,
                                       "INFERENCE_PRECISION_HINT", hint, "INFERENCE_NUM_THREADS",
                                       threads.c_str(), "NUM_STREAMS", "1",
                                       // Others have threads on these cores, too.
                                       "ENABLE_CPU_PINNING", "NO") != kOk)
      Refuse(code, "compile");
    compiled_.reset(compiled);
    CheckPrecision(hint, code);
    CheckNames(code);
    held_ = std::max(facts.weights, Growth(before));
  }

  std::vector<Tensor> Run(std::span<const Tensor> feeds, std::span<const std::string> outputs,
                          bool /*wide*/, const std::stop_token& stop,
                          std::atomic<size_t>& /*most*/) override {
    const Turn turn(*this, stop);
    std::vector<std::vector<int64_t>> shapes;
    for (const Tensor& feed : feeds) shapes.push_back(feed.shape);
    const bool seen = request_ != nullptr && shapes == shapes_;
    if (!seen) {
      MakeRequest();
      shapes_ = std::move(shapes);
    }
    try {
      for (const Tensor& feed : feeds) Give(feed);
      const size_t before = ResidentBytes();
      Infer(stop);
      if (!seen || !done_) kept_ = kept_ + Growth(before);
      done_ = true;
      std::vector<Tensor> results;
      for (const std::string& name : outputs) results.push_back(Take(name));
      return results;
    } catch (...) {
      // It may be in the middle of a run.
      request_ = nullptr;
      throw;
    }
  }

  std::vector<SessionMemory> Memory() const override { return {{true, held_ + kept_}}; }
  size_t Kept() const override { return kept_; }

  std::unique_ptr<Bucket> MakeBucket(int64_t, const std::vector<std::vector<int64_t>>&,
                                     std::span<const std::string>) override {
    throw EngineError("bad_request", "OpenVINO runs no batches here. Set batching.max to 1.");
  }

  std::shared_ptr<std::byte> MakeRows(size_t bytes) const override {
    const auto plain = std::make_shared_for_overwrite<std::byte[]>(bytes);
    return {plain, plain.get()};
  }

 private:
  /// While it lives, nobody else runs. Throws `cancelled`.
  class Turn {
   public:
    Turn(OpenVinoGraph& graph, const std::stop_token& stop) : graph_(graph) {
      std::unique_lock lock(graph.mutex_);
      if (!graph.free_.wait(lock, stop, [&graph] { return !graph.running_; })) CheckStop(stop);
      CheckStop(stop);
      graph.running_ = true;
    }
    ~Turn() {
      {
        const std::lock_guard lock(graph_.mutex_);
        graph_.running_ = false;
      }
      graph_.free_.notify_one();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    OpenVinoGraph& graph_;
  };

  [[noreturn]] void Refuse(const std::string& code, const std::string& what) const {
    const std::string why = library_.LastError();
    if (ClassifyFailure(why) == RuntimeFailure::kMemory)
      throw NoRoomToLoad(code, "The memory did not suffice to load the model: " + why);
    throw EngineError(code,
                      "OpenVINO cannot " + what + " the model: " + Sentence(why) +
                          " To run it on ONNX Runtime, set execution.providers to [\"cpu\"].");
  }

  [[noreturn]] void Fail() const {
    const std::string why = library_.LastError();
    if (ClassifyFailure(why) == RuntimeFailure::kMemory)
      throw OutOfMemory("The memory did not suffice to run the model: " + why);
    throw EngineError("output_invalid", "The model could not run: OpenVINO says: " + why);
  }

  void Check(openvino::Status status) const {
    if (status != kOk) Fail();
  }

  /// Nothing computes in another precision than what is asked for.
  void CheckPrecision(const std::string& asked, const std::string& code) const {
    char* value = nullptr;
    if (library_.ov_compiled_model_get_property(compiled_.get(), "INFERENCE_PRECISION_HINT",
                                                &value) != kOk)
      Refuse(code, "tell the precision of");
    const std::string found = value;
    library_.ov_free(value);
    if (found == asked) return;
    throw EngineError(code, "Expected OpenVINO to compute the model in " + asked + ", found " +
                                found +
                                " on this processor. Set execution.precision to one that "
                                "it has.");
  }

  void CheckNames(const std::string& code) const {
    const auto check = [&](const TensorInfo& info, auto find) {
      openvino::Port* port = nullptr;
      if (find(compiled_.get(), info.name.c_str(), &port) != kOk)
        Refuse(code, "find \"" + info.name + "\" of");
      library_.ov_output_const_port_free(port);
      if (!ElementTypeOf(info.dtype))
        throw EngineError(code, "OpenVINO takes no tensors of " +
                                    std::string(DtypeName(info.dtype)) + ", which \"" + info.name +
                                    "\" is. Set execution.providers to [\"cpu\"].");
    };
    for (const TensorInfo& info : facts.graph.inputs)
      check(info, library_.ov_compiled_model_input_by_name);
    for (const TensorInfo& info : facts.graph.outputs)
      check(info, library_.ov_compiled_model_output_by_name);
  }

  void MakeRequest() {
    openvino::InferRequest* request = nullptr;
    request_ = nullptr;
    done_ = false;
    Check(library_.ov_compiled_model_create_infer_request(compiled_.get(), &request));
    request_ = {request, library_.ov_infer_request_free};
  }

  /// The request reads the tensor where it lies.
  void Give(const Tensor& tensor) {
    const std::optional<ElementType> type = ElementTypeOf(tensor.dtype);
    if (!type)
      throw EngineError("bad_request", "OpenVINO takes no tensors of " +
                                           std::string(DtypeName(tensor.dtype)) + ".");
    std::vector<int64_t> sides = tensor.shape;
    sides.resize(std::max<size_t>(sides.size(), 1));
    const openvino::Shape shape{static_cast<int64_t>(tensor.shape.size()), sides.data()};
    openvino::Tensor* made = nullptr;
    Check(library_.ov_tensor_create_from_host_ptr(*type, shape, tensor.data, &made));
    const Owned<openvino::Tensor> given(made, library_.ov_tensor_free);
    Check(library_.ov_infer_request_set_tensor(request_.get(), tensor.name.c_str(), given.get()));
  }

  /// Throws `cancelled` once `stop` is requested: the library looks between nodes.
  void Infer(const std::stop_token& stop) {
    Check(library_.ov_infer_request_start_async(request_.get()));
    openvino::Status status = kOk;
    {
      // After the start: a request that does not run cannot be told to end.
      const std::stop_callback cancel(stop,
                                      [this] { library_.ov_infer_request_cancel(request_.get()); });
      status = library_.ov_infer_request_wait(request_.get());
    }
    CheckStop(stop);
    Check(status);
  }

  /// Copied: the next run writes where this one did.
  Tensor Take(const std::string& name) const {
    openvino::Tensor* found = nullptr;
    Check(library_.ov_infer_request_get_tensor(request_.get(), name.c_str(), &found));
    const Owned<openvino::Tensor> output(found, library_.ov_tensor_free);
    ElementType type{};
    openvino::Shape shape;
    void* data = nullptr;
    Check(library_.ov_tensor_get_element_type(output.get(), &type));
    const auto* const dtype =
        std::ranges::find(kElementTypes, type, &std::pair<Dtype, ElementType>::second);
    if (dtype == kElementTypes.end())
      throw EngineError("output_invalid",
                        "The output \"" + name + "\" is a tensor of a type that is not offered.");
    Check(library_.ov_tensor_get_shape(output.get(), &shape));
    std::vector<int64_t> sides(shape.sides, shape.sides + shape.rank);
    Check(library_.ov_shape_free(&shape));
    Check(library_.ov_tensor_data(output.get(), &data));
    Tensor tensor = MakeTensorForOverwrite(name, dtype->first, std::move(sides));
    if (tensor.Bytes() > 0) std::memcpy(tensor.data, data, tensor.Bytes());
    return tensor;
  }

  const Library& library_;
  Owned<openvino::CompiledModel> compiled_;
  std::mutex mutex_;
  std::condition_variable_any free_;
  /// Under the mutex. Whoever set it has the fields below.
  bool running_ = false;
  std::shared_ptr<openvino::InferRequest> request_;
  /// Those of the feeds that the request has seen, and whether one of its runs came to its end.
  std::vector<std::vector<int64_t>> shapes_;
  bool done_ = false;
  /// Bytes by which the process grew while it was loaded, at least its weights; and in the first
  /// run of each shape. What else took memory meanwhile is in it.
  std::atomic<size_t> held_ = 0;
  std::atomic<size_t> kept_ = 0;
};

}  // namespace

std::shared_ptr<LoadedGraph> LoadOpenVinoGraph(const GraphOrder& order) {
  const auto& [path, settings, code, known, hashes, own] = order;
  const Library& library = openvino::Get();
  auto loaded = std::make_shared<OpenVinoGraph>(library);
  if (known != nullptr) {
    loaded->facts = *known;
  } else {
    const WeightCount weights = CountWeights(path);
    loaded->facts.weights = weights.bytes;
    loaded->facts.float16 = weights.float16 > 0;
    loaded->facts.graph = DescribeGraph(path, code, settings.every_type);
  }
  GraphSource source(path, code, settings.stop, hashes, known == nullptr);
  loaded->Compile(source.Whole(code), settings, code);
  return loaded;
}

}  // namespace radserve
