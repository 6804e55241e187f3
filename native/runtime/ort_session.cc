/// Graphs as ONNX Runtime holds them, on the CPU and on GPUs.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "base/atomic_most.h"
#include "base/error.h"
#include "runtime/activations.h"
#include "runtime/cuda.h"
#include "runtime/graph_source.h"
#include "runtime/onnx_file.h"
#include "runtime/ort.h"
#include "runtime/run_memory.h"
#include "runtime/session.h"
#include "runtime/session_state.h"
#include "runtime/shape_nodes.h"
#include "runtime/weights.h"

namespace radserve {
namespace {

std::unique_ptr<Ort::Env>& EnvHolder() {
  // Leaked on purpose: see StartRuntime.
  static auto& holder = *std::make_unique<std::unique_ptr<Ort::Env>>().release();
  return holder;
}

/// Which tensors a graph may take and give.
enum class Types { kNumbers, kEvery };

Types TypesOf(const SessionSettings& settings) {
  return settings.every_type ? Types::kEvery : Types::kNumbers;
}

/// nullopt for what is no tensor of these types: sequences, maps, text and bfloat16 among numbers.
std::optional<TensorInfo> Describe(const std::string& name, const Ort::TypeInfo& type,
                                   Types types) {
  if (type.GetONNXType() != ONNX_TYPE_TENSOR) return std::nullopt;
  const auto info = type.GetTensorTypeAndShapeInfo();
  const std::optional<Dtype> dtype = FromOrt(info.GetElementType());
  if (!dtype || (types == Types::kNumbers && !IsNumber(*dtype))) return std::nullopt;
  TensorInfo out{name, *dtype, info.GetShape(), {}};
  for (const char* symbol : info.GetSymbolicDimensions())
    out.names.emplace_back(symbol == nullptr ? "" : symbol);
  for (int64_t& side : out.shape) side = std::max<int64_t>(side, -1);
  return out;
}

/// What is no such tensor, and how it becomes one.
std::string OtherText(const Ort::TypeInfo& type) {
  if (type.GetONNXType() != ONNX_TYPE_TENSOR)
    return "a sequence or a map (scikit-learn's are exported as tensors with zipmap=False)";
  switch (type.GetTensorTypeAndShapeInfo().GetElementType()) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
      return "bfloat16: export the network in float32 or float16";
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING:
      return "text";
    default:
      return "of a type that is not offered";
  }
}

[[noreturn]] void ThrowNotTaken(const std::string& name, const Ort::TypeInfo& type, Types types,
                                const std::string& code) {
  const std::string expected =
      types == Types::kEvery
          ? "a tensor of a type that ONNX Runtime computes with; complex numbers it does not."
          : "a tensor of float32, float16, float64, int8 to int64, uint8 to uint32 or bool.";
  throw EngineError(
      code, "The graph's \"" + name + "\" is " + OtherText(type) + "; expected " + expected);
}

/// Every input has to be fed. Outputs that are no such tensors are left out, because nobody has to
/// read them.
GraphInfo Describe(const Ort::Session& session, const std::string& code, Types types) {
  const Ort::AllocatorWithDefaultOptions allocator;
  GraphInfo graph;
  for (size_t i = 0; i < session.GetInputCount(); ++i) {
    const std::string name = session.GetInputNameAllocated(i, allocator).get();
    const std::optional<TensorInfo> input = Describe(name, session.GetInputTypeInfo(i), types);
    if (!input) ThrowNotTaken(name, session.GetInputTypeInfo(i), types, code);
    graph.inputs.push_back(*input);
  }
  for (size_t i = 0; i < session.GetOutputCount(); ++i) {
    const std::string name = session.GetOutputNameAllocated(i, allocator).get();
    const std::optional<TensorInfo> output = Describe(name, session.GetOutputTypeInfo(i), types);
    if (output) {
      graph.outputs.push_back(*output);
    } else {
      graph.left_out.push_back(name);
    }
    if (graph.outputs.empty() && i + 1 == session.GetOutputCount())
      ThrowNotTaken(name, session.GetOutputTypeInfo(i), types, code);
  }
  return graph;
}

/// With graphs the session has an arena of its own.
void AppendCuda(Ort::SessionOptions& options, const SessionSettings& settings, bool graphs,
                bool channels_last, void* stream) {
  Ort::CUDAProviderOptions cuda;
  cuda.Update(CudaOptions(settings, graphs, channels_last));
  if (stream != nullptr) cuda.UpdateWithValue("user_compute_stream", stream);
  options.AppendExecutionProvider_CUDA_V2(*cuda);
}

/// How long a thread of a wide run waits for the next node's part of the work, and after the run
/// for the next run, before it sleeps: longer than most gaps between nodes, and than an answer
/// takes through JavaScript to the next request; nothing beside a time slice for whoever else wants
/// the core. Without a bound it would spin for tens of milliseconds.
constexpr const char* kSpinMicroseconds = "100";

enum class Width { kWide, kNarrow };

/// What follows the width is for CUDA.
Ort::SessionOptions Options(const SessionSettings& settings, Width width, bool graphs = false,
                            bool channels_last = false, void* stream = nullptr) {
  const bool cuda = settings.provider == Provider::kCuda;
  Ort::SessionOptions options;
  options.SetExecutionMode(ORT_SEQUENTIAL);
  options.SetInterOpNumThreads(1);
  options.SetGraphOptimizationLevel(ORT_ENABLE_ALL);
  const bool wide = width == Width::kWide && !cuda;
  options.SetIntraOpNumThreads(wide ? settings.threads : 1);
  options.AddConfigEntry("session.intra_op.allow_spinning", wide ? "1" : "0");
  // See RunAllocator, and ShareArena.
  if (!graphs) options.AddConfigEntry("session.use_env_allocators", "1");
  if (wide) options.AddConfigEntry("session.intra_op.spin_duration_us", kSpinMicroseconds);
  if (cuda) {
    // For ElsewhereThanCuda.
    options.AddConfigEntry("session.record_ep_graph_assignment_info", "1");
    // Weights outside the arena, whose chunks are for what a run needs.
    options.AddConfigEntry("session.use_device_allocator_for_initializers", "1");
    AppendCuda(options, settings, graphs, channels_last, stream);
  }
  return options;
}

/// AllocateRunMemory as the runtime calls it. If there is no memory it throws, as the runtime's own
/// allocator of the CPU does (AllocatorDefaultAlloc in core/framework/allocator.cc): the runtime
/// writes through what an allocator returns without looking at it, and a null pointer would end the
/// process. What it calls us from is C++ that is built with exceptions, of the same libstdc++; it
/// catches them round each kernel (core/framework/sequential_executor.cc) and at every call of its
/// API, which ThrowRunFailure then turns into OutOfMemory. Kernels ask for memory on the thread
/// that runs the session, and not on those among which it spreads its work, where nothing would
/// catch.
struct RunAllocator : OrtAllocator {
  RunAllocator() : OrtAllocator{} {
    version = ORT_API_VERSION;
    Alloc = [](OrtAllocator*, size_t bytes) -> void* {
      void* memory = AllocateRunMemory(bytes);
      if (memory == nullptr) throw std::bad_alloc();
      return memory;
    };
    Free = [](OrtAllocator*, void* memory) { FreeRunMemory(memory); };
    Info = [](const OrtAllocator* self) -> const OrtMemoryInfo* {
      return static_cast<const RunAllocator*>(self)->where;
    };
    Reserve = Alloc;
  }
  const Ort::MemoryInfo where = Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
};

Ort::MemoryInfo ArenaOf(int device) {
  return {"Cuda", OrtArenaAllocator, device, OrtMemTypeDefault};
}

/// The arenas by GPU, for their figures. Never destroyed, as the environment is. Whoever takes the
/// lock holds a CudaWork already.
struct Arenas {
  std::mutex mutex;
  /// A session without graphs there: its arena is the arena of all of those.
  std::map<int, Ort::Allocator> shared;
  /// Sessions with graphs.
  std::multimap<int, std::weak_ptr<Ort::Allocator>> own;
  std::set<int> registered;
};

Arenas& TheArenas() {
  static auto& arenas = *std::make_unique<Arenas>().release();
  return arenas;
}

/// One arena of a GPU for all sessions there without graphs. With one for each, every model would
/// keep what its largest run took, and two models by turns have been seen to take more with every
/// run (onnxruntime issue 29351). The first limit holds. A session with graphs has an arena of its
/// own: a graph writes into chunks that its arena counts as free, so that nothing that lasts may
/// lie in them, as weights of another session would, and nothing that runs beside.
void ShareArena(const SessionSettings& settings) {
  Arenas& arenas = TheArenas();
  const std::lock_guard lock(arenas.mutex);
  if (arenas.registered.contains(settings.device)) return;
  constexpr int kSameAsRequested = 1;
  constexpr int kDefault = -1;
  const Ort::ArenaCfg arena(settings.device_memory, kSameAsRequested, kDefault, kDefault);
  EnvHolder()->CreateAndRegisterAllocatorV2("CUDAExecutionProvider", ArenaOf(settings.device),
                                            {{"device_id", std::to_string(settings.device)}},
                                            arena);
  arenas.registered.insert(settings.device);
}

void RememberArena(SessionState& state) {
  state.memory = std::make_shared<Ort::Allocator>(*state.wide, ArenaOf(state.device));
  const Ort::MemoryInfo pinned("CudaPinned", OrtDeviceAllocator, state.device, OrtMemTypeCPU);
  state.pinned = std::make_shared<Ort::Allocator>(*state.wide, pinned);
  Arenas& arenas = TheArenas();
  const std::lock_guard lock(arenas.mutex);
  if (state.graphs) {
    arenas.own.emplace(state.device, state.memory);
  } else if (!arenas.shared.contains(state.device)) {
    arenas.shared.emplace(state.device, Ort::Allocator(*state.wide, ArenaOf(state.device)));
  }
}

/// Bytes that an arena has taken; nullopt if it does not say.
template <typename Allocator>
std::optional<size_t> TakenBy(const Allocator& allocator) {
  const Ort::KeyValuePairs stats = allocator.GetStats();
  const char* total = stats.GetValue("TotalAllocated");
  return total == nullptr ? std::nullopt : std::optional<size_t>(std::strtoull(total, nullptr, 10));
}

/// Bytes that a session holds for itself: its weights, and of a wide one what its runs keep for the
/// next. What two sessions share counts for the wide one.
size_t BytesOf(const SessionState& state, bool wide) {
  const size_t weights = state.facts.weights;
  if (state.provider == Provider::kCuda) return weights;
  const size_t shared = state.weights ? state.weights->bytes() : 0;
  const size_t own = weights - std::min(weights, shared);
  return own + (wide ? shared + state.runs.kept() : 0);
}

std::vector<Ort::ConstEpAssignedNode> ElsewhereThanCuda(const Ort::Session& session) {
  std::vector<Ort::ConstEpAssignedNode> nodes;
  for (const Ort::ConstEpAssignedSubgraph& part : session.GetEpGraphAssignmentInfo()) {
    if (part.GetEpName() == "CUDAExecutionProvider") continue;
    for (const Ort::ConstEpAssignedNode& node : part.GetNodes()) nodes.push_back(node);
  }
  return nodes;
}

/// A part of the model that ran on the CPU unnoticed would be slow and, in TF32, of another
/// precision. Nodes that touch nothing but shapes the runtime puts there by itself, because they
/// are sooner done there. Throws `code`.
void CheckNodes(const Ort::Session& session, const std::string& path, const std::string& code) {
  const ShapeNodes shapes(onnx_file::MappedFile(path).bytes());
  constexpr int kNamed = 5;
  int refused = 0;
  std::string named;
  for (const Ort::ConstEpAssignedNode& node : ElsewhereThanCuda(session)) {
    if (shapes.Contains(node.GetName(), node.GetOperatorType()) || ++refused > kNamed) continue;
    const std::string name =
        node.GetName().empty() ? "without a name" : "\"" + node.GetName() + "\"";
    named += (named.empty() ? "" : ", ") + node.GetOperatorType() + " " + name;
  }
  if (refused == 0) return;
  if (refused > kNamed) named += " and " + std::to_string(refused - kNamed) + " more";
  throw EngineError(
      code,
      "CUDA has no kernel for these nodes of the graph, which compute with more than shapes: " +
          named +
          ". None of a model runs on the CPU unnoticed: export it with other operators, or "
          "set execution.providers to [\"cpu\"].");
}

[[noreturn]] void ThrowLoadFailure(const Ort::Exception& e, const std::string& code, int gpu) {
  const std::string what = e.what();
  switch (ClassifyFailure(what)) {
    case RuntimeFailure::kDeviceLost:
      LoseGpu(gpu, what);
      CheckGpu(gpu);
      break;
    case RuntimeFailure::kMemory:
      throw NoRoomToLoad(code,
                         "The memory did not suffice to load the model: " + HelpfulText(what));
    case RuntimeFailure::kRun:
      break;
  }
  throw EngineError(code, "ONNX Runtime cannot use the model: " + HelpfulText(what));
}

/// x [1,1,1,1] -> Conv with one weight -> y: what a machine must be able to run before it takes
/// models. As bytes of an ONNX file, whose fields are all shorter than 128 bytes.
std::string OneConvolution() {
  const auto number = [](int field, int value) {
    return std::string{static_cast<char>(field << 3), static_cast<char>(value)};
  };
  const auto bytes = [](int field, const std::string& content) {
    return std::string{static_cast<char>(field << 3 | 2), static_cast<char>(content.size())} +
           content;
  };
  const std::string dims(4, '\1');
  std::string shape;
  for (int i = 0; i < 4; ++i) shape += bytes(1, number(1, 1));
  const auto value = [&](const std::string& name) {
    return bytes(1, name) + bytes(2, bytes(1, number(1, 1) + bytes(2, shape)));
  };
  const std::string node = bytes(1, "x") + bytes(1, "w") + bytes(2, "y") + bytes(4, "Conv");
  const std::string weight =
      bytes(1, dims) + number(2, 1) + bytes(8, "w") + bytes(9, std::string(4, '\0'));
  const std::string graph = bytes(1, node) + bytes(2, "g") + bytes(5, weight) +
                            bytes(11, value("x")) + bytes(12, value("y"));
  return number(1, 8) + bytes(7, graph) + bytes(8, number(2, 17));
}

std::string FindCudaProblem(int device) {
  try {
    SessionSettings settings;
    settings.provider = Provider::kCuda;
    settings.device = device;
    const CudaWork work;
    // The provider first, because CUDA comes before cuDNN.
    const Ort::SessionOptions options = Options(settings, Width::kWide);
    if (std::string problem = CudnnProblem(); !problem.empty()) return problem;
    const std::string model = OneConvolution();
    Ort::Session session(Env(), model.data(), model.size(), options);
    const Tensor feed = MakeTensor("x", Dtype::kFloat32, {1, 1, 1, 1});
    const std::vector<std::string> outputs = {"y"};
    RunOnce(session, Ort::RunOptions(), std::span(&feed, 1), outputs, {kNoGpu, nullptr});
    return "";
  } catch (const std::exception& e) {
    return HelpfulText(e.what());
  }
}

/// Smaller weights are not worth a second form of the graph; the runtime cannot write a model of
/// more than 2 GiB, and an optimised one may be larger than it was.
constexpr size_t kLeastShared = size_t{8} << 20;
constexpr size_t kMostShared = size_t{3} << 29;

Ort::SessionOptions CpuOptions(const SessionSettings& settings, const GraphFacts& facts,
                               Width width) {
  Ort::SessionOptions options = Options(settings, width);
  // A pattern is one more block for all that a run has at once, 1 GiB of a window of nnU-Net,
  // beside what the first run took. Without patterns small networks take 1 % longer, others no
  // longer.
  options.DisableMemPattern();
  if (!facts.float16) {
    if (!facts.runtimes_norm) AddInstanceNorm(options);
  } else {
    // Of a MatMul and an Add this makes a Gemm, for which the CPU has no fast code of float16: a
    // small transformer took minutes an image in place of a tenth of a second.
    options.AddConfigEntry("optimization.disable_specified_optimizers", "MatMulAddFusion");
  }
  return options;
}

/// Bytes that two sessions can hold once of so many bytes of weights: of factors of products
/// kernels keep packed copies, and give the weights themselves up unless they are shared.
size_t Shareable(const std::string& path, size_t weights) {
  return weights - std::min<size_t>(weights, BytesOfFactors(onnx_file::MappedFile(path).bytes()));
}

/// Both sessions of the CPU over one copy of the weights. False if the runtime cannot make them so:
/// a model that is at fault is refused when it is opened by itself.
bool OpenShared(SessionState& state, GraphSource& source, const std::string& path,
                const SessionSettings& settings, const std::string& code, bool known) {
  const size_t bytes = state.facts.weights;
  if (bytes < kLeastShared || bytes > kMostShared) return false;
  if (Shareable(path, bytes) < std::max(kLeastShared, bytes / 2)) return false;
  try {
    Ort::SessionOptions optimising = CpuOptions(settings, state.facts, Width::kNarrow);
    const OptimisedModel model(source, optimising, [&](const Ort::Session& session) {
      if (!known) state.facts.graph = Describe(session, code, TypesOf(settings));
    });
    auto weights = std::make_unique<SharedWeights>(model.bytes());
    Ort::SessionOptions wide_options = CpuOptions(settings, state.facts, Width::kWide);
    Ort::SessionOptions narrow_options = CpuOptions(settings, state.facts, Width::kNarrow);
    for (Ort::SessionOptions* options : {&wide_options, &narrow_options})
      options->SetGraphOptimizationLevel(ORT_DISABLE_ALL);
    Ort::Session wide = weights->Open(model.bytes(), wide_options, settings.stop);
    Ort::Session narrow = weights->Open(model.bytes(), narrow_options, settings.stop);
    state.weights = std::move(weights);
    state.wide = std::move(wide);
    state.narrow = std::move(narrow);
    return true;
  } catch (const std::exception&) {
    // Whatever it is, the model may do without it, or says the same when it is opened by itself.
    return false;
  }
}

/// The sessions of the CPU. Throws as OpenOnGpu does.
void OpenOnCpu(SessionState& state, GraphSource& source, const std::string& path,
               const SessionSettings& settings, const std::string& code, bool known) {
  const bool wide = settings.threads > 1;
  if (wide && OpenShared(state, source, path, settings, code, known)) return;
  Ort::SessionOptions options =
      CpuOptions(settings, state.facts, wide ? Width::kWide : Width::kNarrow);
  std::optional<Ort::Session>& first = wide ? state.wide : state.narrow;
  first = source.Open(options);
  if (!known) state.facts.graph = Describe(*first, code, TypesOf(settings));
  if (wide) {
    Ort::SessionOptions narrow = CpuOptions(settings, state.facts, Width::kNarrow);
    state.narrow = source.Open(narrow);
  }
  state.files = source.Kept();
}

/// Whether what is captured of a run is the run: every node is on CUDA, and each output is what a
/// node gives.
bool CanBeCaptured(const Ort::Session& session, const GraphInfo& graph) {
  const auto is_input = [&](const TensorInfo& output) {
    return std::ranges::find(graph.inputs, output.name, &TensorInfo::name) != graph.inputs.end();
  };
  return ElsewhereThanCuda(session).empty() && std::ranges::none_of(graph.outputs, is_input);
}

bool TakesImages(const GraphInfo& graph) {
  constexpr size_t kBatchChannelsRowsColumns = 4;
  return std::ranges::all_of(graph.inputs, [](const TensorInfo& input) {
    return input.shape.size() == kBatchChannelsRowsColumns;
  });
}

/// The session of a GPU; one bucket's own has graphs if the model, as far as is known, and the
/// runtime allow it. Throws Ort::Exception, EngineError with `code`.
void OpenOnGpu(SessionState& state, GraphSource& source, const std::string& path,
               const SessionSettings& settings, const std::string& code, bool known) {
  const CudaWork work;
  ShareArena(settings);
  state.stream.emplace(settings.device);
  const auto open = [&](bool graphs) {
    state.graphs = graphs;
    Ort::SessionOptions options =
        Options(settings, Width::kWide, graphs, state.facts.channels_last, state.stream->handle());
    state.wide = source.Open(options);
  };
  try {
    open(state.own && state.facts.graphs);
  } catch (const Ort::Exception& e) {
    // The runtime refuses graphs for control flow.
    if (!state.graphs || ClassifyFailure(e.what()) != RuntimeFailure::kRun) throw;
    open(false);
  }
  if (!known) {
    state.facts.graph = Describe(*state.wide, code, TypesOf(settings));
    // The shared session too, so that an image has the same numbers whichever session it runs in.
    if (settings.precision == Precision::kFloat16 && TakesImages(state.facts.graph)) {
      state.facts.channels_last = true;
      try {
        open(false);
        state.facts.channels_last = ElsewhereThanCuda(*state.wide).empty();
      } catch (const Ort::Exception& e) {
        if (ClassifyFailure(e.what()) != RuntimeFailure::kRun) throw;
        state.facts.channels_last = false;
      }
      if (!state.facts.channels_last) open(false);
    }
    state.facts.graphs = CanBeCaptured(*state.wide, state.facts.graph);
    // One that is loaded again is of the same bytes.
    CheckNodes(*state.wide, path, code);
  }
  RememberArena(state);
}

}  // namespace

