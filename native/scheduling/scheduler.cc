#include "scheduling/scheduler.h"

#include <utility>

#include "base/error.h"

namespace radserve {
namespace {

Failure DeadlineFailure() {
  return {"deadline_exceeded", "The work did not finish within its time."};
}

}  // namespace

Scheduler::Scheduler(int threads) : width_(static_cast<size_t>(threads)), live_threads_(threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  threads_.emplace_back([this](std::stop_token stop) { WatchDeadlines(std::move(stop)); });
}

Scheduler::~Scheduler() { Stop(Clock::duration::max()); }

void Scheduler::Submit(const std::shared_ptr<Task>& task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_)
      throw EngineError("shutting_down", "The engine is stopping and takes no new work.");
    agenda_.Add(task, Clock::now());
    if (task->deadline && *task->deadline < watched_) timer_.notify_all();
  }
  // The thread that wakes wants the lock at once.
  work_.notify_one();
}

void Scheduler::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    EntryPtr entry;
    work_.wait(lock, [&] {
      entry = agenda_.Next(Clock::now());
      return entry != nullptr || (stopping_ && agenda_.idle());
    });
    if (entry == nullptr) break;
    lock.unlock();
    RunEntry(entry);
    entry.reset();
    lock.lock();
  }
  --live_threads_;
  ended_.notify_all();
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
      if (agenda_.Park(entry, now)) work_.notify_one();
      return;
    }
    if (entry->reason) failure = entry->reason;
    agenda_.Finish(entry, !failure, now);
    if (stopping_ && agenda_.idle()) work_.notify_all();
  }
  entry->task->Done(failure);
}

void Scheduler::Resume(const EntryPtr& entry) {
  const std::lock_guard lock(mutex_);
  if (agenda_.Resume(entry)) work_.notify_one();
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

void Scheduler::WatchDeadlines(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (EntryPtr entry = agenda_.Overdue(Clock::now())) {
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
      continue;
    }
    watched_ = agenda_.NextDeadline().value_or(Clock::now() + std::chrono::hours(1));
    timer_.wait_until(lock, stop, watched_,
                      [&] { return agenda_.NextDeadline().value_or(watched_) < watched_; });
  }
}

void Scheduler::SetStartLimit(uint64_t flow, size_t limit) {
  const std::lock_guard lock(mutex_);
  agenda_.SetStartLimit(flow, limit);
  work_.notify_all();
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
  {
    std::unique_lock lock(mutex_);
    const auto all_ended = [this] { return live_threads_ == 0; };
    if (patience == Clock::duration::max()) {
      ended_.wait(lock, all_ended);
    } else if (!ended_.wait_for(lock, patience, all_ended)) {
      return false;
    }
  }
  for (std::jthread& thread : threads_) {
    thread.request_stop();
    if (thread.joinable()) thread.join();
  }
  return true;
}

}  // namespace radserve
