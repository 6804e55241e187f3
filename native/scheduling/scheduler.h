#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "scheduling/agenda.h"
#include "scheduling/task.h"

namespace radserve {

/// Threads of its own that run tasks. The whole contract:
///
/// - A task that Submit took ends exactly once, by Done; one that it refused was never kept.
/// - The order of starts is FairQueue's: class, aging, fair shares of the models, deadline,
///   arrival.
/// - Deadlines are exact: a timer ends what waits and asks to stop what runs, to the moment.
/// - A cancelled task that has not started never starts. One that runs is asked to stop and ends
///   when it does.
/// - A task may park: it gives its thread back while a device has it.
///
/// All methods may be called from any thread. No callback runs with a lock.
class Scheduler {
 public:
  using Stats = Agenda::Stats;

  explicit Scheduler(int threads);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Throws EngineError: shutting_down after Stop, deadline_exceeded if the deadline has passed.
  void Submit(const std::shared_ptr<Task>& task);
  /// Ends waiting tasks of that id with `cancelled` and asks started ones to stop.
  void Cancel(uint64_t cancel_id);
  /// The same for all tasks of an environment.
  void CancelEnvironment(uint64_t environment);
  /// At most so many tasks of a flow started and not ended (stat: twice as many): preparation runs
  /// ahead of a device, but not without end. 0 for no bound.
  void SetStartLimit(uint64_t flow, size_t limit);
  /// Drops what is known of a flow whose last task has ended.
  void Forget(uint64_t flow);
  Stats GetStats() const;
  /// Refuses new work, ends what waits with shutting_down, asks what has started to stop, and waits
  /// for it until `patience` is over. Returns true if all threads have ended. Idempotent.
  bool Stop(Clock::duration patience);

 private:
  using EntryPtr = Agenda::EntryPtr;

  void Work();
  void WatchDeadlines(std::stop_token stop);
  void RunEntry(const EntryPtr& entry);
  void Resume(const EntryPtr& entry);
  bool Wide() const;
  /// Ends or stops every entry that `match` picks.
  void StopEntries(const std::function<bool(const Task&)>& match, const Failure& reason);
  /// Returns true if the entry waited, and has ended; else the caller requests its stop. Called
  /// with the lock.
  bool Withdraw(const EntryPtr& entry, const Failure& reason);

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable_any timer_;
  std::condition_variable ended_;
  Agenda agenda_;
  /// When the thread of deadlines wakes by itself: only a deadline before that wakes it.
  Clock::time_point watched_;
  bool stopping_ = false;
  const size_t width_;
  int live_threads_;
  std::vector<std::jthread> threads_;
};

}  // namespace radserve