std::shared_ptr<LoadedGraph> LoadOrtGraph(const GraphOrder& order) {
  const auto& [path, settings, code, known, hashes, own] = order;
  auto state = std::make_shared<SessionState>();
  const bool cuda = settings.provider == Provider::kCuda;
  state->provider = settings.provider;
  state->own = own;
  if (known == nullptr) {
    const WeightCount weights = CountWeights(path);
    state->facts.weights = weights.bytes;
    state->facts.float16 = weights.float16 > 0;
  } else {
    state->facts = *known;
  }
  if (cuda) {
    state->device = settings.device;
    state->device_memory = settings.device_memory;
    CheckGpu(state->Gpu());
    UseGpu(settings.device);
  }
  try {
    GraphSource source(path, code, settings.stop, hashes, known == nullptr);
    if (cuda) {
      OpenOnGpu(*state, source, path, settings, code, known != nullptr);
      if (own) state->facts.graphs = state->graphs;
      state->files = source.Kept();
      return state;
    }
    try {
      OpenOnCpu(*state, source, path, settings, code, known != nullptr);
    } catch (const Ort::Exception& e) {
      // Graphs of mixed precision can normalise in float16 with weights of float32.
      const bool added = !state->facts.float16 && !state->facts.runtimes_norm;
      if (!added || ClassifyFailure(e.what()) != RuntimeFailure::kRun) throw;
      state->facts.runtimes_norm = true;
      OpenOnCpu(*state, source, path, settings, code, known != nullptr);
    }
  } catch (const Ort::Exception& e) {
    ThrowLoadFailure(e, code, state->Gpu());
  }
  return state;
}

