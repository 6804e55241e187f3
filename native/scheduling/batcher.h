#ifndef RADSERVE_BATCHER_H_
#define RADSERVE_BATCHER_H_

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
  /// In the order of the graph's inputs, each of shape [1, ...]. Gone once there is a result.
  std::vector<Tensor> inputs;
  /// Called once, on any thread and without a lock, when all below is final.
  std::function<void()> done;

  // The batcher fills these.
  std::vector<Tensor> outputs;
  std::optional<Failure> failure;
  /// How long the batch of this row ran, without copies, and this row's share of that time.
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
    /// Without copies to and from the place of the batch.
    Clock::duration ran{};
  };
  virtual ~Device() = default;
  /// Runs rows of one key in a batch of `capacity`, the rest of it padding; always on the same thread. Throws
  /// EngineError; OutOfMemory if a smaller batch may succeed. Ends early when `stop` is requested.
  virtual Result Run(int64_t capacity, std::span<const std::shared_ptr<BatchRow>> rows,
                     const std::stop_token& stop) = 0;
};

/// One thread that feeds one device. The whole contract:
///
/// - A row that Submit took ends exactly once, by `done`.
/// - BatchPlanner decides which rows run together.
/// - A cancelled row that waits leaves at once. One that runs is answered at once, and its batch is stopped
///   when all of its rows are cancelled.
/// - What does not fit into the device's memory is split and runs again; if a batch fails for another
///   reason its rows run again alone, so that none fails for its neighbour.
class Batcher {
 public:
  explicit Batcher(std::unique_ptr<Device> device);
  /// Stops, and waits for what runs.
  ~Batcher();
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  void AddModel(uint64_t model, int64_t max_batch);
  void RemoveModel(uint64_t model);
  /// Runs each size of one bucket up to `largest` with `row`, the largest first, so that the first request finds all of them
  /// warm and their time known. Waits for the thread, which runs batches in between. Throws EngineError if one row alone fails.
  void Warm(const std::shared_ptr<BatchRow>& row, int64_t largest, const std::stop_token& stop);
  void Submit(const std::shared_ptr<BatchRow>& row);
  void Cancel(const std::shared_ptr<BatchRow>& row);
  /// Rows that wait or run.
  size_t Waiting() const;
  /// Refuses new rows, ends what waits with `shutting_down`, asks what runs to stop, and waits for it until
  /// `patience` is over. Returns true if the device is idle.
  bool Stop(Clock::duration patience);

 private:
  using RowPtr = std::shared_ptr<BatchRow>;

  void Work(const std::stop_token& stop);
  void RunBatch(BatchPlanner::Batch batch);
  /// Notes what runs from now on and gives the token that stops it, which is requested already if the batcher
  /// is stopping. Called with the lock.
  std::stop_token Begin(std::vector<RowPtr> rows);
  /// Each alone, after their batch has failed.
  void RunAlone(const std::vector<RowPtr>& rows);
  /// Runs a row in a batch of that size on the thread, and waits for it.
  Device::Result RunOnThread(int64_t capacity, const RowPtr& row, const std::stop_token& stop);
  void Deliver(const std::vector<RowPtr>& rows, Device::Result result);
  void Fail(const std::vector<RowPtr>& rows, const Failure& failure);
  /// Returns true the first time. Called with the lock.
  static bool End(BatchRow& row);
  /// Calls `done`, once End has said true. The lock is not taken.
  static void Answer(BatchRow& row);

  /// Used by the thread alone.
  const std::unique_ptr<Device> device_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  BatchPlanner planner_;
  std::map<uint64_t, RowPtr> waiting_;
  std::vector<RowPtr> running_;
  std::stop_source running_stop_;
  uint64_t next_id_ = 1;
  bool stopping_ = false;
  /// Work that the thread runs before the next batch.
  std::deque<std::packaged_task<Device::Result()>> jobs_;
  /// The thread has a batch or a job.
  bool busy_ = false;
  std::jthread thread_;
};

}  // namespace radserve

#endif  // RADSERVE_BATCHER_H_
