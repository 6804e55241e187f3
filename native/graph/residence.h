#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "scheduling/task.h"

namespace radserve {

/// Whether a model is in memory, who uses it, and who waits for it. It knows neither sessions nor
/// threads: whoever is told to unload the model, or to load it again, does so and says when that is
/// done. All methods may be called from any thread, and call nobody with the lock.
///
/// loaded -> (draining ->) unloaded -> reloading -> loaded. Only a model that nobody uses is
/// unloaded.
class Residence {
 public:
  enum class State { kLoaded, kDraining, kUnloaded, kReloading };

  /// A request that waits for the model.
  struct PendingUse {
    explicit PendingUse(std::function<void()> resume_it) : resume(std::move(resume_it)) {}
    /// Called once: when the model is loaded, when it cannot be, or after Drop.
    std::function<void()> resume;
    /// Set before. The use of the loaded model has begun: whoever waited ends it.
    bool entered = false;
    std::optional<Failure> failure;
  };

  struct Figures {
    State state = State::kLoaded;
    /// How often it was loaded, when last, and how long that took.
    uint64_t loads = 0;
    Clock::time_point loaded;
    Clock::duration load_time{};
    /// Why it could not be loaded when it was last wanted.
    std::optional<Failure> failure;
  };

  /// Begins a use. False unless the model is loaded, and not draining.
  bool BeginUse();
  /// Ends a use. True if it was the last of a model that drains: then BeginUnload.
  bool EndUse();
  /// Waits for the model and a use of it; if it is loaded already, both come at once. True if the
  /// caller is to load it.
  bool Wait(const std::shared_ptr<PendingUse>& pending);
  /// Waits no longer.
  void Drop(const std::shared_ptr<PendingUse>& pending);

  /// Since when nobody uses it; nullopt while somebody does, or unless it is loaded.
  std::optional<Clock::time_point> UnusedSince() const;
  /// It is to be unloaded as soon as nobody uses it, and until then nobody new does. False unless
  /// it is loaded.
  bool Drain();
  /// The caller unloads it now, and calls Unloaded. False if somebody uses it, if it is not loaded,
  /// or was used after `unused_since`.
  bool BeginUnload(Clock::time_point unused_since);
  /// True if somebody waits for it already, and the caller is to load it again.
  bool Unloaded();
  /// False if nobody waits for it any more: then it stays unloaded.
  bool HasPending();
  /// It is loaded, and those who wait use it: none of them finds it gone again. It took so long.
  void Loaded(Clock::duration took);
  /// It could not be loaded. The next request asks again.
  void LoadFailed(const Failure& failure);

  Figures Get() const;

 private:
  mutable std::mutex mutex_;
  Figures figures_;
  size_t uses_ = 0;
  Clock::time_point last_use_ = Clock::now();
  std::vector<std::shared_ptr<PendingUse>> pending_;
};

}  // namespace radserve