namespace {

/// How long a run waits for the memory that other runs have, and how often it is tried then.
constexpr auto kRoomPatience = std::chrono::seconds(10);
constexpr int kMostTries = 4;
constexpr auto kRoomLook = std::chrono::milliseconds(5);

/// Waits until there is room for so many bytes. Throws `cancelled`; false if its time is over.
bool WaitForRoom(size_t bytes, const std::stop_token& stop,
                 std::chrono::steady_clock::time_point end) {
  while (!RunMemoryHasRoom(bytes)) {
    CheckStop(stop);
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(kRoomLook);
  }
  return true;
}

/// Runs, and again where other runs had the memory: one run at a time waits for that, so that no
/// two of them take it from each other for ever. Throws what `run` does in the end.
template <typename Run>
auto WithRoom(const std::stop_token& stop, const Run& run) {
  try {
    return run();
  } catch (const OutOfMemory& e) {
    if (e.needed() == 0) throw;
  }
  static auto& turn = *std::make_unique<std::timed_mutex>().release();
  const auto end = std::chrono::steady_clock::now() + kRoomPatience;
  std::unique_lock lock(turn, std::defer_lock);
  while (!lock.try_lock_for(kRoomLook)) {
    CheckStop(stop);
    if (std::chrono::steady_clock::now() > end) return run();
  }
  size_t needed = 0;
  for (int tries = 1;; ++tries) {
    const bool last = !WaitForRoom(needed, stop, end) || tries == kMostTries;
    try {
      return run();
    } catch (const OutOfMemory& e) {
      if (last || e.needed() == 0) throw;
      needed = e.needed();
    }
  }
}

}  // namespace

