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
/// resumed -> running. What has started is not taken back: it is asked to stop. A run that goes on
/// a second after that is late.
///
/// Where there are `places`, so many runs go on at a time, and two more: one of a subject that has
/// no other, so that nobody keeps all places from another, and one that is stat. A late run has no
/// place of those; of more late runs than there are places each takes one away again. A subject has
/// at most as many runs as there are places, late ones included: so it cannot come to hold more.
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
    /// See Agenda.
    bool late = false;
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
    /// Runs that are late now.
    size_t late_runs = 0;
  };
  struct Stats {
    Counts queued{};
    size_t running = 0;
    size_t parked = 0;
    /// Runs that are late now.
    size_t late_runs = 0;
    uint64_t completed = 0;
    uint64_t failed = 0;
    std::map<uint64_t, FlowStats> flows;
  };

  /// places: 0 is no bound.
  explicit Agenda(const FairQueue::Options& order = {}, size_t places = 0)
      : places_(places), queue_(order) {}

  /// Throws EngineError deadline_exceeded if the deadline has passed.
  EntryPtr Add(const std::shared_ptr<Task>& task, Clock::time_point now);
  /// The next entry to run, which is running from now on; nullptr if no entry may start. Resumed
  /// work goes first: it is short, and it keeps results in memory.
  EntryPtr Next(Clock::time_point now);
  /// Whether Next would give an entry.
  bool HasNext(Clock::time_point now) const;
  /// A started entry has been asked to stop.
  void Told(const EntryPtr& entry, Clock::time_point now);
  /// An entry that has become late; each is given out once. nullptr if there is no such entry.
  EntryPtr Late(Clock::time_point now);
  /// When Overdue or Late may give an entry.
  std::optional<Clock::time_point> NextLook() const;
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
    Counts queued{};
  };

  /// Flows of the queue are those of a model and a subject.
  static uint64_t QueueFlow(const Task& task) { return task.flow << 32 | task.subject; }
  bool MayStart(uint64_t queue_flow, Priority priority) const;
  bool HasPlace(uint32_t subject, Priority priority) const;
  const FairQueue::Item* NextItem(Clock::time_point now) const;
  void BeginRun(Entry& entry, Clock::time_point now);
  void EndRun(Entry& entry, Clock::time_point now);
  static Clock::duration Expected(const std::array<MedianTime, kPriorities>& times,
                                  Priority priority);
  void End(const EntryPtr& entry, bool good);

  const size_t places_;
  FairQueue queue_;
  /// Runs that go on of each subject.
  std::map<uint32_t, size_t> held_;
  /// Numbers of entries that were asked to stop, by when they will be late. They hold no share of
  /// them: the last one may be that of a model, which is not to go with the caller's lock.
  std::multimap<Clock::time_point, uint64_t> told_;
  size_t late_ = 0;
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
