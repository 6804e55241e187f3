#include "scheduling/batcher.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace radserve {
namespace {

/// Runs of one size while a model is warmed: the first is cold, the second may be captured as a
/// CUDA graph.
constexpr int kWarmRuns = 3;
/// No smaller sizes but one row are warmed once that has taken so long, and no second lane after
/// half of it.
constexpr auto kWarmPatience = std::chrono::seconds(20);
/// The second lane runs a size often enough to be captured; what it gives is measured over so many
/// nanoseconds.
constexpr int kPreparingRuns = 2;
constexpr double kMeasured = 50e6;
/// How much faster two lanes must be to stay.
constexpr double kPays = 1.05;

const Failure kCancelled = {"cancelled", "The work was cancelled."};
const Failure kStopping = {"shutting_down", "The engine is stopping."};

}  // namespace

Batcher::Batcher(std::unique_ptr<Device> device, size_t lanes)
    : device_(std::move(device)), lanes_(lanes) {
  for (size_t i = 0; i < lanes; ++i) {
    Lane& lane = lanes_[i];
    lane.number = static_cast<int64_t>(i);
    lane.thread = std::jthread([this, &lane](const std::stop_token& stop) { Work(lane, stop); });
  }
}

Batcher::~Batcher() {
  Stop(Clock::duration::zero());
  for (Lane& lane : lanes_) lane.thread.request_stop();
  for (Lane& lane : lanes_) lane.thread.join();
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
  for (Lane& lane : lanes_) lane.stop.request_stop();
  return ended_.wait_for(lock, patience,
                         [this] { return std::ranges::none_of(lanes_, &Lane::busy); });
}

void Batcher::AddModel(uint64_t model, int64_t max_batch, bool padded) {
  const std::lock_guard lock(mutex_);
  planner_.AddModel(model, max_batch, padded);
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

int64_t Batcher::Lanes(uint64_t model) const {
  const std::lock_guard lock(mutex_);
  return planner_.Lanes(model);
}

size_t Batcher::Waiting() const {
  const std::lock_guard lock(mutex_);
  size_t rows = waiting_.size();
  for (const Lane& lane : lanes_) rows += lane.running.size();
  return rows;
}

void Batcher::Submit(std::span<const RowPtr> rows) {
  int64_t lanes = 1;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_)
      throw EngineError("shutting_down", "The engine is stopping and takes no new work.");
    for (const RowPtr& row : rows) {
      row->id = next_id_++;
      row->arrived = Clock::now();
      planner_.Add({row->id, row->key, row->priority, row->deadline, row->arrived});
      waiting_.emplace(row->id, row);
      lanes = planner_.Lanes(row->key.model);
    }
    ++arrivals_;
  }
  for (Lane& lane : lanes_) {
    if (lane.number < lanes) lane.news.notify_all();
  }
}

void Batcher::Cancel(const RowPtr& row) {
  {
    const std::lock_guard lock(mutex_);
    if (!End(*row)) return;
    row->failure = kCancelled;
    if (planner_.Remove(row->id)) waiting_.erase(row->id);
    const auto ended = [](const RowPtr& running) {
      return running->state == BatchRow::State::kEnded;
    };
    for (Lane& lane : lanes_) {
      if (!lane.running.empty() && std::ranges::all_of(lane.running, ended))
        lane.stop.request_stop();
    }
  }
  Answer(*row);
}

