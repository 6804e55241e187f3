#include "scheduling/scheduler.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace radserve {
namespace {

/// The lowest priority that a thread may have (setpriority(2)).
constexpr int kLowest = 19;

Failure DeadlineFailure() {
  return {"deadline_exceeded", "The work did not finish within its time."};
}

}  // namespace

Scheduler::Scheduler(int threads, bool with_places)
    : agenda_({}, with_places ? static_cast<size_t>(threads) : 0),
      width_(static_cast<size_t>(threads)),
      with_places_(with_places) {
  // First, because workers would be waited for if it were refused.
  watch_ = std::jthread([this](std::stop_token stop) { WatchDeadlines(std::move(stop)); });
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < threads; ++i) {
    if (!StartWorker(false)) break;
  }
  if (workers_.empty())
    throw std::system_error(EAGAIN, std::generic_category(), "No thread can be started");
}

Scheduler::~Scheduler() { Stop(Clock::duration::max()); }

bool Scheduler::StartWorker(bool spare) {
  Worker& worker = workers_.emplace_back();
  worker.spare = spare;
  try {
    worker.thread = std::jthread([this, &worker] { Work(worker); });
  } catch (const std::system_error&) {
    workers_.pop_back();
    return false;
  }
  ++live_threads_;
  if (spare) ++spare_threads_;
  return true;
}

bool Scheduler::Gives(const Worker& self) {
  return self.lowered && (self.spare || stopping_ || StartWorker(false));
}

void Scheduler::Submit(const std::shared_ptr<Task>& task) {
  const std::lock_guard lock(mutex_);
  if (stopping_)
    throw EngineError("shutting_down", "The engine is stopping and takes no new work.");
  agenda_.Add(task, Clock::now());
  if (task->deadline && *task->deadline < watched_) timer_.notify_all();
  Wake();
}

void Scheduler::Wake() {
  if (idle_ > 0 || !with_places_) {
    work_.notify_one();
    return;
  }
  // Two beside the places, and one for each place that a late run may hold
  if (stopping_ || !agenda_.HasNext(Clock::now())) return;
  if (idle_spare_ > 0) {
    spare_work_.notify_one();
  } else if (spare_threads_ < width_ + 2) {
    StartWorker(true);
  }
}

Agenda::EntryPtr Scheduler::NextFor(Worker& self, std::unique_lock<std::mutex>& lock) {
  EntryPtr entry;
  size_t& idle = self.spare ? idle_spare_ : idle_;
  const auto found = [&] {
    if (!self.spare || idle_ == 0) entry = agenda_.Next(Clock::now());
    return entry != nullptr || (stopping_ && agenda_.idle());
  };
  if (!found()) {
    ++idle;
    (self.spare ? spare_work_ : work_).wait(lock, found);
    --idle;
  }
  return entry;
}

void Scheduler::Work(Worker& self) {
  std::unique_lock lock(mutex_);
  self.id = gettid();
  while (!Gives(self)) {
    EntryPtr entry = NextFor(self, lock);
    if (entry == nullptr) break;
    self.entry = entry->number;
    // What it leaves may be for others
    if (with_places_ && idle_ == 0) Wake();
    lock.unlock();
    RunEntry(entry);
    entry.reset();
    lock.lock();
    self.entry = 0;
    // A spare thread takes no work while a usual one waits. Its end may let a task start that its
    // model or its subject held back, so that it wakes the other.
    if (self.spare && idle_ > 0) work_.notify_one();
  }
  if (self.spare) --spare_threads_;
  self.ended = true;
  --live_threads_;
  ended_.notify_all();
  timer_.notify_all();
}

void Scheduler::RunEntry(const EntryPtr& entry) {
  bool parked = false;
  std::optional<Failure> failure;
  const auto park = [&parked, this, entry]() -> std::function<void()> {
    parked = true;
    return [this, entry] { Resume(entry); };
  };
  try {
    // Cancelled between its start and here.
    if (!std::exchange(entry->begun, true) && entry->stop.stop_requested())
      throw EngineError("cancelled", "");
    entry->task->Run(TaskContext(
        entry->stop.get_token(), entry->submitted, [this] { return Wide(); }, park));
  } catch (...) {
    failure = Failure::Caught();
  }
  {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (parked && !failure) {
      if (agenda_.Park(entry, now)) Wake();
      return;
    }
    if (entry->reason) failure = entry->reason;
    const bool late = entry->late;
    agenda_.Finish(entry, !failure, now);
    if (late) Wake();
    if (stopping_ && agenda_.idle()) {
      work_.notify_all();
      spare_work_.notify_all();
    }
  }
  entry->task->Done(failure);
}

void Scheduler::Resume(const EntryPtr& entry) {
  const std::lock_guard lock(mutex_);
  if (agenda_.Resume(entry)) Wake();
}

