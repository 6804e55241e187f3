#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor.h"
#include "engine/residence.h"
#include "engine/seen_runs.h"
#include "postprocess/output.h"
#include "prepare/input.h"
#include "runtime/session.h"
#include "runtime/session_device.h"
#include "scheduling/batcher.h"
#include "scheduling/scheduler.h"
#include "tiling/tiling.h"

namespace radserve {

/// Tensors that go into a model, and those that must come out: |found - expected| <= absolute +
/// relative * |expected| for each element.
struct Canary {
  std::vector<Tensor> feeds;
  std::vector<Tensor> expected;
  double absolute = 0;
  double relative = 0;
};

/// A model that is loaded. The registry of the engine and the requests under way share it.
struct Model {
  std::unique_ptr<Session> session;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  SessionSettings settings;
  /// The environment that loaded it.
  uint64_t environment = 0;
  /// Its number in the registry, from Engine::Warm on; 0 before.
  uint64_t id = 0;
  std::string name;
  std::string version;
  /// Whole images and volumes go through the graph window by window.
  std::optional<TilingSpec> tiling;
  /// The most that the network has been seen to take on its way through windows, beside its
  /// weights; 0 before the first.
  mutable std::atomic<size_t> window_bytes = 0;
  /// Looks at what windows have taken; after a run, and before what it took is given back.
  void SeeWindows() const;
  /// What runs without windows took.
  mutable SeenRuns seen;
  /// The size by which `seen` knows an image of so many pixels: one for all where each input has a
  /// size of its own.
  size_t SizeOf(size_t pixels) const;
  /// Most rows that may run together.
  int64_t max_batch = 1;
  /// Runs its images in batches, and the device that it feeds; nullptr if each runs on its own
  /// thread. Set before Keep.
  Batcher* batcher = nullptr;
  SessionDevice* device = nullptr;
  mutable RunStats runs;
  /// The output that it must still give when it is loaded again; under the engine's lock.
  std::shared_ptr<const Canary> canary;
  /// Requests use the model through it.
  mutable Residence residence;
  /// Called when the last user is done and the session's memory is given back.
  std::function<void()> released;

  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  ~Model();
  /// Whether it may be unloaded while nobody uses it, and loaded again for its next use.
  bool Evictable() const { return !settings.hashes.empty(); }
  /// Whether its outputs are boxes in volumes: what windows find is merged, instead of blended.
  bool FindsBoxes() const;
  /// Names of the raw outputs, each once, in the manifest's order.
  std::vector<std::string> OutputNames() const;
};

/// A use of a model that has begun: its last share ends it. It keeps the model.
std::shared_ptr<const void> UseOf(const std::shared_ptr<const Model>& model);

/// A model that ends on a thread of the engine, whoever drops the last share of it: to free a
/// gigabyte of weights takes seconds, and it may be the thread that serves requests that drops it.
std::shared_ptr<Model> MakeModel();

/// The state that all environments of the process share: threads, queues, models. It is never
/// destroyed (see StartRuntime); a hook at exit stops the threads.
class Engine {
 public:
  /// Call Start instead: there is one engine for the process.
  explicit Engine(int threads);

  /// The first call decides the number of threads for the process.
  static Engine& Start(int threads);
  static Engine& Get();
  /// nullptr before Start.
  static Engine* Started();

  int threads() const { return threads_; }
  Scheduler& work() { return work_; }
  /// Loads and inspects, one model at a time, beside the work.
  Scheduler& housekeeping() { return housekeeping_; }

