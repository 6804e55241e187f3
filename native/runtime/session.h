#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/tensor.h"

namespace radserve {

/// What computes: ONNX Runtime on the CPU, ONNX Runtime on a GPU, or OpenVINO on the CPU.
enum class Provider { kCpu, kCuda, kOpenVino };

/// The precision in which CUDA and OpenVINO compute. kTf32, of CUDA, rounds the factors of products
/// to 10 bits of mantissa; kBfloat16, of OpenVINO, rounds all but the sums to 7; kFloat16 stands
/// for a graph that is float16 itself: nothing is converted.
enum class Precision { kFloat32, kTf32, kFloat16, kBfloat16 };

struct SessionSettings {
  Provider provider = Provider::kCpu;
  /// CPU: cores that a wide run may use.
  int threads = 1;
  Precision precision = Precision::kFloat32;
  /// CUDA: the number of the GPU, and the most bytes of it that all models there may take together
  /// (0: no limit; the first model of a GPU decides).
  int device = 0;
  size_t device_memory = 0;
  /// Tensors of every Dtype are taken and given; else of numbers alone, of which images are made.
  bool every_type = false;
  /// The SHA-256, in hex, of every file that the graphs are made of, by its path: what
  /// Session::Reload takes. Empty for a session that is never unloaded; on a GPU it notes them
  /// itself.
  std::map<std::string, std::string> hashes;
  /// Ends what makes the session before its time; forgotten when it is made.
  std::stop_token stop;

  bool OnGpu() const { return provider == Provider::kCuda; }
};

/// The memory did not suffice to load a model: another may be unloaded, and it is tried again.
class NoRoomToLoad : public EngineError {
 public:
  using EngineError::EngineError;
};

/// A run could not be captured as a CUDA graph: see Session::ForgoGraphs.
class NotCaptured : public EngineError {
 public:
  explicit NotCaptured(const std::string& why)
      : EngineError("internal", "The model cannot be captured: " + why) {}
};

/// -1 stands for a dynamic dimension; `names` holds its symbol, or "".
struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  std::vector<std::string> names;
};

struct GraphInfo {
  std::vector<TensorInfo> inputs;
  std::vector<TensorInfo> outputs;
  /// Names of outputs that are left out, because they are no tensors, or not of the types that are
  /// taken.
  std::vector<std::string> left_out;
  /// Most of the weights are float16. Filled by InspectGraph.
  bool float16 = false;
  /// "sigmoid" or "softmax" of the outputs that are one, by their names (Activations). Filled by
  /// InspectGraph.
  std::map<std::string, std::string> activations;
  /// The exporter's notes beside the graph (metadata_props of ModelProto), by key. Filled by
  /// InspectGraph.
  std::map<std::string, std::string> metadata;
};

/// Makes ONNX Runtime's process-wide environment. Called once, before anything else here; never
/// destroyed, because destruction during exit would race with running threads.
void StartRuntime();

std::string RuntimeVersion();
/// Names as ONNX Runtime gives them: CPUExecutionProvider, CUDAExecutionProvider.
std::vector<std::string> AvailableProviders();
/// Tries to load the CUDA provider and cuDNN, to find that GPU and to run one convolution on it;
/// the message of what fails (which library is missing), else "". The process tries once.
std::string CudaProblem(int device);

struct GpuUse {
  int device = 0;
  /// Bytes that the models there have taken, and the most that they may take (0: no limit).
  size_t taken = 0;
  size_t limit = 0;
  /// Bytes that nobody has taken, and that it has; 0 where CUDA does not say.
  size_t free = 0;
  size_t total = 0;
  bool lost = false;
  /// Bytes that a new model could take.
  size_t Room() const;
};
/// `limit` is what SessionSettings::device_memory would be there.
GpuUse UseOfGpu(int device, size_t limit);
/// Gives back what runs on that GPU took and none needs now.
void ShrinkGpu(int device);

/// Gives what the threads keep for runs to come, and what is free in the process, back to the
/// system.
void ReturnMemory();

