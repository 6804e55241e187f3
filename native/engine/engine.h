#ifndef RADSERVE_ENGINE_H_
#define RADSERVE_ENGINE_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/image.h"
#include "base/spec.h"
#include "base/tensor.h"
#include "postprocess/postprocess.h"
#include "prepare/geometry.h"
#include "prepare/image.h"
#include "prepare/statistics.h"
#include "prepare/values.h"
#include "prepare/volume.h"
#include "prepare/volume_geometry.h"
#include "runtime/session.h"
#include "runtime/session_device.h"
#include "scheduling/batcher.h"
#include "scheduling/scheduler.h"

namespace radserve {

/// One environment's (one JavaScript thread's) letter box. Engine threads post to it, the environment takes.
/// After Close nothing is posted, and no engine thread reads memory that belongs to the environment.
class Client {
 public:
  struct Letter {
    uint64_t ticket = 0;
    std::optional<Failure> failure;
  };

  /// `notify` is called where the first letter lies in an empty box; it must only wake the environment.
  explicit Client(std::function<void()> notify) : notify_(std::move(notify)) {}
  void Post(uint64_t ticket, const std::optional<Failure>& failure);
  std::vector<Letter> Take();
  /// Waits for engine threads that read the environment's memory, or notify it, at this moment. Idempotent.
  void Close();

  /// Holds the environment's memory in place while it lives. Throws `cancelled` after Close.
  class Pin {
   public:
    explicit Pin(Client& client);
    ~Pin();
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;

   private:
    Client& client_;
  };

 private:
  void Unpin();

  std::mutex mutex_;
  std::condition_variable unpinned_;
  std::function<void()> notify_;
  std::vector<Letter> letters_;
  int pins_ = 0;
  bool closed_ = false;
};

/// A task that answers by letter. Results lie in the task when the letter without a failure has come.
class Request : public Task {
 public:
  void Done(const std::optional<Failure>& failure) noexcept override;

  std::shared_ptr<Client> client;
  uint64_t ticket = 0;
};

struct Model {
  std::unique_ptr<Session> session;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  SessionSettings settings;
  uint64_t owner = 0;
  /// From Engine::Warm on; 0 before.
  uint64_t id = 0;
  std::string name;
  std::string version;
  /// Rows that may run together, at most.
  int64_t max_batch = 1;
  /// Where its images run in batches; nullptr where each runs on its own thread. Set before Keep.
  Batcher* batcher = nullptr;
  mutable RunStats runs;
  /// Called when the last user is done and the session's memory is back.
  std::function<void()> released;

  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  ~Model();
  /// Names of the raw outputs, each once, in the manifest's order.
  std::vector<std::string> OutputNames() const;
};

struct Timings {
  double queue_ms = 0;
  double prepare_ms = 0;
  double run_ms = 0;
  double postprocess_ms = 0;
};

/// What only the preparation knows, for receipts.
struct PreparationFacts {
  /// Of one frame; a volume's grid follows from its manifest.
  std::optional<Geometry> geometry;
  std::optional<Statistics> found;
  std::optional<Range> observed;
};

class InspectRequest : public Request {
 public:
  void Run(const Lane& lane) override;

  std::string path;
  GraphInfo graph;
};

class LoadRequest : public Request {
 public:
  void Run(const Lane& lane) override;
  /// Takes the model back where the load failed after all.
  void Done(const std::optional<Failure>& failure) noexcept override;

  std::string path;
  /// Specs, settings and owner filled; the session comes with Run.
  std::shared_ptr<Model> model;
  uint64_t id = 0;
};

/// Work for one model. On the CPU all of it on one engine thread; where the model runs in batches the request
/// parks while the device has its row.
class ModelRequest : public Request {
 public:
  Clock::duration DeviceTime() const override;

  std::shared_ptr<const Model> model;

 protected:
  /// Whether this run is to go to the device with others.
  bool Batched(const Lane& lane) const;
  /// Makes the input where the device that is to run it likes to have it.
  TensorMaker InputMaker() const;
  void Park(const Lane& lane, Tensor input);
  bool parked() const { return row_ != nullptr; }
  /// What came out while it was parked, in the order of Model::OutputNames, and how long its batch ran.
  /// Throws what failed.
  std::pair<std::vector<Tensor>, Clock::duration> TakeRow();