  /// The GPU that a model of so many bytes of weights is to go to: of those that work and have room
  /// for it the one with the least waiting work, and of equal ones that with the most room. Where
  /// none has room, models that nobody uses are unloaded, those first that were not used for
  /// longest. `limit` is SessionSettings::device_memory. Throws NoRoomToLoad if none has room then,
  /// model_unavailable if all are lost. On the thread for housekeeping.
  int ChooseGpu(std::span<const int> gpus, size_t weights, size_t limit);
  /// The GPUs that models were loaded on, and the rows that wait for each. Their memory is what it
  /// was when they were last looked at, because CUDA may let whoever asks wait; asking has them
  /// looked at again.
  std::vector<std::pair<GpuUse, size_t>> Gpus();
  /// Looks at the memory of the GPUs. Not on a thread that must not wait.
  void RefreshGpus();
  /// Warms a model, and decides whether its images run in batches. Throws EngineError.
  void Warm(const std::shared_ptr<Model>& model, const std::stop_token& stop);
  /// Loads with `load`; while the memory does not suffice, models that nobody uses are unloaded
  /// from the CPU or GPU that the settings name. Throws what `load` does. On the thread for
  /// housekeeping.
  void LoadWithRoom(const SessionSettings& settings, const std::function<void()>& load);
  /// The evictable models on the CPU may have so many bytes of weights together; one alone may have
  /// more. No limit until this is called.
  void LimitWeights(size_t bytes) { weights_limit_ = bytes; }
  /// Unloads models that nobody uses, those first that were not used for longest, until so many
  /// bytes of weights have room on the CPU. False if those that are in use leave none. On the
  /// thread for housekeeping.
  bool MakeRoomOnCpu(const SessionSettings& place, size_t weights);
  /// Keeps the model's output for its canary, for when it is loaded again. Throws model_unavailable
  /// if there is no such model.
  void KeepCanary(uint64_t id, Canary canary);
  /// Unloads evictable models that nobody has used for so long. Those that could not be loaded
  /// again when they were last wanted are tried again: nobody may ask for them while the server
  /// says that it is not ready.
  void LeaveIdle(Clock::duration idle);
  /// Loads a model again for those who wait for it, in its turn among loads of that priority.
  void RequestReload(const std::shared_ptr<const Model>& model, Priority priority);
  /// Unloads a draining model that nobody uses any more.
  void RequestUnload(const std::shared_ptr<const Model>& model);
  /// A model has given its memory back: those that wait for room try again.
  void RoomMade();
  uint64_t NewId();
  void Keep(std::shared_ptr<Model> model);
  /// Drops what the queues know of a model that is going.
  void Forget(const Model& model);
  /// The models in the order of their numbers.
  std::vector<std::shared_ptr<const Model>> Models();
  /// Gives back what runs took and none needs now; the next ones take it again.
  void GiveBack();
  /// Throws model_unavailable.
  std::shared_ptr<Model> Find(uint64_t id);
  /// Gives the registry's own reference; nullptr if there is no such model.
  std::shared_ptr<Model> Remove(uint64_t id);
  /// An environment has ended: its work is cancelled, its models go.
  void RemoveEnvironment(uint64_t environment);
  bool Stop(Clock::duration patience);

  /// Windows that have run, and all of them.
  using Progress = std::pair<size_t, size_t>;
  /// How far work with a cancel id is; nothing once it has ended. Work without an id (0) tells
  /// nothing.
  void TellProgress(uint64_t cancel_id, const std::optional<Progress>& progress);
  std::optional<Progress> ProgressOf(uint64_t cancel_id);

 private:
  /// The device that runs batches on the CPU (-1) or on a GPU.
  struct Place {
    std::unique_ptr<Batcher> batcher;
    SessionDevice* device = nullptr;
    /// State of a GPU, as it was last looked at.
    GpuUse use;
  };
  static constexpr int kCpu = -1;

  Place& PlaceFor(const SessionSettings& settings);
  void RetryFailed(const std::shared_ptr<const Model>& model);

  // The functions below run on the thread for housekeeping; a place is a CPU or GPU, as settings
  // name it.

  /// Returns true if the model is unloaded.
  bool Unload(const std::shared_ptr<const Model>& model, Clock::time_point unused_since);
  void Reload(const std::shared_ptr<const Model>& model);
  /// The model is loaded once another has been unloaded that is in use now. False if there is none.
  bool AwaitRoom(const std::shared_ptr<const Model>& model);
  /// Whether so many bytes of weights have room beside those of the evictable models on the CPU.
  bool HasRoomOnCpu(const SessionSettings& place, size_t weights);
  /// All models give up their second lanes. False if none has one.
  bool ForgoLanes();
  /// Makes room: second lanes go first, then the evictable model that was not used for longest.
  /// False if all are in use.
  bool EvictUnused(const SessionSettings& place);
  /// Whether a model drains, from now on if none did: the one that was loaded first. False if there
  /// is none.
  bool DrainOne(const SessionSettings& place);
  /// The evictable models that are loaded.
  std::vector<std::shared_ptr<const Model>> EvictableOn(const SessionSettings& place);
  /// Whether a GPU would have room if all models were unloaded that nobody uses.
  bool CouldHaveRoom(const GpuUse& use, size_t weights);

  const int threads_;
  Scheduler work_;
  Scheduler housekeeping_;
  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Model>> models_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Progress> progress_;
  /// Each is made for the first model that runs in batches there, and stays: a device does not wait
  /// for another.
  std::map<int, Place> places_;
  /// RefreshGpus is to be called by the thread for housekeeping.
  bool refreshing_ = false;
  /// Models that are loaded again once others are unloaded.
  std::vector<std::shared_ptr<const Model>> awaiting_room_;
  std::atomic<size_t> weights_limit_ = std::numeric_limits<size_t>::max();
};

}  // namespace radserve
