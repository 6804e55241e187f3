#ifndef RADSERVE_SCHEDULER_H_
#define RADSERVE_SCHEDULER_H_

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace radserve {

using Clock = std::chrono::steady_clock;

enum class Priority { kStat, kRoutine, kBulk };

/// Why a task has no result: a code of src/errors.ts and a message.
struct Failure {
  std::string code;
  std::string message;
};

class Lane;

/// One request. Whoever submits it fills the public fields and does not touch them afterwards.
///
/// Ownership: the scheduler shares the task from Submit until Done has returned. Submit either throws, and
/// then nothing of the task was called or kept, or calls Done exactly once.
class Task {
 public:
  virtual ~Task() = default;
  /// On an engine thread. Throws to fail; a throw after `lane.stop()` was requested counts as the reason of
  /// the stop.
  virtual void Run(const Lane& lane) = 0;
  /// The end, with a failure or without: on an engine thread, or, for work that never ran, on the thread that
  /// cancelled it. No lock is held.
  virtual void Done(const std::optional<Failure>& failure) noexcept = 0;

  Priority priority = Priority::kRoutine;
  std::optional<Clock::time_point> deadline;
  /// For Cancel; 0 is nobody's.
  uint64_t cancel_id = 0;
  /// For CancelOwner: the environment that submitted it.
  uint64_t owner = 0;
  /// Memory that it holds while it waits.
  size_t bytes = 0;
};

/// What a running task sees of its thread.
class Lane {
 public:
  Lane(std::stop_token stop, Clock::time_point submitted, std::function<bool()> wide)
      : stop_(std::move(stop)), submitted_(submitted), wide_(std::move(wide)) {}
  /// Requested on cancellation, at the deadline and at shutdown.
  const std::stop_token& stop() const { return stop_; }
  Clock::time_point submitted() const { return submitted_; }
  /// True while so few requests are there that each may use all cores; asked right before a model runs.
  bool Wide() const { return wide_(); }

 private:
  std::stop_token stop_;
  Clock::time_point submitted_;
  std::function<bool()> wide_;
};

/// Threads of its own that run tasks: stat before routine before bulk, the earliest deadline first within a
/// class, then in order of arrival. One start in eight goes to the task that has waited longest, so nothing
/// starves. Deadlines are kept by a timer: waiting tasks end at once, running ones are asked to stop. All
/// methods may be called from any thread.
class Scheduler {
 public:
  struct Options {
    int threads = 1;
    size_t queue_limit = 1024;
    size_t queue_bytes = size_t{4} << 30;
  };
  struct Stats {
    std::array<size_t, 3> queued{};
    size_t queued_bytes = 0;
    size_t running = 0;
    uint64_t completed = 0;
    uint64_t failed = 0;
    uint64_t refused = 0;
  };

  explicit Scheduler(const Options& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Throws EngineError: overloaded where the queue is full, shutting_down after Stop, deadline_exceeded
  /// where the deadline has passed.
  void Submit(std::shared_ptr<Task> task);
  /// Ends waiting tasks of that id with `cancelled` and asks running ones to stop.
  void Cancel(uint64_t cancel_id);
  /// The same for all tasks of an owner.
  void CancelOwner(uint64_t owner);
  Stats GetStats() const;
  /// Refuses new work, ends what waits with shutting_down, asks what runs to stop, and waits for it until
  /// `patience` is over. True where all threads have ended. Idempotent.
  bool Stop(Clock::duration patience);

 private:
  struct Entry;
  using EntryPtr = std::shared_ptr<Entry>;
  /// Deadline, then arrival.
  using Key = std::pair<Clock::time_point, uint64_t>;

  void Work();
  void WatchDeadlines(std::stop_token stop);
  EntryPtr TakeNext();
  void RunEntry(const EntryPtr& entry);
  void Remove(const EntryPtr& entry);
  bool Wide() const;
  /// Ends or stops every entry that `match` picks.
  void StopEntries(const std::function<bool(const Task&)>& match, const Failure& reason);

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable_any timer_;
  std::condition_variable ended_;
  std::array<std::map<Key, EntryPtr>, 3> queues_;
  /// Waiting tasks by arrival.
  std::map<uint64_t, EntryPtr> arrivals_;
  /// Waiting and running tasks that have a deadline.
  std::map<Key, EntryPtr> deadlines_;
  std::map<uint64_t, EntryPtr> running_;
  Stats stats_;
  uint64_t next_number_ = 1;
  uint64_t starts_ = 0;
  bool stopping_ = false;
  int live_threads_ = 0;
  std::vector<std::jthread> threads_;
};

}  // namespace radserve

#endif  // RADSERVE_SCHEDULER_H_