const Ort::Env& Env() {
  if (!EnvHolder()) throw EngineError("internal", "The engine was used before it was started.");
  return *EnvHolder();
}

void StartRuntime() {
  if (EnvHolder()) return;
  // ONNX Runtime's own builds for Linux report to their maker from 1.29 on (facts of models and of
  // the machine, a device identifier in the home directory). Nothing may leave the hospital: said
  // before the environment begins, it sends and writes nothing.
  const char* const off = std::getenv("ORT_DISABLE_TELEMETRY");
  if ((off == nullptr || std::string_view(off) != "1") &&
      setenv("ORT_DISABLE_TELEMETRY", "1", 1) != 0)
    throw std::bad_alloc();
  EnvHolder() = std::make_unique<Ort::Env>(ORT_LOGGING_LEVEL_FATAL, "radserve");
  // Used by sessions that ask for the environment's allocators; leaked, as the environment is.
  EnvHolder()->RegisterAllocator(std::make_unique<RunAllocator>().release());
}

std::string RuntimeVersion() { return Ort::GetVersionString(); }

std::vector<std::string> AvailableProviders() { return Ort::GetAvailableProviders(); }

std::string CudaProblem(int device) {
  // A caller that asks again, in another environment, waits for the first answer and gets it, too.
  static std::mutex mutex;
  static auto& known = *std::make_unique<std::map<int, std::string>>().release();
  const std::lock_guard lock(mutex);
  const auto [place, fresh] = known.try_emplace(device);
  if (fresh) place->second = FindCudaProblem(device);
  return place->second;
}