/// Bytes of the weights of an .onnx file, which is what a session holds at least.
size_t BytesOfWeights(const std::string& path);

struct SessionMemory {
  /// Whether it is the session that spreads a run over all cores; the one of a GPU is wide too.
  bool wide = false;
  size_t bytes = 0;
};

/// The inputs of one row, in the order of the graph's inputs; row-major, without the batch
/// dimension.
using RowInputs = std::vector<std::span<const std::byte>>;

/// A prepared place for batches of one shape on one device, reused for every run (CUDA: memory of
/// the device and pinned memory of the host). Of use to one thread at a time; where runs are
/// captured as CUDA graphs, always to the same one. On the CPU its runs use all cores. Keeps its
/// session alive.
class Bucket {
 public:
  virtual ~Bucket() = default;
  /// Rows that one run can hold.
  virtual int64_t capacity() const = 0;
  /// Where one row of an input is written. The memory for it is made when it is first asked for.
  virtual std::span<std::byte> Row(size_t input, int64_t row) = 0;
  /// The first `rows` rows of that place.
  virtual std::vector<RowInputs> Place(int64_t rows) = 0;
  /// Runs these; see RunRows.
  void Run(int64_t rows, const std::stop_token& stop) { RunRows(Place(rows), stop); }
  /// Runs rows where they lie; zeros pad the batch where it has a fixed size. Returns whether it
  /// had to copy them together on this thread: the CPU reads none that do not lie one after the
  /// other, and a GPU fetches no small ones apart. Stops between nodes when `stop` is requested; a
  /// CUDA graph runs to its end. Throws EngineError: OutOfMemory if a smaller batch may succeed,
  /// NotCaptured, output_invalid if the outputs do not have one row for each row that went in.
  virtual bool RunRows(std::span<const RowInputs> rows, const std::stop_token& stop) = 0;
  /// The outputs of one row of the last run, in the order asked for, each of shape [1, ...]; later
  /// runs leave them as they are. Of a bucket of capacity 1 they are the outputs whole, whatever
  /// their shape.
  virtual std::vector<Tensor> TakeRow(int64_t row) = 0;
  /// Memory of the host that it holds for inputs and outputs.
  virtual size_t Bytes() const = 0;
  /// CUDA: it runs in the session that all shapes of the model share, and plans anew whenever
  /// another shape ran before.
  virtual bool Shared() const { return false; }
};

struct LoadedGraph;

/// Facts of a graph that stay known while its sessions are unloaded.
struct GraphFacts {
  GraphInfo graph;
  /// Bytes of the weights.
  size_t weights = 0;
  /// Whether there are weights of float16.
  bool float16 = false;
  /// Whether the runtime's own InstanceNormalization computes it, because nodes are of other types
  /// than float32 (AddInstanceNorm).
  bool runtimes_norm = false;
  /// On CUDA, whether runs of buckets that have a session of their own are captured as graphs.
  bool graphs = false;
  /// On CUDA, whether images are computed with the channels last: a float16 graph of two dimensions
  /// of space runs a seventh faster so, a float32 one slower.
  bool channels_last = false;
};

/// Changes what one of several graphs gave before the mean is taken, in place; the tensor is
/// float32.
using BeforeMean = std::function<void(Tensor& output)>;

