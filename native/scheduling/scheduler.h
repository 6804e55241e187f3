#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
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
/// - With places, more threads start where Agenda has work for them: for a subject that all the
///   others keep out, for stat, and in place of one whose run is late. That one gets the lowest
///   priority of the system, and ends with its run.
///
/// All methods may be called from any thread. No callback runs with a lock.
class Scheduler {
 public:
  using Stats = Agenda::Stats;

  /// with_places: see Agenda; there are as many places as threads. Throws std::system_error if the
  /// system gives it none; of fewer than it asks for, here and later, it makes do.
  explicit Scheduler(int threads, bool with_places = false);
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

  /// A thread that runs tasks.
  struct Worker {
    std::jthread thread;
    /// It works beside those that are always there, and only where these are busy.
    bool spare = false;
    pid_t id = 0;
    /// Number of the entry that it runs; 0 for none.
    uint64_t entry = 0;
    /// Its priority was taken: it ends with its run.
    bool lowered = false;
    bool ended = false;
  };

  /// False if the system gives no thread now. Called with the lock.
  bool StartWorker(bool spare);
  /// Whether a thread whose priority was taken is to end: one that nothing can replace works on.
  /// Called with the lock.
  bool Gives(const Worker& self);
  void Work(Worker& self);
  EntryPtr NextFor(Worker& self, std::unique_lock<std::mutex>& lock);
  /// Wakes or starts a thread for work that may start now. Called with the lock.
  void Wake();
  void WatchDeadlines(std::stop_token stop);
  /// Ends an entry whose time is over, lowers one that is late, and joins threads that have ended.
  /// Called with the lock, which it gives up meanwhile. False if there was nothing to do.
  bool LookOnce(std::unique_lock<std::mutex>& lock);
  void LowerWorkerOf(const EntryPtr& entry);
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
  /// For spare threads.
  std::condition_variable spare_work_;
  std::condition_variable_any timer_;
  std::condition_variable ended_;
  Agenda agenda_;
  /// When the thread of deadlines wakes by itself: only a deadline before that wakes it.
  Clock::time_point watched_;
  bool stopping_ = false;
  const size_t width_;
  const bool with_places_;
  size_t live_threads_ = 0;
  size_t spare_threads_ = 0;
  /// Threads that wait for work, of those that are always there and of the spare ones.
  size_t idle_ = 0;
  size_t idle_spare_ = 0;
  std::list<Worker> workers_;
  std::jthread watch_;
};

}  // namespace radserve
