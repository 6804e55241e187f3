#ifndef RADSERVE_TEST_FAKE_DEVICE_H_
#define RADSERVE_TEST_FAKE_DEVICE_H_

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "scheduling/batch_planner.h"

/// A device of known cost in virtual time, the traffic that it serves, and a naive batcher to compare with.
namespace radserve::test {

/// Milliseconds. A run of n rows takes per_row * n + fixed, and `change` more where its shape (batch size
/// included) is not the last one's. As published for a CNN under cuDNN 9: 59 ms against a run of 4.9 ms.
struct FakeCost {
  double per_row = 0.9;
  double fixed = 4.0;
  double change = 59;
  int64_t memory_rows = 1 << 20;

  double Run(int64_t rows) const { return per_row * static_cast<double>(rows) + fixed; }
  /// Milliseconds for one row at the best size, without any change.
  double Ideal(int64_t largest) const { return Run(largest) / static_cast<double>(largest); }
};

inline Clock::duration Milliseconds(double ms) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms));
}

/// What forms batches: the planner, or the naive one.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual void Add(const BatchPlanner::Row& row) = 0;
  virtual std::optional<BatchPlanner::Batch> Next(Clock::time_point now) = 0;
  virtual void Done(const BatchPlanner::Batch& batch, Clock::duration took) = 0;
};

class Planned : public Policy {
 public:
  explicit Planned(int64_t largest) { planner.AddModel(1, largest); }
  void Add(const BatchPlanner::Row& row) override { planner.Add(row); }
  std::optional<BatchPlanner::Batch> Next(Clock::time_point now) override { return planner.Next(now); }
  void Done(const BatchPlanner::Batch& batch, Clock::duration took) override { planner.Done(batch, took); }
  BatchPlanner planner;
};

/// First come, whatever fits: the oldest row, with all others of its shape that wait, in a batch of just that
/// size.
class Naive : public Policy {
 public:
  explicit Naive(int64_t largest) : largest_(static_cast<size_t>(largest)) {}
  void Add(const BatchPlanner::Row& row) override { rows_.push_back(row); }
  std::optional<BatchPlanner::Batch> Next(Clock::time_point) override {
    if (rows_.empty()) return std::nullopt;
    BatchPlanner::Batch batch;
    batch.key = rows_.front().key;
    std::erase_if(rows_, [&](const BatchPlanner::Row& row) {
      const bool fits = row.key == batch.key && batch.rows.size() < largest_;
      if (fits) batch.rows.push_back(row);
      return fits;
    });
    batch.capacity = static_cast<int64_t>(batch.rows.size());
    return batch;
  }
  void Done(const BatchPlanner::Batch&, Clock::duration) override {}

 private:
  size_t largest_;
  std::deque<BatchPlanner::Row> rows_;
};

class FakeDevice {
 public:
  struct Served {
    BatchPlanner::Row row;
    Clock::duration latency;
    size_t batch;
  };

  FakeDevice(const FakeCost& cost, Policy& policy) : cost_(cost), policy_(policy) {}

  Clock::time_point now() const { return now_; }
  std::vector<Served> served;
  /// Closed loops submit the next one here.
  std::function<void(const BatchPlanner::Row&)> on_done = [](const BatchPlanner::Row&) {};
  /// Time spent in changes, and in all.
  double changes_ms = 0;

  void Submit(int shape, Priority priority = Priority::kRoutine,
              std::optional<Clock::time_point> deadline = std::nullopt) {
    policy_.Add({next_id_++, {1, {{1, 64, shape}}}, priority, deadline, now_});
  }
  void At(Clock::time_point time, std::function<void()> event) { events_.emplace(time, std::move(event)); }
  void After(double ms, std::function<void()> event) { At(now_ + Milliseconds(ms), std::move(event)); }

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
    std::optional<BatchPlanner::Batch> next = policy_.Next(now_);
    if (!next) return;
    busy_ = true;
    auto batch = std::make_shared<BatchPlanner::Batch>(std::move(*next));
    double ms = cost_.Run(batch->capacity);
    const auto shape = std::pair(batch->key, batch->capacity);
    if (last_ != shape) {
      ms += cost_.change;
      changes_ms += cost_.change;
    }
    last_ = shape;
    After(ms, [this, batch, ms] {
      busy_ = false;
      policy_.Done(*batch, Milliseconds(ms));
      for (const BatchPlanner::Row& row : batch->rows) {
        served.push_back({row, now_ - row.arrived, batch->rows.size()});
        on_done(row);
      }
    });
  }

  const FakeCost cost_;
  Policy& policy_;
  Clock::time_point now_ = Clock::time_point(std::chrono::hours(1));
  std::multimap<Clock::time_point, std::function<void()>> events_;
  std::optional<std::pair<BucketKey, int64_t>> last_;
  bool busy_ = false;
  uint64_t next_id_ = 1;
};

/// Rows a second of a device that `shapes` groups of `clients` each keep busy: each client sends its next
/// image, of its own shape, when the last one is answered. The first seconds are for learning.
inline double ClosedLoop(const FakeCost& cost, Policy& policy, int shapes, int clients) {
  FakeDevice device(cost, policy);
  device.on_done = [&](const BatchPlanner::Row& row) {
    const int shape = static_cast<int>(row.key.row_shapes[0][2]);
    device.After(0.5, [&device, shape] { device.Submit(shape); });
  };
  for (int i = 0; i < shapes * clients; ++i) device.Submit(i % shapes);
  device.RunUntil(device.now() + std::chrono::seconds(20));
  device.served.clear();
  device.RunUntil(device.now() + std::chrono::seconds(50));
  return static_cast<double>(device.served.size()) / 50;
}

/// The same where images of random shapes arrive by chance, `rate` a second, whoever waits.
inline double OpenLoop(const FakeCost& cost, Policy& policy, int shapes, double rate) {
  FakeDevice device(cost, policy);
  std::mt19937_64 random(11);
  std::exponential_distribution<double> gap(rate);
  std::function<void()> arrive = [&] {
    device.Submit(static_cast<int>(random() % static_cast<uint64_t>(shapes)));
    device.After(gap(random) * 1000, arrive);
  };
  arrive();
  device.RunUntil(device.now() + std::chrono::seconds(20));
  device.served.clear();
  device.RunUntil(device.now() + std::chrono::seconds(50));
  return static_cast<double>(device.served.size()) / 50;
}

}  // namespace radserve::test

#endif  // RADSERVE_TEST_FAKE_DEVICE_H_