void Batcher::Fail(const std::vector<RowPtr>& rows, const Failure& failure, bool crowded_out) {
  for (const RowPtr& row : rows) {
    {
      const std::lock_guard lock(mutex_);
      if (!End(*row)) continue;
      row->failure = failure;
      row->crowded_out = crowded_out;
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

std::future<Clock::duration> Batcher::RunOn(Lane& lane, int64_t capacity, const RowPtr& row,
                                            int64_t times, const std::stop_token& stop) {
  Job job([this, number = lane.number, capacity, row, times, stop] {
    Clock::duration ran{};
    for (int64_t i = 0; i < times; ++i)
      ran += device_->Run(number, capacity, std::span(&row, 1), stop).ran;
    return ran;
  });
  std::future<Clock::duration> result = job.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw EngineError(kStopping.code, kStopping.message);
    lane.jobs.push_back(std::move(job));
  }
  lane.news.notify_all();
  return result;
}

std::stop_token Batcher::Begin(Lane& lane, std::vector<RowPtr> rows) {
  lane.running = std::move(rows);
  lane.stop = std::stop_source();
  if (stopping_) lane.stop.request_stop();
  return lane.stop.get_token();
}

void Batcher::RunAlone(Lane& lane, const std::vector<RowPtr>& rows) {
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
      stop = Begin(lane, {row});
    }
    try {
      Deliver({row}, device_->Run(lane.number, 1, std::span(&row, 1), stop));
    } catch (...) {
      all_good = false;
      Fail({row}, stop.stop_requested() ? kStopping : Failure::Caught());
    }
  }
  // Nothing was wrong but the batch: the model takes none of this shape.
  const std::lock_guard lock(mutex_);
  if (all_good) planner_.Limit(rows.front()->key, 1);
}

bool Batcher::ForgoLanes(uint64_t model) {
  std::unique_lock lock(mutex_);
  if (planner_.Lanes(model) == 1) return false;
  planner_.SetLanes(model, 1);
  ended_.wait(lock, [&] {
    return std::all_of(lanes_.begin() + 1, lanes_.end(), [&](const Lane& lane) {
      return lane.running.empty() || lane.running.front()->key.model != model;
    });
  });
  lock.unlock();
  device_->RemoveLanes(model);
  return true;
}

bool Batcher::RunsAlone(const Lane& lane) {
  const std::lock_guard lock(mutex_);
  return !stopping_ && std::ranges::none_of(lanes_, [&](const Lane& other) {
    return &other != &lane && (other.busy || !other.running.empty());
  });
}

bool Batcher::RunSmaller(Lane& lane, const BatchPlanner::Batch& batch,
                         const std::vector<RowPtr>& rows) {
  {
    const std::lock_guard lock(mutex_);
    lane.running.clear();
  }
  ended_.notify_all();
  ForgoLanes(batch.key.model);
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || (batch.lanes == 1 && batch.capacity == 1)) return false;
    if (batch.lanes == 1) planner_.Limit(batch.key, batch.capacity / 2);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i]->state == BatchRow::State::kEnded) continue;
      rows[i]->state = BatchRow::State::kWaiting;
      planner_.Add(batch.rows[i]);
      waiting_.emplace(rows[i]->id, rows[i]);
    }
    ++arrivals_;
  }
  lanes_.front().news.notify_all();
  return true;
}

void Batcher::RunBatch(Lane& lane, BatchPlanner::Batch batch) {
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
    stop = Begin(lane, rows);
  }
  // What runs beside it at its beginning or its end may have the memory that it lacks.
  const bool alone = RunsAlone(lane);
  try {
    Device::Result result = device_->Run(lane.number, batch.capacity, rows, stop);
    {
      const std::lock_guard lock(mutex_);
      planner_.Observe(batch.key, batch.capacity, result.ran);
    }
    Deliver(rows, std::move(result));
    const std::lock_guard lock(mutex_);
    planner_.Ended(batch.key, rows.size(), Clock::now());
  } catch (const OutOfMemory& e) {
    if (e.needed() > 0)
      Fail(rows, Failure::Of(e), true);
    else if (!RunSmaller(lane, batch, rows))
      Fail(rows, alone && RunsAlone(lane) ? Failure::Of(MemoryExceeded(e.what())) : Failure::Of(e),
           false);
  } catch (...) {
    if (stop.stop_requested()) {
      // All have been answered, or the engine is stopping.
      Fail(rows, kStopping);
    } else if (rows.size() == 1) {
      Fail(rows, Failure::Caught());
    } else {
      RunAlone(lane, rows);
    }
  }
  const std::lock_guard lock(mutex_);
  lane.running.clear();
}

