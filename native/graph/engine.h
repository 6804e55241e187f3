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

#include "graph/model.h"
#include "runtime/session.h"
#include "runtime/session_device.h"
#include "scheduling/batcher.h"
#include "scheduling/scheduler.h"

namespace radserve {

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
  /// Warms a model, and decides whether its rows run in batches. Throws EngineError.
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
  /// The model of that key, which the environment holds from now on; nullptr if there is none.
  std::shared_ptr<Model> Hold(const std::string& key, uint64_t environment);
  /// Ends one hold of the environment. Gives the registry's own reference if it was the last of
  /// all, else nullptr.
  std::shared_ptr<Model> LetGo(uint64_t id, uint64_t environment);
  /// An environment has ended: its work is cancelled, and its holds with it.
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
  void Reload(const std::shared_ptr<const Model>& model, const TaskContext& context);
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
