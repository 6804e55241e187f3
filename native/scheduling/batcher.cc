#include "scheduling/batcher.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace radserve {
namespace {

/// Runs of one size while a model is warmed: the first is cold, the second may be captured as a CUDA graph.
constexpr int kWarmRuns = 3;
/// No smaller sizes but one row are warmed once that has taken so long.
constexpr auto kWarmPatience = std::chrono::seconds(20);

const Failure kCancelled = {"cancelled", "The work was cancelled."};
const Failure kStopping = {"shutting_down", "The engine is stopping."};

}  // namespace

Batcher::Batcher(std::unique_ptr<Device> device)
    : device_(std::move(device)), thread_([this](const std::stop_token& stop) { Work(stop); }) {}

Batcher::~Batcher() {
  Stop(Clock::duration::zero());
  thread_.request_stop();
  thread_.join();
}

bool Batcher::Stop(Clock::duration patience) {
  std::vector<RowPtr> rows;
  std::unique_lock lock(mutex_);
  stopping_ = true;
  for (const auto& [id, row] : waiting_) {
    // The thread itself ends the rows that it has taken already.
    if (planner_.Remove(id)) rows.push_back(row);
  }
  for (const RowPtr& row : rows) waiting_.erase(row->id);
  lock.unlock();
  Fail(rows, kStopping);
  lock.lock();
  running_stop_.request_stop();
  return changed_.wait_for(lock, patience, [this] { return !busy_; });
}

void Batcher::AddModel(uint64_t model, int64_t max_batch) {
  const std::lock_guard lock(mutex_);
  planner_.AddModel(model, max_batch);
}

void Batcher::RemoveModel(uint64_t model) {
  const std::lock_guard lock(mutex_);
  planner_.RemoveModel(model);
}

bool Batcher::End(BatchRow& row) {
  return std::exchange(row.state, BatchRow::State::kEnded) != BatchRow::State::kEnded;
}

/// The function goes with its call: it may hold what holds the row.
void Batcher::Answer(BatchRow& row) { std::exchange(row.done, nullptr)(); }

size_t Batcher::Waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size() + running_.size();
}

void Batcher::Submit(const RowPtr& row) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw EngineError("shutting_down", "The engine is stopping and takes no new work.");
    row->id = next_id_++;
    row->arrived = Clock::now();
    planner_.Add({row->id, row->key, row->priority, row->deadline, row->arrived});
    waiting_.emplace(row->id, row);
  }
  changed_.notify_all();
}

void Batcher::Cancel(const RowPtr& row) {
  {
    const std::lock_guard lock(mutex_);
    if (!End(*row)) return;
    row->failure = kCancelled;
    if (planner_.Remove(row->id)) waiting_.erase(row->id);
    const bool all_gone = std::all_of(running_.begin(), running_.end(), [](const RowPtr& running) {
      return running->state == BatchRow::State::kEnded;
    });
    if (!running_.empty() && all_gone) running_stop_.request_stop();
  }
  Answer(*row);
}

void Batcher::Fail(const std::vector<RowPtr>& rows, const Failure& failure) {
  for (const RowPtr& row : rows) {
    {
      const std::lock_guard lock(mutex_);
      if (!End(*row)) continue;
      row->failure = failure;
    }
    Answer(*row);
  }
}

void Batcher::Deliver(const std::vector<RowPtr>& rows, Device::Result result) {
  for (size_t i = 0; i < rows.size(); ++i) {
    BatchRow& row = *rows[i];
    // The device has read them, and others can have their place.
    row.inputs.clear();
    {
      const std::lock_guard lock(mutex_);
      if (!End(row)) continue;
      row.outputs = std::move(result.outputs.at(i));
      row.ran = result.ran;
      row.share = result.ran / static_cast<int64_t>(rows.size());
    }
    Answer(row);
  }
}

Device::Result Batcher::RunOnThread(int64_t capacity, const RowPtr& row, const std::stop_token& stop) {
  std::packaged_task<Device::Result()> job([&] { return device_->Run(capacity, std::span(&row, 1), stop); });
  std::future<Device::Result> result = job.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw EngineError(kStopping.code, kStopping.message);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
  return result.get();
}

std::stop_token Batcher::Begin(std::vector<RowPtr> rows) {
  running_ = std::move(rows);
  running_stop_ = std::stop_source();
  if (stopping_) running_stop_.request_stop();
  return running_stop_.get_token();
}