 private:
  std::shared_ptr<BatchRow> row_;
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
};

/// One frame, or the slices of one volume, through one model: prepare, run, post-process.
class InferRequest : public ModelRequest {
 public:
  void Run(const Lane& lane) override;
  /// Throws bad_request if the model wants a volume and there is none, or the other way round.
  void SetPlanes(std::vector<Plane> given, const std::optional<VolumeGeometry>& lies);
  /// The given thresholds, or the manifest's. Throws bad_request where the given ones do not fit its labels.
  void SetThresholds(const std::optional<std::vector<std::vector<double>>>& given);

  std::vector<Plane> planes;
  /// There for volumes.
  std::optional<VolumeGeometry> geometry;
  /// For each output one number a label.
  std::vector<std::vector<double>> thresholds;
  /// The tensor that goes in is wanted too.
  bool dump = false;

  std::vector<OutputResult> outputs;
  /// The raw tensors that came out, each once, in the manifest's order.
  std::vector<Tensor> raw;
  /// The one that went in; after the run only where `dump` asks for it.
  Tensor input;
  PreparationFacts preparation;
  Timings timings;

 private:
  void Prepare(const Lane& lane);
  /// On this thread.
  void RunModel(const Lane& lane);
  void PostprocessAll(const Lane& lane);
  const Tensor& Raw(const std::string& name) const;

  /// Where the input lies in the source; one of them is there. The tensors have moved to `input`.
  std::optional<PreparedImage> image_;
  std::optional<PreparedVolume> volume_;
};

/// Raw tensors through one model, the same way as images where they are of one image: what a canary shows
/// holds for them.
class TensorRequest : public ModelRequest {
 public:
  void Run(const Lane& lane) override;

  /// Over the environment's memory.
  std::vector<Tensor> feeds;
  std::vector<Tensor> outputs;

 private:
  /// One image's tensor for a graph of one input, all of whose outputs the manifest names.
  bool IsRow() const;
};

class RenderRequest : public Request {
 public:
  void Run(const Lane& lane) override;

  Plane plane;
  int voi_index = 0;
  int width = 0;
  int height = 0;
  /// uint8 [1,H,W,3].
  Tensor picture;
};

/// What all environments of the process share: threads, queues, models. Never destroyed (see StartRuntime); a
/// hook at exit stops the threads.
class Engine {
 public:
  /// Use Start: one for the process.
  explicit Engine(int threads);

  /// The first call decides the number of threads for the process.
  static Engine& Start(int threads);
  static Engine& Get();
  /// nullptr before Start.
  static Engine* Started();

  int threads() const { return threads_; }
  Scheduler& work() { return work_; }
  /// Loading and inspecting, one at a time, beside the work.
  Scheduler& housekeeping() { return housekeeping_; }

  /// Warms a model, and decides whether its images run in batches. Throws EngineError.
  void Warm(const std::shared_ptr<Model>& model, const std::stop_token& stop);
  uint64_t NewId();
  void Keep(std::shared_ptr<Model> model);
  /// Drops what the queues know of a model that is going.
  void Forget(const Model& model);
  /// The models in the order of their numbers.
  std::vector<std::shared_ptr<const Model>> Models();
  /// Throws model_unavailable.
  std::shared_ptr<Model> Find(uint64_t id);
  /// The registry's own reference; nullptr where there is none.
  std::shared_ptr<Model> Remove(uint64_t id);
  /// An environment has ended: its work is cancelled, its models go.
  void RemoveOwner(uint64_t owner);
  bool Stop(Clock::duration patience);

 private:
  const int threads_;
  Scheduler work_;
  Scheduler housekeeping_;
  Batcher& TheBatcher();

  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Model>> models_;
  uint64_t next_id_ = 1;
  /// Made for the first model that runs in batches.
  std::unique_ptr<Batcher> batcher_;
  SessionDevice* device_ = nullptr;
};

}  // namespace radserve

#endif  // RADSERVE_ENGINE_H_
