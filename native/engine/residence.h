#ifndef RADSERVE_RESIDENCE_H_
#define RADSERVE_RESIDENCE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "scheduling/task.h"

namespace radserve {

/// Whether a model's memory is here, who uses it, and who waits for it. It knows neither sessions nor threads: whoever
/// is told to take the model away, or to bring it back, does so and says when that is done. All methods may be called
/// from any thread, and call nobody with the lock.
///
/// here -> (leaving ->) away -> returning -> here. Only a model that nobody uses goes away.
class Residence {
 public:
  enum class State { kHere, kLeaving, kAway, kReturning };

  /// A request that waits for the model.
  struct Waiter {
    explicit Waiter(std::function<void()> resume_it) : resume(std::move(resume_it)) {}
    /// Called once: when the model is here, when it cannot come, or after Drop.
    std::function<void()> resume;
    /// Set before. The use of a model that came has begun: whoever waited ends it.
    bool entered = false;
    std::optional<Failure> failure;
  };

  struct Figures {
    State state = State::kHere;
    /// How often it was loaded, when last, and how long that took.
    uint64_t loads = 0;
    Clock::time_point loaded;
    Clock::duration load_time{};
    /// Why it could not come back when it was last wanted.
    std::optional<Failure> failure;
  };

  /// Begins a use. False if the model is not here, or is about to leave.
  bool Enter();
  /// Ends a use. True if nobody uses the model any more and it is to leave: then BeginLeaving.
  bool Exit();
  /// Waits for the model and a use of it; where it is here already, both come at once. True if the caller is to bring it
  /// back.
  bool Wait(const std::shared_ptr<Waiter>& waiter);
  /// Waits no longer.
  void Drop(const std::shared_ptr<Waiter>& waiter);

  /// Since when nobody uses it, while it is here; nullopt while somebody does, or it is not here.
  std::optional<Clock::time_point> UnusedSince() const;
  /// It is to leave as soon as nobody uses it, and until then nobody new does. False if it is not here.
  bool Drain();
  /// Whoever calls takes it away now, and calls Left. False if somebody uses it, if it is not here, or was used after
  /// `unused_since`.
  bool BeginLeaving(Clock::time_point unused_since);
  /// True if somebody waits for it already, and the caller is to bring it back.
  bool Left();
  /// False if nobody waits for it any more: then it stays away.
  bool StillWanted();
  /// It is here, and those who wait use it: none of them finds it gone again. It took so long.
  void Came(Clock::duration took);
  /// It could not come back. The next request asks again.
  void CouldNotCome(const Failure& failure);

  Figures Get() const;

 private:
  mutable std::mutex mutex_;
  Figures figures_;
  size_t uses_ = 0;
  Clock::time_point last_use_ = Clock::now();
  std::vector<std::shared_ptr<Waiter>> waiters_;
};

}  // namespace radserve

#endif  // RADSERVE_RESIDENCE_H_