GpuUse UseOfGpu(int device, size_t limit) {
  GpuUse use;
  use.device = device;
  use.limit = limit;
  use.lost = GpuLost(device);
  if (use.lost) return use;
  const GpuMemory memory = MemoryOfGpu(device).value_or(GpuMemory());
  use.free = memory.free;
  use.total = memory.total;
  const CudaWork work;
  use.taken = TakenOfGpu(device);
  return use;
}

size_t TakenOfGpu(int device) {
  Arenas& arenas = TheArenas();
  const std::lock_guard lock(arenas.mutex);
  const auto shared = arenas.shared.find(device);
  size_t taken = shared == arenas.shared.end() ? 0 : TakenBy(shared->second).value_or(0);
  std::erase_if(arenas.own, [](const auto& arena) { return arena.second.expired(); });
  const auto [first, last] = arenas.own.equal_range(device);
  for (auto arena = first; arena != last; ++arena) {
    if (const auto own = arena->second.lock()) taken += TakenBy(*own).value_or(0);
  }
  return taken;
}

void ShrinkGpu(int device) {
  const CudaWork work;
  Arenas& arenas = TheArenas();
  const std::lock_guard lock(arenas.mutex);
  const auto arena = arenas.shared.find(device);
  if (arena != arenas.shared.end() && !GpuLost(device)) arena->second.Shrink();
}