/// One model, in memory. Of ONNX Runtime on the CPU up to two sessions: a wide one that spreads a
/// run over all cores, and a narrow one that runs on the calling thread alone, so that many runs at
/// once do not fight for cores. Of OpenVINO one, which is wide: runs wait for each other.
///
/// It may be unloaded and loaded again, from one thread at a time. What needs its memory throws
/// model_unavailable meanwhile.
class Session {
 public:
  /// Throws EngineError with `code` if the file is no model that the runtime can use; NoRoomToLoad.
  Session(const std::string& path, const SessionSettings& settings, const std::string& code);
  /// Several graphs that take the same tensors and give the same: they run one after the other, and
  /// what comes out is their mean, in float32. Throws as above, and `code` if their inputs or
  /// outputs differ.
  Session(std::span<const std::string> paths, const SessionSettings& settings,
          const std::string& code, BeforeMean before_mean);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const GraphInfo& graph() const { return facts_.front().graph; }
  /// Bytes of the weights of all graphs.
  size_t Weights() const;
  /// Gives all memory back. Runs under way and buckets keep theirs until they end.
  void Unload();
  /// Loads it again, from the same bytes. Throws as the constructor does, also if a file is another
  /// one.
  void Reload();
  bool OnGpu() const { return settings_.OnGpu(); }
  /// Whether runs go on beside each other, and rows in batches.
  bool TakesBatches() const { return settings_.provider != Provider::kOpenVino; }
  int device() const { return settings_.device; }
  /// Buckets that are made from now on are not captured.
  void ForgoGraphs() { forgo_graphs_ = true; }
  /// Memory of each of the sessions: weights, and of a wide one what its runs keep for the next;
  /// that of narrow ones belongs to the threads (run_memory.h). Weights that both share count for
  /// the wide one.
  std::vector<SessionMemory> Memory() const;
  /// Bytes that a run takes beside the weights, as far as is known: the most that one took, or what
  /// those of the wide session keep for the next. 0 before the first, and of a GPU.
  size_t BytesOfRuns() const;
  /// Runs on the calling thread (and the pool, if wide); any number of threads at once. Feeds are
  /// not copied; outputs own the runtime's memory. Stops between nodes when `stop` is requested.
  /// Where other runs have the memory that it needs it waits for some seconds. Throws EngineError.
  std::vector<Tensor> Run(std::span<const Tensor> feeds, std::span<const std::string> outputs,
                          bool wide, const std::stop_token& stop) const;
  /// A bucket for batches of `capacity` rows; `row_shapes` has the shape of one row, without the
  /// batch dimension, for each input of the graph. Throws EngineError: bad_request if the graph
  /// takes no such batches, OutOfMemory. On CUDA one that is to run often has a session of its
  /// `own`, where the shape never changes: a change of shape makes cuDNN plan again, and drops the
  /// plan before, whose kernels graphs captured from it would still launch. OutOfMemory then if the
  /// memory does not suffice for the weights once more.
  std::unique_ptr<Bucket> MakeBucket(int64_t capacity,
                                     const std::vector<std::vector<int64_t>>& row_shapes,
                                     std::span<const std::string> outputs, bool own = false);
  /// So many bytes for inputs of buckets, with whatever is in them; CUDA: pinned host memory. They
  /// keep the session's memory alive. Throws OutOfMemory.
  std::shared_ptr<std::byte> MakeRows(size_t bytes) const;

 private:
  using States = std::vector<std::shared_ptr<LoadedGraph>>;

  /// nullptr while they are unloaded.
  std::shared_ptr<const States> Here() const;
  /// Throws model_unavailable while they are unloaded.
  std::shared_ptr<const States> Loaded() const;
  /// One more session of a graph, for one bucket. Throws OutOfMemory.
  std::shared_ptr<LoadedGraph> Another(size_t graph);

  const std::vector<std::string> paths_;
  SessionSettings settings_;
  /// SHA-256 of the files, where they are known.
  std::map<std::string, std::string> hashes_;
  const std::string code_;
  const BeforeMean before_mean_;
  std::vector<GraphFacts> facts_;
  std::atomic<bool> forgo_graphs_ = false;
  /// Locked by those who look at sessions without a use of them, so that it is never they who free
  /// them: they may be the thread that serves requests.
  mutable std::mutex refreshing_;
  /// Protects states_.
  mutable std::mutex mutex_;
  /// One for each graph; nullptr while they are unloaded.
  std::shared_ptr<const States> states_;
  /// The most that a run took.
  mutable std::atomic<size_t> most_ = 0;
};

/// Inputs and outputs of a graph, without keeping it. Throws bad_request.
GraphInfo InspectGraph(const std::string& path);

}  // namespace radserve