void Batcher::RunAlone(const std::vector<RowPtr>& rows) {
  bool all_good = true;
  for (const RowPtr& row : rows) {
    std::stop_token stop;
    {
      const std::lock_guard lock(mutex_);
      if (row->state == BatchRow::State::kEnded) {
        // Cancelled: nobody knows whether it would have been good.
        all_good = false;
        continue;
      }
      stop = Begin({row});
    }
    try {
      Deliver({row}, device_->Run(1, std::span(&row, 1), stop));
    } catch (...) {
      all_good = false;
      Fail({row}, stop.stop_requested() ? kStopping : Failure::Caught());
    }
  }
  // Nothing was wrong but the batch: the model takes none of this shape.
  const std::lock_guard lock(mutex_);
  if (all_good) planner_.Limit(rows.front()->key, 1);
}

void Batcher::RunBatch(BatchPlanner::Batch batch) {
  std::vector<RowPtr> rows;
  // Outlives the lock, because the last share of a row may be the last of its model.
  std::vector<RowPtr> dropped;
  std::stop_token stop;
  {
    const std::lock_guard lock(mutex_);
    // A row cancelled since the decision was made has been answered already.
    std::erase_if(batch.rows, [&](const BatchPlanner::Row& planned) {
      const RowPtr row = waiting_.extract(planned.id).mapped();
      const bool ended = row->state == BatchRow::State::kEnded;
      if (!ended) row->state = BatchRow::State::kRunning;
      (ended ? dropped : rows).push_back(row);
      return ended;
    });
    if (rows.empty()) return;
    stop = Begin(rows);
  }
  try {
    Device::Result result = device_->Run(batch.capacity, rows, stop);
    {
      const std::lock_guard lock(mutex_);
      planner_.Observe(batch.key, batch.capacity, result.ran);
    }
    Deliver(rows, std::move(result));
  } catch (const OutOfMemory& e) {
    Failure failure = Failure::Of(e);
    {
      const std::lock_guard lock(mutex_);
      running_.clear();
      if (batch.capacity > 1 && !stopping_) {
        planner_.Limit(batch.key, batch.capacity / 2);
        for (size_t i = 0; i < rows.size(); ++i) {
          if (rows[i]->state == BatchRow::State::kEnded) continue;
          rows[i]->state = BatchRow::State::kWaiting;
          planner_.Add(batch.rows[i]);
          waiting_.emplace(rows[i]->id, rows[i]);
        }
        return;
      }
    }
    Fail(rows, failure);
  } catch (...) {
    if (stop.stop_requested()) {
      // All have been answered, or the engine is stopping.
      Fail(rows, kStopping);
    } else if (rows.size() == 1) {
      Fail(rows, Failure::Caught());
    } else {
      RunAlone(rows);
    }
  }
  const std::lock_guard lock(mutex_);
  running_.clear();
}

void Batcher::Work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    std::packaged_task<Device::Result()> job;
    std::optional<BatchPlanner::Batch> batch;
    if (!jobs_.empty()) {
      job = std::move(jobs_.front());
      jobs_.pop_front();
    } else {
      batch = planner_.Next(Clock::now());
    }
    if (job.valid() || batch) {
      busy_ = true;
      lock.unlock();
      if (batch) {
        RunBatch(std::move(*batch));
      } else {
        job();
      }
      lock.lock();
      busy_ = false;
      if (stopping_) changed_.notify_all();
      continue;
    }
    changed_.wait(lock, stop, [&, seen = next_id_] { return next_id_ != seen || !jobs_.empty(); });
  }
}

void Batcher::Warm(const RowPtr& row, int64_t largest, const std::stop_token& stop) {
  const Clock::time_point begun = Clock::now();
  int64_t size = 1;
  while (size * 2 <= largest) size *= 2;
  for (; size >= 1; size /= 2) {
    try {
      // One row alone runs at least, whatever the others took.
      for (int i = 0; i < kWarmRuns && (size == 1 || Clock::now() - begun < kWarmPatience); ++i) {
        CheckStop(stop);
        const Clock::duration ran = RunOnThread(size, row, stop).ran;
        const std::lock_guard lock(mutex_);
        planner_.Observe(row->key, size, ran);
      }
    } catch (const EngineError&) {
      // Too large for the memory, or the model takes no such batches.
      if (size == 1 || stop.stop_requested()) throw;
      const std::lock_guard lock(mutex_);
      planner_.Limit(row->key, size / 2);
    }
  }
}

}  // namespace radserve