SessionState::~SessionState() {
  if (provider != Provider::kCuda) return;
  const CudaWork work;
  if (GpuLost(device) && wide) static_cast<void>(wide->release());
  wide.reset();
  memory = nullptr;
  pinned = nullptr;
  stream.reset();
}

std::vector<Tensor> SessionState::Run(std::span<const Tensor> feeds,
                                      std::span<const std::string> outputs, bool want_wide,
                                      const std::stop_token& stop, std::atomic<size_t>& most) {
  Ort::RunOptions run;
  const std::stop_callback terminate(stop, [&run] { run.SetTerminate(); });
  std::unique_lock on_stream(running, std::defer_lock);
  std::optional<CudaWork> work;
  if (stream) {
    on_stream.lock();
    work.emplace();
  }
  Ort::Session& session = Pick(want_wide);
  return WithRoom(stop, [&] {
    std::vector<Tensor> results = RunOnce(session, run, feeds, outputs, {Gpu(), CacheOf(session)});
    if (provider == Provider::kCpu) Raise(most, MostOfLastRun());
    return results;
  });
}

std::vector<SessionMemory> SessionState::Memory() const {
  std::vector<SessionMemory> memory;
  if (wide) memory.push_back({true, BytesOf(*this, true)});
  if (narrow) memory.push_back({false, BytesOf(*this, false)});
  return memory;
}

