#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "scheduling/batch_planner.h"

/// A device of known cost in virtual time, and the traffic that it serves.
namespace radserve::test {

/// Milliseconds. A run of n rows takes per_row * n + fixed, of whatever shape.
struct FakeCost {
  double per_row = 0.9;
  double fixed = 4.0;

  double Run(int64_t rows) const { return per_row * static_cast<double>(rows) + fixed; }
  /// Milliseconds for one row at the best size.
  double Ideal(int64_t largest) const { return Run(largest) / static_cast<double>(largest); }
};

inline Clock::duration Milliseconds(double ms) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms));
}

class FakeDevice {
 public:
  struct Served {
    BatchPlanner::Row row;
    Clock::duration latency;
    size_t batch;
  };

  FakeDevice(const FakeCost& cost, int64_t largest, bool padded = false) : cost_(cost) {
    planner_.AddModel(1, largest, padded);
  }
  /// Makes the time of each size known, as warming does.
  void Warm(int shape, int64_t largest) {
    for (int64_t size = 1; size <= largest; size *= 2) {
      for (int run = 0; run < 2; ++run)
        planner_.Observe({1, {{1, 64, shape}}}, size, Milliseconds(cost_.Run(size)));
    }
  }

  Clock::time_point now() const { return now_; }
  std::vector<Served> served;
  /// Closed loops submit the next one here.
  std::function<void(const BatchPlanner::Row&)> on_done = [](const BatchPlanner::Row&) {};

  void Submit(int shape, Priority priority = Priority::kRoutine,
              std::optional<Clock::time_point> deadline = std::nullopt) {
    planner_.Add({next_id_++, {1, {{1, 64, shape}}}, priority, deadline, now_});
  }
  void At(Clock::time_point time, std::function<void()> event) {
    events_.emplace(time, std::move(event));
  }
  void After(double ms, std::function<void()> event) {
    At(now_ + Milliseconds(ms), std::move(event));
  }

  void RunUntil(Clock::time_point end) {
    for (;;) {
      if (!busy_) Begin();
      if (events_.empty() || events_.begin()->first > end) break;
      const auto node = events_.extract(events_.begin());
      now_ = std::max(now_, node.key());
      node.mapped()();
    }
    now_ = end;
  }

 private:
  void Begin() {
    std::optional<Clock::time_point> wait_until;
    std::optional<BatchPlanner::Batch> next = planner_.Next(now_, &wait_until);
    if (wait_until) At(*wait_until, [] {});
    if (!next) return;
    busy_ = true;
    auto batch = std::make_shared<BatchPlanner::Batch>(std::move(*next));
    const double ms = cost_.Run(batch->capacity);
    After(ms, [this, batch, ms] {
      busy_ = false;
      planner_.Observe(batch->key, batch->capacity, Milliseconds(ms));
      for (const BatchPlanner::Row& row : batch->rows) {
        served.push_back({row, now_ - row.arrived, batch->rows.size()});
        on_done(row);
      }
      planner_.Ended(batch->key, batch->rows.size(), now_);
    });
  }

  const FakeCost cost_;
  BatchPlanner planner_;
  Clock::time_point now_ = Clock::time_point(std::chrono::hours(1));
  std::multimap<Clock::time_point, std::function<void()>> events_;
  bool busy_ = false;
  uint64_t next_id_ = 1;
};

}  // namespace radserve::test