bool Scheduler::Wide() const {
  const std::lock_guard lock(mutex_);
  return (agenda_.running() + agenda_.waiting()) * 2 <= width_;
}

bool Scheduler::Withdraw(const EntryPtr& entry, const Failure& reason) {
  if (entry->state == Agenda::State::kWaiting) {
    agenda_.Withdraw(entry);
    return true;
  }
  if (!entry->reason) entry->reason = reason;
  agenda_.Told(entry, Clock::now());
  timer_.notify_all();
  return false;
}

void Scheduler::StopEntries(const std::function<bool(const Task&)>& match, const Failure& reason) {
  std::vector<EntryPtr> waiting;
  std::vector<EntryPtr> started;
  {
    const std::lock_guard lock(mutex_);
    for (EntryPtr& entry : agenda_.Matching(match)) {
      const bool ended = Withdraw(entry, reason);
      (ended ? waiting : started).push_back(std::move(entry));
    }
  }
  // Callbacks of the stop token and Done run without the lock, because they may take others.
  for (const EntryPtr& entry : started) entry->stop.request_stop();
  for (const EntryPtr& entry : waiting) entry->task->Done(reason);
}

void Scheduler::Cancel(uint64_t cancel_id) {
  if (cancel_id == 0) return;
  StopEntries([&](const Task& task) { return task.cancel_id == cancel_id; },
              {"cancelled", "The work was cancelled."});
}

void Scheduler::CancelEnvironment(uint64_t environment) {
  StopEntries([&](const Task& task) { return task.environment == environment; },
              {"cancelled", "The thread that asked for the work has ended."});
}

void Scheduler::LowerWorkerOf(const EntryPtr& entry) {
  const auto runs = [&](const Worker& worker) { return worker.entry == entry->number; };
  const auto worker = std::ranges::find_if(workers_, runs);
  if (worker == workers_.end()) return;
  worker->lowered = true;
  // What cannot be lowered works on as before
  setpriority(PRIO_PROCESS, static_cast<id_t>(worker->id), kLowest);
}

bool Scheduler::LookOnce(std::unique_lock<std::mutex>& lock) {
  const Clock::time_point now = Clock::now();
  if (EntryPtr entry = agenda_.Overdue(now)) {
    const bool ended = Withdraw(entry, DeadlineFailure());
    lock.unlock();
    if (ended) {
      entry->task->Done(DeadlineFailure());
    } else {
      entry->stop.request_stop();
    }
    // The last share of a task goes without the lock: destructors are the task's own.
    entry.reset();
    lock.lock();
    return true;
  }
  if (EntryPtr entry = agenda_.Late(now)) {
    if (with_places_) LowerWorkerOf(entry);
    Wake();
    lock.unlock();
    entry.reset();
    lock.lock();
    return true;
  }
  const auto ended = std::ranges::find_if(workers_, &Worker::ended);
  if (ended == workers_.end() || stopping_) return false;
  std::list<Worker> gone;
  gone.splice(gone.begin(), workers_, ended);
  lock.unlock();
  gone.clear();
  lock.lock();
  return true;
}

void Scheduler::WatchDeadlines(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (LookOnce(lock)) continue;
    watched_ = agenda_.NextLook().value_or(Clock::now() + std::chrono::hours(1));
    timer_.wait_until(lock, stop, watched_, [&] {
      return agenda_.NextLook().value_or(watched_) < watched_ ||
             (!stopping_ && std::ranges::any_of(workers_, &Worker::ended));
    });
  }
}

void Scheduler::SetStartLimit(uint64_t flow, size_t limit) {
  const std::lock_guard lock(mutex_);
  agenda_.SetStartLimit(flow, limit);
  work_.notify_all();
  Wake();
}

void Scheduler::Forget(uint64_t flow) {
  const std::lock_guard lock(mutex_);
  agenda_.Forget(flow);
}

Scheduler::Stats Scheduler::GetStats() const {
  const std::lock_guard lock(mutex_);
  return agenda_.GetStats();
}

bool Scheduler::Stop(Clock::duration patience) {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  StopEntries([](const Task&) { return true; }, {"shutting_down", "The engine is stopping."});
  work_.notify_all();
  spare_work_.notify_all();
  {
    std::unique_lock lock(mutex_);
    const auto all_ended = [this] { return live_threads_ == 0; };
    if (patience == Clock::duration::max()) {
      ended_.wait(lock, all_ended);
    } else if (!ended_.wait_for(lock, patience, all_ended)) {
      return false;
    }
  }
  watch_.request_stop();
  if (watch_.joinable()) watch_.join();
  // Joins them
  workers_.clear();
  return true;
}

}  // namespace radserve
