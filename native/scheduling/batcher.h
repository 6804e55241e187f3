#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/tensor.h"
#include "scheduling/batch_planner.h"
#include "scheduling/task.h"

namespace radserve {

/// One prepared input that waits for a device, and what came out of it.
struct BatchRow {
  // The caller that submits the row fills these.
  /// Lives as long as the device may touch the row, and as the memory of its inputs: the model.
  std::shared_ptr<const void> keep;
  BucketKey key;
  Priority priority = Priority::kRoutine;
  std::optional<Clock::time_point> deadline;
  /// Its shape is known to come again: the device is prepared for it at once.
  bool comes_again = false;
  /// In the order of the graph's inputs, each of shape [1, ...]. Gone once there is a result.
  std::vector<Tensor> inputs;
  /// Called once, on any thread and without a lock, when all below is final.
  std::function<void()> done;

  // The batcher fills these.
  std::vector<Tensor> outputs;
  std::optional<Failure> failure;
  /// It failed for memory that other runs have now: where it can wait for that it may go well.
  bool crowded_out = false;
  /// How long the batch of this row ran, and this row's share of that time.
  Clock::duration ran{};
  Clock::duration share{};

 private:
  friend class Batcher;
  enum class State { kWaiting, kRunning, kEnded } state = State::kWaiting;
  uint64_t id = 0;
  Clock::time_point arrived;
};

/// A device that runs batches: a graphics card, or in tests something of known cost.
class Device {
 public:
  struct Result {
    /// For each row.
    std::vector<std::vector<Tensor>> outputs;
    /// Copies to and from the device included.
    Clock::duration ran{};
  };
  virtual ~Device() = default;
  /// Runs rows of one key in a batch of `capacity`, the rest of it padding; each lane always on the
  /// same thread, beside the others. Throws EngineError; OutOfMemory if a smaller batch may
  /// succeed, or one lane less. Ends early when `stop` is requested.
  virtual Result Run(int64_t lane, int64_t capacity,
                     std::span<const std::shared_ptr<BatchRow>> rows,
                     const std::stop_token& stop) = 0;
  /// What the model has beyond the first lane goes. It runs nothing there.
  virtual void RemoveLanes(uint64_t model) = 0;
};

/// Threads that feed one device, one for each of its lanes. The whole contract:
///
/// - A row that Submit took ends exactly once, by `done`.
/// - BatchPlanner decides which rows run together. A model runs in the second lane, too, if Warm
///   finds that two batches beside each other are sooner done than one after the other.
/// - A cancelled row that waits leaves at once. One that runs is answered at once, and its batch is
///   stopped when all of its rows are cancelled.
/// - What does not fit into the device's memory runs again in one lane, and then split; if a batch
///   fails for another reason its rows run again alone, so that none fails for its neighbour. Where
///   others have the memory now, its rows fail: the lane does not wait, and learns nothing by it.
class Batcher {
 public:
  explicit Batcher(std::unique_ptr<Device> device, size_t lanes = 1);
  /// Stops, and waits for what runs.
  ~Batcher();
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  /// See BatchPlanner::AddModel.
  void AddModel(uint64_t model, int64_t max_batch, bool padded = false);
  void RemoveModel(uint64_t model);
  /// Runs each size of one bucket up to `largest` with `row`, the largest first, so that the first
  /// request finds all of them warm and their time known. Waits for the threads, which run batches
  /// in between. Throws EngineError if one row alone fails.
  void Warm(const std::shared_ptr<BatchRow>& row, int64_t largest, const std::stop_token& stop);
  /// From now on the model runs in the first lane alone, and leaves room for others. False if it
  /// did so before. Not called by what runs rows of it.
  bool ForgoLanes(uint64_t model);
  void Submit(const std::shared_ptr<BatchRow>& row) { Submit(std::span(&row, 1)); }
  /// Rows of one model, at once: those of one bucket may run together whatever the threads do
  /// meanwhile.
  void Submit(std::span<const std::shared_ptr<BatchRow>> rows);
  void Cancel(const std::shared_ptr<BatchRow>& row);
  /// How many batches of the model may run beside each other.
  int64_t Lanes(uint64_t model) const;
  /// Rows that wait or run.
  size_t Waiting() const;
  /// Refuses new rows, ends what waits with `shutting_down`, asks what runs to stop, and waits for
  /// it until `patience` is over. Returns true if the device is idle.
  bool Stop(Clock::duration patience);

 private:
  using RowPtr = std::shared_ptr<BatchRow>;
  using Job = std::packaged_task<Clock::duration()>;

  /// A thread, and what it has to do.
  struct Lane {
    int64_t number = 0;
    std::condition_variable_any news;
    std::vector<RowPtr> running;
    std::stop_source stop;
    /// What runs before the next batch.
    std::deque<Job> jobs;
    /// It has a batch or a job.
    bool busy = false;
    std::jthread thread;
  };

  void Work(Lane& lane, const std::stop_token& stop);
  void RunBatch(Lane& lane, BatchPlanner::Batch batch);
  /// Whether no other lane has work: one row that has no memory then would not have it later.
  bool RunsAlone(const Lane& lane);
  /// Has the rows of a batch wait again for which the memory did not suffice. False if there is no
  /// smaller way to run them.
  bool RunSmaller(Lane& lane, const BatchPlanner::Batch& batch, const std::vector<RowPtr>& rows);
  /// Notes what runs from now on and gives the token that stops it, which is requested already if
  /// the batcher is stopping. Called with the lock.
  std::stop_token Begin(Lane& lane, std::vector<RowPtr> rows);
  /// Each alone, after their batch has failed.
  void RunAlone(Lane& lane, const std::vector<RowPtr>& rows);
  /// Runs a row so often in batches of that size on a lane's thread; how long that took without
  /// copies comes later.
  std::future<Clock::duration> RunOn(Lane& lane, int64_t capacity, const RowPtr& row, int64_t times,
                                     const std::stop_token& stop);
  /// Has the model run in the second lane, too, where the memory suffices and that pays.
  void WarmSecond(const RowPtr& row, int64_t largest, const std::stop_token& stop);
  void Deliver(const std::vector<RowPtr>& rows, Device::Result result);
  void Fail(const std::vector<RowPtr>& rows, const Failure& failure, bool crowded_out = false);
  /// Returns true the first time. Called with the lock.
  static bool End(BatchRow& row);
  /// Calls `done`, once End has said true. The lock is not taken.
  static void Answer(BatchRow& row);

  const std::unique_ptr<Device> device_;
  mutable std::mutex mutex_;
  BatchPlanner planner_;
  std::map<uint64_t, RowPtr> waiting_;
  uint64_t next_id_ = 1;
  /// How often rows have begun to wait.
  uint64_t arrivals_ = 0;
  bool stopping_ = false;
  /// Told when a lane has ended what it ran.
  std::condition_variable ended_;
  std::deque<Lane> lanes_;
};

}  // namespace radserve