std::unique_ptr<Bucket> SessionState::MakeBucket(
    int64_t capacity, const std::vector<std::vector<int64_t>>& row_shapes,
    std::span<const std::string> outputs) {
  return radserve::MakeBucket(shared_from_this(), capacity, row_shapes, outputs);
}

std::shared_ptr<std::byte> SessionState::MakeRows(size_t bytes) const {
  return radserve::MakeRows(*this, bytes);
}
namespace {

/// The metadata of more keys than an exporter writes is none for a person.
constexpr size_t kMostMetadata = 256;

std::map<std::string, std::string> CustomMetadata(const Ort::Session& session) {
  std::map<std::string, std::string> out;
  const Ort::AllocatorWithDefaultOptions allocator;
  const Ort::ModelMetadata metadata = session.GetModelMetadata();
  const std::vector<Ort::AllocatedStringPtr> keys =
      metadata.GetCustomMetadataMapKeysAllocated(allocator);
  for (size_t i = 0; i < std::min(keys.size(), kMostMetadata); ++i)
    out[keys[i].get()] = metadata.LookupCustomMetadataMapAllocated(keys[i].get(), allocator).get();
  return out;
}

}  // namespace

GraphInfo DescribeGraph(const std::string& path, const std::string& code, bool every_type) {
  const auto describe = [&](GraphOptimizationLevel level) {
    Ort::SessionOptions options = Options(SessionSettings(), Width::kNarrow);
    options.SetGraphOptimizationLevel(level);
    std::set<std::string> weights_alone;
    const Ort::Session session = OpenWithoutWeights(path, code, options, weights_alone);
    GraphInfo graph = Describe(session, code, every_type ? Types::kEvery : Types::kNumbers);
    std::erase_if(graph.inputs,
                  [&](const TensorInfo& input) { return weights_alone.contains(input.name); });
    graph.metadata = CustomMetadata(session);
    return graph;
  };
  try {
    try {
      return describe(ORT_DISABLE_ALL);
    } catch (const Ort::Exception&) {
      // A Cast from float16 to float16 before a node that the CPU computes in float32 ends in a
      // graph of two minds, unless it is optimised away, as it is where the model is loaded.
      return describe(ORT_ENABLE_BASIC);
    }
  } catch (const Ort::Exception& e) {
    throw EngineError(code, "Expected an ONNX model: " + HelpfulText(e.what()));
  }
}

GraphInfo InspectGraph(const std::string& path) {
  GraphInfo graph = DescribeGraph(path, "bad_request", false);
  const WeightCount weights = CountWeights(path);
  graph.float16 = weights.float16 > weights.float32;
  graph.activations = Activations(path);
  return graph;
}

}  // namespace radserve
