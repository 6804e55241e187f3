#include "session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "error.h"
#include "ort.h"
#include "session_state.h"

namespace radserve {
namespace {

std::unique_ptr<Ort::Env>& EnvHolder() {
  // Leaked on purpose: see StartRuntime.
  static auto& holder = *std::make_unique<std::unique_ptr<Ort::Env>>().release();
  return holder;
}

TensorInfo Describe(const std::string& name, const Ort::TypeInfo& type, const std::string& code) {
  const bool tensor = type.GetONNXType() == ONNX_TYPE_TENSOR;
  const auto dtype =
      tensor ? FromOrt(type.GetTensorTypeAndShapeInfo().GetElementType()) : std::optional<Dtype>();
  if (!dtype) {
    throw EngineError(code,
                      "The graph's \"" + name +
                          "\" is no tensor of numbers; expected float32, float16, float64, an integer type "
                          "or bool.");
  }
  const auto info = type.GetTensorTypeAndShapeInfo();
  TensorInfo out{name, *dtype, info.GetShape(), {}};
  for (const char* symbol : info.GetSymbolicDimensions())
    out.names.emplace_back(symbol == nullptr ? "" : symbol);
  for (int64_t& side : out.shape) side = std::max<int64_t>(side, -1);
  return out;
}

GraphInfo Describe(const Ort::Session& session, const std::string& code) {
  const Ort::AllocatorWithDefaultOptions allocator;
  GraphInfo graph;
  for (size_t i = 0; i < session.GetInputCount(); ++i) {
    const std::string name = session.GetInputNameAllocated(i, allocator).get();
    graph.inputs.push_back(Describe(name, session.GetInputTypeInfo(i), code));
  }
  for (size_t i = 0; i < session.GetOutputCount(); ++i) {
    const std::string name = session.GetOutputNameAllocated(i, allocator).get();
    graph.outputs.push_back(Describe(name, session.GetOutputTypeInfo(i), code));
  }
  return graph;
}

void AppendCuda(Ort::SessionOptions& options) {
  Ort::CUDAProviderOptions cuda;
  // TF32 would round inputs to 10 bits of mantissa without saying so.
  cuda.Update({{"cudnn_conv_algo_search", "HEURISTIC"},
               {"do_copy_in_default_stream", "1"},
               {"arena_extend_strategy", "kSameAsRequested"},
               {"use_tf32", "0"}});
  options.AppendExecutionProvider_CUDA_V2(*cuda);
}

enum class Width { kWide, kNarrow, kInspect };

Ort::SessionOptions Options(Provider provider, Width width) {
  Ort::SessionOptions options;
  options.SetExecutionMode(ORT_SEQUENTIAL);
  options.SetInterOpNumThreads(1);
  options.SetGraphOptimizationLevel(width == Width::kInspect ? ORT_DISABLE_ALL : ORT_ENABLE_ALL);
  options.AddConfigEntry("session.intra_op.allow_spinning", "0");
  if (width == Width::kWide && provider == Provider::kCpu) {
    options.DisablePerSessionThreads();
  } else {
    options.SetIntraOpNumThreads(1);
  }
  if (provider == Provider::kCuda) {
    options.AddConfigEntry("session.disable_cpu_ep_fallback", "1");
    AppendCuda(options);
  }
  return options;
}

bool HasDynamicShapes(const GraphInfo& graph) {
  return std::any_of(graph.inputs.begin(), graph.inputs.end(), [](const TensorInfo& input) {
    // The batch varies on purpose and is planned for; other sides make memory patterns useless.
    return std::find(input.shape.begin() + (input.shape.empty() ? 0 : 1), input.shape.end(), -1) !=
           input.shape.end();
  });
}

}  // namespace

const Ort::Env& Env() {
  if (!EnvHolder()) throw EngineError("internal", "The engine was used before it was started.");
  return *EnvHolder();
}

void StartRuntime(int threads) {
  if (EnvHolder()) return;
  Ort::ThreadingOptions threading;
  threading.SetGlobalIntraOpNumThreads(threads);
  threading.SetGlobalInterOpNumThreads(1);
  threading.SetGlobalSpinControl(0);
  EnvHolder() = std::make_unique<Ort::Env>(threading, ORT_LOGGING_LEVEL_FATAL, "radserve");
}

std::string RuntimeVersion() { return Ort::GetVersionString(); }

std::vector<std::string> AvailableProviders() { return Ort::GetAvailableProviders(); }

std::string CudaProblem() {
  try {
    Ort::SessionOptions options;
    AppendCuda(options);
    return "";
  } catch (const Ort::Exception& e) {
    return e.what();
  }
}

Session::Session(const std::string& path, Provider provider, int threads, const std::string& code)
    : state_(std::make_shared<SessionState>()) {
  try {
    const bool cuda = provider == Provider::kCuda;
    state_->provider = provider;
    Ort::SessionOptions options = Options(provider, cuda || threads > 1 ? Width::kWide : Width::kNarrow);
    std::optional<Ort::Session>& first = cuda || threads > 1 ? state_->wide : state_->narrow;
    first.emplace(Env(), path.c_str(), options);
    state_->graph = Describe(*first, code);
    if (cuda || threads <= 1) return;
    Ort::SessionOptions narrow = Options(provider, Width::kNarrow);
    if (HasDynamicShapes(state_->graph)) narrow.DisableMemPattern();
    state_->narrow.emplace(Env(), path.c_str(), narrow);
  } catch (const Ort::Exception& e) {
    throw EngineError(code, std::string("ONNX Runtime cannot use the model: ") + e.what());
  }
}

Session::~Session() = default;

const GraphInfo& Session::graph() const { return state_->graph; }

std::vector<Tensor> Session::Run(std::span<const Tensor> feeds, std::span<const std::string> outputs,
                                 bool wide, const std::stop_token& stop) const {
  try {
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    std::vector<const char*> input_names;
    std::vector<const char*> output_names;
    std::vector<Ort::Value> inputs;
    for (const Tensor& feed : feeds) {
      input_names.push_back(feed.name.c_str());
      inputs.push_back(OverMemory(memory, feed));
    }
    for (const std::string& name : outputs) output_names.push_back(name.c_str());
    Ort::RunOptions run;
    const std::stop_callback terminate(stop, [&run] { run.SetTerminate(); });
    std::vector<Ort::Value> values = state_->Pick(wide).Run(
        run, input_names.data(), inputs.data(), inputs.size(), output_names.data(), output_names.size());
    std::vector<Tensor> results;
    for (size_t i = 0; i < values.size(); ++i) results.push_back(FromValue(outputs[i], std::move(values[i])));
    return results;
  } catch (const Ort::Exception& e) {
    ThrowRunFailure(e);
  }
}

std::unique_ptr<Bucket> Session::MakeBucket(int64_t capacity,
                                            const std::vector<std::vector<int64_t>>& row_shapes,
                                            std::span<const std::string> outputs) const {
  return radserve::MakeBucket(state_, capacity, row_shapes, outputs);
}

GraphInfo InspectGraph(const std::string& path) {
  try {
    Ort::SessionOptions options = Options(Provider::kCpu, Width::kInspect);
    const Ort::Session session(Env(), path.c_str(), options);
    return Describe(session, "bad_request");
  } catch (const Ort::Exception& e) {
    throw EngineError("bad_request", std::string("Expected an ONNX model: ") + e.what());
  }
}

}  // namespace radserve