void Batcher::Work(Lane& lane, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    Job job;
    std::optional<BatchPlanner::Batch> batch;
    std::optional<Clock::time_point> wait_until;
    if (!lane.jobs.empty()) {
      job = std::move(lane.jobs.front());
      lane.jobs.pop_front();
    } else {
      batch = planner_.Next(Clock::now(), &wait_until, lane.number);
    }
    if (job.valid() || batch) {
      lane.busy = true;
      lock.unlock();
      if (batch) {
        RunBatch(lane, std::move(*batch));
      } else {
        job();
      }
      lock.lock();
      lane.busy = false;
      ended_.notify_all();
      continue;
    }
    const auto news = [&, seen = arrivals_] { return arrivals_ != seen || !lane.jobs.empty(); };
    if (wait_until) {
      lane.news.wait_until(lock, stop, *wait_until, news);
    } else {
      lane.news.wait(lock, stop, news);
    }
  }
}

void Batcher::Warm(const RowPtr& row, int64_t largest, const std::stop_token& stop) {
  const Clock::time_point begun = Clock::now();
  row->comes_again = true;
  int64_t size = 1;
  while (size * 2 <= largest) size *= 2;
  largest = size;
  for (; size >= 1; size /= 2) {
    try {
      // One row alone runs at least, whatever the others took.
      for (int i = 0; i < kWarmRuns && (size == 1 || Clock::now() - begun < kWarmPatience); ++i) {
        CheckStop(stop);
        const Clock::duration ran = RunOn(lanes_.front(), size, row, 1, stop).get();
        const std::lock_guard lock(mutex_);
        planner_.Observe(row->key, size, ran);
      }
    } catch (const EngineError& e) {
      const auto* const memory = dynamic_cast<const OutOfMemory*>(&e);
      // Others have the memory now; what is not warm is slower once.
      if (memory != nullptr && memory->needed() > 0) continue;
      // Too large for the memory, or the model takes no such batches.
      if (size == 1 || stop.stop_requested()) throw;
      largest = size / 2;
      const std::lock_guard lock(mutex_);
      planner_.Limit(row->key, largest);
    }
  }
  // A model that runs one row at a time is to give the same bits always: cuDNN plans by the memory
  // that is free, too.
  if (lanes_.size() > 1 && largest > 1 && Clock::now() - begun < kWarmPatience / 2)
    WarmSecond(row, largest, stop);
}

void Batcher::WarmSecond(const RowPtr& row, int64_t largest, const std::stop_token& stop) {
  /// Batches a nanosecond in the lanes from one to another, run so often in each, beside each
  /// other.
  const auto rate = [&](size_t from, size_t to, int64_t size, int64_t times) {
    CheckStop(stop);
    std::vector<std::future<Clock::duration>> runs;
    for (size_t i = from; i <= to; ++i) runs.push_back(RunOn(lanes_[i], size, row, times, stop));
    for (const auto& run : runs) run.wait();
    double sum = 0;
    for (auto& run : runs)
      sum += static_cast<double>(times) /
             static_cast<double>(std::max<Clock::rep>(run.get().count(), 1));
    return sum;
  };
  const auto prepare = [&](int64_t size) { return rate(1, 1, size, kPreparingRuns); };
  const auto pays = [&](int64_t size) {
    prepare(size);
    const int64_t times = std::clamp<int64_t>(std::llround(kMeasured * prepare(size)), 4, 100);
    return rate(0, 1, size, times) > kPays * rate(0, 0, size, times);
  };
  try {
    if (pays(largest) && pays(1)) {
      for (int64_t size = largest / 2; size > 1; size /= 2) prepare(size);
      const std::lock_guard lock(mutex_);
      planner_.SetLanes(row->key.model, 2);
      return;
    }
  } catch (const EngineError&) {
    // There is no room for it, mostly.
  }
  device_->RemoveLanes(row->key.model);
  CheckStop(stop);
}

}  // namespace radserve
