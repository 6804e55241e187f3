#include "scheduler.h"

#include <exception>
#include <new>
#include <utility>

#include "error.h"

namespace radserve {
namespace {

constexpr uint64_t kOldestEvery = 8;

Failure DeadlineFailure() { return {"deadline_exceeded", "The work did not finish within its time."}; }

}  // namespace

struct Scheduler::Entry {
  std::shared_ptr<Task> task;
  Key key;
  Clock::time_point submitted;
  std::stop_source stop;
  /// Set before `stop` is requested, under the lock.
  std::optional<Failure> reason;

  size_t Class() const { return static_cast<size_t>(task->priority); }
};

Scheduler::Scheduler(const Options& options) : options_(options) {
  live_threads_ = options.threads;
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { Work(); });
  threads_.emplace_back([this](std::stop_token stop) { WatchDeadlines(std::move(stop)); });
}

Scheduler::~Scheduler() { Stop(Clock::duration::max()); }

void Scheduler::Submit(std::shared_ptr<Task> task) {
  auto entry = std::make_shared<Entry>();
  entry->submitted = Clock::now();
  const std::lock_guard lock(mutex_);
  const size_t bytes = task->bytes;
  if (stopping_) throw EngineError("shutting_down", "The engine is stopping and takes no new work.");
  if (task->deadline && *task->deadline <= entry->submitted) {
    throw EngineError("deadline_exceeded", "The work came after its deadline.");
  }
  if (arrivals_.size() >= options_.queue_limit ||
      (!arrivals_.empty() && stats_.queued_bytes + bytes > options_.queue_bytes)) {
    ++stats_.refused;
    throw EngineError("overloaded", "The engine's queue is full: " + std::to_string(arrivals_.size()) +
                                        " requests wait. Try again later.");
  }
  entry->key = {task->deadline.value_or(Clock::time_point::max()), next_number_++};
  entry->task = std::move(task);
  queues_[entry->Class()].emplace(entry->key, entry);
  arrivals_.emplace(entry->key.second, entry);
  stats_.queued_bytes += bytes;
  if (entry->task->deadline) {
    deadlines_.emplace(entry->key, entry);
    timer_.notify_all();
  }
  work_.notify_one();
}

/// Takes a waiting entry out of the queues; the lock is held.
void Scheduler::Remove(const EntryPtr& entry) {
  queues_[entry->Class()].erase(entry->key);
  arrivals_.erase(entry->key.second);
  stats_.queued_bytes -= entry->task->bytes;
}

/// The lock is held, and something waits.
Scheduler::EntryPtr Scheduler::TakeNext() {
  EntryPtr entry;
  if (++starts_ % kOldestEvery == 0) {
    entry = arrivals_.begin()->second;
  } else {
    for (const auto& queue : queues_) {
      if (queue.empty()) continue;
      entry = queue.begin()->second;
      break;
    }
  }
  Remove(entry);
  running_.emplace(entry->key.second, entry);
  return entry;
}

void Scheduler::Work() {
  for (;;) {
    EntryPtr entry;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return stopping_ || !arrivals_.empty(); });
      if (arrivals_.empty()) {
        --live_threads_;
        ended_.notify_all();
        return;
      }
      entry = TakeNext();
    }
    RunEntry(entry);
  }
}

void Scheduler::RunEntry(const EntryPtr& entry) {
  std::optional<Failure> failure;
  try {
    entry->task->Run(Lane(entry->stop.get_token(), entry->submitted, [this] { return Wide(); }));
  } catch (const EngineError& e) {
    failure = Failure{e.code(), e.what()};
  } catch (const std::bad_alloc&) {
    failure = Failure{"overloaded", "There is not enough memory for this request now."};
  } catch (const std::exception& e) {
    failure = Failure{"internal", e.what()};
  }
  {
    const std::lock_guard lock(mutex_);
    running_.erase(entry->key.second);
    deadlines_.erase(entry->key);
    if (entry->reason) failure = entry->reason;
    ++(failure ? stats_.failed : stats_.completed);
  }
  entry->task->Done(failure);
}

bool Scheduler::Wide() const {
  const std::lock_guard lock(mutex_);
  return (running_.size() + arrivals_.size()) * 2 <= static_cast<size_t>(options_.threads);
}

void Scheduler::StopEntries(const std::function<bool(const Task&)>& match, const Failure& reason) {
  std::vector<EntryPtr> waiting;
  std::vector<EntryPtr> running;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, entry] : arrivals_) {
      if (match(*entry->task)) waiting.push_back(entry);
    }
    for (const EntryPtr& entry : waiting) {
      Remove(entry);
      deadlines_.erase(entry->key);
      ++stats_.failed;
    }
    for (const auto& [number, entry] : running_) {
      if (!match(*entry->task)) continue;
      if (!entry->reason) entry->reason = reason;
      running.push_back(entry);
    }
  }
  // Callbacks of the stop token and Done run without the lock, because they may take others.
  for (const EntryPtr& entry : running) entry->stop.request_stop();
  for (const EntryPtr& entry : waiting) entry->task->Done(reason);
}

void Scheduler::Cancel(uint64_t cancel_id) {
  if (cancel_id == 0) return;
  StopEntries([&](const Task& task) { return task.cancel_id == cancel_id; },
              {"cancelled", "The work was cancelled."});
}

void Scheduler::CancelOwner(uint64_t owner) {
  StopEntries([&](const Task& task) { return task.owner == owner; },
              {"cancelled", "The thread that asked for the work has ended."});
}

void Scheduler::WatchDeadlines(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (deadlines_.empty()) {
      timer_.wait(lock, stop, [this] { return !deadlines_.empty(); });
      continue;
    }
    const auto [key, entry] = *deadlines_.begin();
    if (key.first > Clock::now()) {
      timer_.wait_until(lock, stop, key.first, [this, &key = key] {
        return deadlines_.empty() || deadlines_.begin()->first != key;
      });
      continue;
    }
    deadlines_.erase(key);
    const bool waits = arrivals_.contains(key.second);
    if (waits) {
      Remove(entry);
      ++stats_.failed;
    } else if (!entry->reason) {
      entry->reason = DeadlineFailure();
    }
    lock.unlock();
    if (waits) {
      entry->task->Done(DeadlineFailure());
    } else {
      entry->stop.request_stop();
    }
    lock.lock();
  }
}

Scheduler::Stats Scheduler::GetStats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  for (size_t i = 0; i < queues_.size(); ++i) stats.queued[i] = queues_[i].size();
  stats.running = running_.size();
  return stats;
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
