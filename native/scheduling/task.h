#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "base/error.h"
#include "scheduling/fair_queue.h"

namespace radserve {

/// Why a task has no result: a code of src/base/errors.ts and a message.
struct Failure {
  std::string code;
  std::string message;

  static Failure Of(const EngineError& error) { return {error.code(), error.what()}; }

  /// The failure that stands for the exception which is being handled.
  static Failure Caught() {
    try {
      throw;
    } catch (const EngineError& e) {
      return Of(e);
    } catch (const std::bad_alloc&) {
      return {"overloaded", "There is not enough memory for this request now."};
    } catch (const std::exception& e) {
      return {"internal", e.what()};
    }
  }
};

class TaskContext;

/// One request. Whoever submits it fills the public fields and does not touch them afterwards.
///
/// Ownership: the scheduler shares the task from Submit until Done has returned. Submit either
/// throws, and then nothing of the task was called or kept, or calls Done exactly once.
class Task {
 public:
  virtual ~Task() = default;
  /// Runs on an engine thread. Throws to fail; a throw after `context.stop()` was requested counts
  /// as the reason of the stop. After `context.Park()` the task does not end with Run: see there.
  virtual void Run(const TaskContext& context) = 0;
  /// The end, with a failure or without: on the thread that ran it, or, for work that never ran, on
  /// the one that cancelled it. It is called without a lock.
  virtual void Done(const std::optional<Failure>& failure) noexcept = 0;
  /// Its share of the time of a device, which no engine thread spent. Asked once, after the last
  /// Run.
  virtual Clock::duration DeviceTime() const { return {}; }

  Priority priority = Priority::kRoutine;
  std::optional<Clock::time_point> deadline;
  /// The number by which Cancel finds it; 0 if it has no number.
  uint64_t cancel_id = 0;
  /// The environment that submitted it, for CancelEnvironment.
  uint64_t environment = 0;
  /// The model; tasks of different flows share the threads fairly. 0 for work without a model.
  uint64_t flow = 0;
  /// Whose work it is: subjects share the threads fairly, too, and none has all of them. 0 for the
  /// server's own.
  uint32_t subject = 0;
};

/// A thread as its running task sees it.
class TaskContext {
 public:
  TaskContext(std::stop_token stop, Clock::time_point submitted, std::function<bool()> wide,
              std::function<std::function<void()>()> park)
      : stop_(std::move(stop)),
        submitted_(submitted),
        wide_(std::move(wide)),
        park_(std::move(park)) {}
  /// Requested on cancellation, at the deadline and at shutdown; the same token for all runs of a
  /// task.
  const std::stop_token& stop() const { return stop_; }
  Clock::time_point submitted() const { return submitted_; }
  /// True while so few requests are there that each may use all cores; asked right before a model
  /// runs.
  bool Wide() const { return wide_(); }
  /// The task goes on elsewhere (on a device) and needs no thread meanwhile. The function that is
  /// returned must be called exactly once, from any thread and also after a stop: then Run is
  /// called again. If Run throws after Park, it has not handed the function on.
  std::function<void()> Park() const { return park_(); }

 private:
  std::stop_token stop_;
  Clock::time_point submitted_;
  std::function<bool()> wide_;
  std::function<std::function<void()>()> park_;
};

/// Work without an answer.
class FunctionTask : public Task {
 public:
  /// `failed` is told what keeps `run` from its end, where it is given.
  explicit FunctionTask(std::function<void(const TaskContext&)> run,
                        std::function<void(const Failure&)> failed = {})
      : run_(std::move(run)), failed_(std::move(failed)) {}
  void Run(const TaskContext& context) override { run_(context); }
  void Done(const std::optional<Failure>& failure) noexcept override {
    if (failure && failed_) failed_(*failure);
  }

 private:
  std::function<void(const TaskContext&)> run_;
  std::function<void(const Failure&)> failed_;
};

}  // namespace radserve
