#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "base/histogram.h"
#include "scheduling/fair_queue.h"
#include "scheduling/median_time.h"
#include "scheduling/task.h"

namespace radserve {

/// The scheduler's mind: what waits, what runs, and who is next. It knows neither threads nor
/// clocks nor locks, so that tests step it through millions of states in no time. It takes all that
/// comes: whoever serves requests bounds their number.
///
/// A task goes waiting -> running -> ended, and any number of times between running -> parked ->
/// resumed -> running. What has started is not taken back: it is asked to stop.
class Agenda {
 public:
  enum class State { kWaiting, kRunning, kParked, kResumed, kEnded };
  struct Entry {
    std::shared_ptr<Task> task;
    uint64_t number = 0;
    State state = State::kWaiting;
    Clock::time_point submitted;
    /// When the run that is under way began; before it, and between runs, meaningless.
    Clock::time_point started;
    /// Time that its runs have taken on threads so far.
    Clock::duration worked{};
    /// The charge of its model when it started: the time on threads and on a device that it was
    /// expected to take.
    Clock::duration charged{};
    /// Run was called. Only the thread that runs it reads this.
    bool begun = false;
    /// Resume came while its run had not returned.
    bool resumed_early = false;
    std::stop_source stop;
    /// Set before `stop` is requested.
    std::optional<Failure> reason;
  };
  using EntryPtr = std::shared_ptr<Entry>;
  using Counts = std::array<uint64_t, kPriorities>;
  struct FlowStats {
    Counts queued{};
    Counts started{};
    std::array<DurationHistogram, kPriorities> wait;
    /// Refused because the deadline had passed.
    uint64_t late = 0;
    uint64_t completed = 0;
    uint64_t failed = 0;
  };
  struct Stats {
    Counts queued{};
    size_t running = 0;
    size_t parked = 0;
    uint64_t completed = 0;
    uint64_t failed = 0;
    std::map<uint64_t, FlowStats> flows;
  };

  explicit Agenda(const FairQueue::Options& order = {}) : queue_(order) {}

  /// Throws EngineError deadline_exceeded if the deadline has passed.
  EntryPtr Add(const std::shared_ptr<Task>& task, Clock::time_point now);
  /// The next entry to run, which is running from now on; nullptr if no entry may start. Resumed
  /// work goes first: it is short, and it keeps results in memory.
  EntryPtr Next(Clock::time_point now);
  /// Its run has returned, and it is parked until Resume. Returns true if Resume has come already.
  bool Park(const EntryPtr& entry, Clock::time_point now);
  /// Returns true if a thread can take it now.
  bool Resume(const EntryPtr& entry);
  /// Ends what was running. Learns how long it took if it was good.
  void Finish(const EntryPtr& entry, bool good, Clock::time_point now);
  /// Ends what was waiting.
  void Withdraw(const EntryPtr& entry);
  /// An entry whose deadline has passed, waiting or started; each is given out once. nullptr if
  /// there is no such entry.
  EntryPtr Overdue(Clock::time_point now);
  std::optional<Clock::time_point> NextDeadline() const;
  /// Waiting and started entries that `match` picks, in order of arrival.
  std::vector<EntryPtr> Matching(const std::function<bool(const Task&)>& match) const;

  /// At most so many started tasks of a flow at a time (stat: twice as many); 0 for no bound.
  void SetStartLimit(uint64_t flow, size_t limit);
  /// Forgets a flow that will not come again, its statistics too.
  void Forget(uint64_t flow);
  /// Nothing waits, and all that has started has ended.
  bool idle() const { return entries_.empty(); }
  size_t waiting() const { return queue_.size(); }
  size_t running() const { return running_; }
  Stats GetStats() const;

 private:
  struct Flow {
    std::array<MedianTime, kPriorities> service;
    std::array<MedianTime, kPriorities> device;
    size_t started = 0;
    size_t start_limit = 0;
    FlowStats stats;
  };

  bool MayStart(uint64_t flow, Priority priority) const;
  static Clock::duration Expected(const std::array<MedianTime, kPriorities>& times,
                                  Priority priority);
  void End(const EntryPtr& entry, bool good);

  FairQueue queue_;
  /// All that has not ended, by arrival.
  std::map<uint64_t, EntryPtr> entries_;
  std::deque<EntryPtr> resumed_;
  std::map<std::pair<Clock::time_point, uint64_t>, EntryPtr> deadlines_;
  std::map<uint64_t, Flow> flows_;
  size_t running_ = 0;
  size_t parked_ = 0;
  uint64_t completed_ = 0;
  uint64_t failed_ = 0;
  uint64_t next_number_ = 1;
};

}  // namespace radserve
