#include "scheduling/batch_planner.h"

#include <set>

#include "check.h"
#include "fake_device.h"
#include "steps.h"

using namespace radserve;
using namespace radserve::test;
using namespace std::chrono_literals;

namespace {

using Row = BatchPlanner::Row;
using Batch = BatchPlanner::Batch;
using Time = Clock::time_point;

// ---- What is learned.

TEST("a size is learned by its median, without the first run and without outliers") {
  CostModel cost(8);
  EQUAL(cost.cap(), 1);
  cost.Observe(1, 900ms, true);
  CHECK(!cost.Measured(1));
  for (const auto took : {5ms, 5ms, 90ms, 5ms}) cost.Observe(1, took, false);
  CHECK(cost.Time(1) == 5ms);
  CHECK(cost.Observe(1, 64ms, true) == Clock::duration(59ms));
  CHECK(cost.Time(1) == 5ms);
}
END;

TEST("sizes go up while a row gets a tenth cheaper") {
  const auto cap_of = [](double per_row, double fixed) {
    CostModel cost(64);
    for (int64_t size = 1; size <= cost.cap(); size *= 2) {
      for (int i = 0; i < 3; ++i) {
        cost.Observe(size, Milliseconds(per_row * static_cast<double>(size) + fixed), false);
      }
    }
    const CostModel::Line line = cost.Fit();
    NEAR(std::chrono::duration<double>(line.per_row).count(), per_row / 1000, per_row * 2e-5);
    return cost.cap();
  };
  EQUAL(cap_of(55, 2), 1);  // A CNN on a CPU.
  EQUAL(cap_of(0.9, 4), 32);
  EQUAL(cap_of(0.01, 4), 64);
  CostModel knee(16);  // As nnU-Net in FP32 on an A100: 2 rows are faster, 4 far slower.
  const std::map<int64_t, Clock::duration> times = {{1, 40ms}, {2, 51ms}, {4, 189ms}, {8, 400ms}};
  for (const auto& [size, time] : times) {
    for (int i = 0; i < 2; ++i) knee.Observe(size, time, false);
  }
  EQUAL(knee.cap(), 2);
  knee.Limit(1);
  EQUAL(knee.cap(), 1);
}
END;

// ---- What is decided.

TEST("batches form while the device is busy") {
  Planned policy(32);
  FakeDevice device({}, policy);
  device.on_done = [&](const Row&) { device.Submit(0); };
  device.Submit(0);
  device.RunUntil(device.now() + 5s);
  EQUAL(device.served.back().batch, 1u);
  for (int i = 1; i < 16; ++i) device.Submit(0);
  device.RunUntil(device.now() + 10s);
  EQUAL(device.served.back().batch, 16u);
  const double ideal = 1000 / FakeCost().Ideal(16);
  device.served.clear();
  device.RunUntil(device.now() + 10s);
  CHECK(static_cast<double>(device.served.size()) / 10 > 0.97 * ideal);
}
END;

TEST("mixed shapes keep nine tenths of the ideal throughput where rows wait, the naive batcher less") {
  const FakeCost cost;
  constexpr int64_t kLargest = 32;
  const double ideal = 1000 / cost.Ideal(kLargest);
  // Twice as many clients as a batch has rows: rows of the shape that has its turn are always there.
  Planned planned(kLargest);
  Naive naive(kLargest);
  CHECK(ClosedLoop(cost, planned, 4, 64) / ideal > 0.9);
  CHECK(ClosedLoop(cost, naive, 4, 64) / ideal < 0.6);
  // Batches of one size and then of half of it: the size keeps its turn, too.
  Planned uneven(kLargest);
  Naive uneven_naive(kLargest);
  CHECK(ClosedLoop(cost, uneven, 4, 48) / ideal > 0.8);
  CHECK(ClosedLoop(cost, uneven_naive, 4, 48) / ideal < 0.6);
  Planned open(kLargest);
  Naive open_naive(kLargest);
  CHECK(OpenLoop(cost, open, 4, 0.8 * ideal) / ideal > 0.79);
  CHECK(OpenLoop(cost, open_naive, 4, 0.8 * ideal) / ideal < 0.6);
}
END;

TEST("a size that does not pay any more is left when its turn is over") {
  Planned policy(32);
  FakeDevice device({}, policy);
  device.on_done = [&](const Row&) { device.Submit(0); };
  for (int i = 0; i < 64; ++i) device.Submit(0);
  device.RunUntil(device.now() + 10s);
  EQUAL(device.served.back().batch, 32u);
  device.on_done = [](const Row&) {};
  device.RunUntil(device.now() + 5s);
  device.on_done = [&](const Row&) { device.Submit(0); };
  device.Submit(0);
  device.RunUntil(device.now() + 2s);
  CHECK(device.served.back().latency == Milliseconds(FakeCost().Run(1)));
}
END;

TEST("no shape waits without end while others saturate the device") {
  Planned policy(32);
  FakeDevice device({}, policy);
  device.on_done = [&](const Row& row) { device.Submit(static_cast<int>(row.key.row_shapes[0][2])); };
  for (int i = 0; i < 192; ++i) device.Submit(i % 3);
  device.RunUntil(device.now() + 60s);
  Clock::duration longest{};
  for (const auto& served : device.served) longest = std::max(longest, served.latency);
  CHECK(longest < 5s);
}
END;

TEST("a stat waits for the batch that runs and its own, whatever its shape") {
  const FakeCost cost;
  Planned policy(32);
  FakeDevice device(cost, policy);
  device.on_done = [&](const Row& row) {
    if (row.priority != Priority::kStat) device.Submit(static_cast<int>(row.key.row_shapes[0][2]));
  };
  for (int i = 0; i < 128; ++i) device.Submit(i % 2);
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    device.After(5000 + static_cast<double>(random() % 60'000),
                 [&, i] { device.Submit(i % 3, Priority::kStat); });
  }
  device.RunUntil(device.now() + 70s);
  std::vector<Clock::duration> latency;
  for (const auto& served : device.served) {
    if (served.row.priority == Priority::kStat) latency.push_back(served.latency);
  }
  EQUAL(latency.size(), 200u);
  std::sort(latency.begin(), latency.end());
  CHECK(latency[latency.size() * 95 / 100] <= Milliseconds(2 * (cost.Run(32) + cost.change)));
}
END;

TEST("a deadline that would be missed pays for its change at once") {
  Planned policy(32);
  FakeDevice device({}, policy);
  device.on_done = [&](const Row& row) {
    if (row.key.row_shapes[0][2] == 0) device.Submit(0);
  };
  for (int i = 0; i < 64; ++i) device.Submit(0);
  device.Submit(1);
  device.RunUntil(device.now() + 5s);
  int met = 0;
  for (int i = 0; i < 20; ++i) {
    device.served.clear();
    const Time deadline = device.now() + 250ms;
    device.Submit(1, Priority::kRoutine, deadline);
    device.RunUntil(deadline);
    for (const auto& served : device.served) met += served.row.deadline == deadline;
    device.RunUntil(deadline + 100ms);
  }
  EQUAL(met, 20);
}
END;

TEST("what does not fit is split, and larger batches are not tried again") {
  BatchPlanner planner;
  planner.AddModel(1, 8);
  const BucketKey key = {1, {{3, 8, 8}}};
  for (int64_t size : {1, 2, 4, 8}) {
    for (int i = 0; i < 2; ++i)
      planner.Observe(key, size, Milliseconds(4.0 + static_cast<double>(size)), false);
  }
  Time now(1h);
  for (uint64_t id = 1; id <= 8; ++id) planner.Add({id, key, Priority::kRoutine, std::nullopt, now});
  const auto batch = planner.Next(now);
  EQUAL(batch->rows.size(), 8u);
  CHECK(planner.OutOfMemory(*batch));
  for (const Row& row : batch->rows) planner.Add(row);
  EQUAL(planner.Next(now)->rows.size(), 4u);
  EQUAL(planner.Next(now)->rows.size(), 4u);
  CHECK(!planner.Next(now));
}
END;

TEST("a shape whose every run fails keeps no other from its turn") {
  BatchPlanner planner;
  planner.AddModel(1, 8);
  const auto key = [](int64_t side) { return BucketKey{1, {{1, side, side}}}; };
  Time now(1h);
  uint64_t id = 0;
  const auto add = [&](int64_t side) {
    now += 1ms;
    planner.Add({++id, key(side), Priority::kRoutine, std::nullopt, now});
  };
  add(5);
  add(5);
  add(7);
  bool turn = false;
  for (int runs = 0; runs < 10 && !turn; ++runs) {
    const auto batch = planner.Next(now);
    turn = batch->key == key(7);
    planner.Failed(*batch);
    add(5);
    add(5);
  }
  CHECK(turn);
}
END;

// ---- Random steps against a list.

class Walk {
 public:
  explicit Walk(uint64_t seed) : random_(seed) {
    planner_.AddModel(1, 8);
    planner_.AddModel(2, 4);
  }

  void Step() {
    now_ += std::chrono::microseconds(Pick(2000));
    const uint64_t kind = Pick(100);
    if (kind < 60) {
      Add();
    } else if (kind < 75 && !waiting_.empty()) {
      Remove();
    } else if (running_) {
      End();
    } else {
      Begin();
    }
  }

  void Finish() {
    if (running_) End();
    for (int i = 0; i < 10'000 && !waiting_.empty(); ++i) {
      now_ += 1s;
      Begin();
      if (running_) End();
    }
    CHECK(waiting_.empty() && !planner_.Next(now_));
    EQUAL(answered_.size(), next_id_ - 1);
  }

 private:
  uint64_t Pick(uint64_t n) { return random_() % n; }

  void Add() {
    if (waiting_.size() > 40) return;
    Row row;
    row.id = next_id_++;
    row.key = {1 + Pick(2), {{1, static_cast<int64_t>(Pick(3)), 8}}};
    row.priority = static_cast<Priority>(Pick(3));
    row.arrived = now_;
    if (Pick(3) == 0) row.deadline = now_ + std::chrono::milliseconds(Pick(100));
    planner_.Add(row);
    waiting_.emplace(row.id, row);
  }

  void Remove() {
    const auto it = std::next(waiting_.begin(), static_cast<ptrdiff_t>(Pick(waiting_.size())));
    CHECK(planner_.Remove(it->first));
    CHECK(!planner_.Remove(it->first));
    CHECK(answered_.insert(it->first).second);
    waiting_.erase(it);
  }

  void Begin() {
    const auto next = planner_.Next(now_);
    CHECK(next || waiting_.empty());
    if (!next) return;
    const Batch& batch = *next;
    const int64_t largest = batch.key.model == 1 ? 8 : 4;
    CHECK(!batch.rows.empty() && static_cast<int64_t>(batch.rows.size()) <= batch.capacity);
    CHECK(batch.capacity <= largest && (batch.capacity & (batch.capacity - 1)) == 0);
    for (const Row& row : batch.rows) {
      CHECK(row.key == batch.key);
      CHECK(waiting_.erase(row.id) == 1);
    }
    running_ = batch;
  }

  void End() {
    const Batch batch = *std::exchange(running_, std::nullopt);
    if (Pick(10) == 0 && planner_.OutOfMemory(batch)) {
      for (const Row& row : batch.rows) {
        planner_.Add(row);
        waiting_.emplace(row.id, row);
      }
      return;
    }
    if (Pick(20) == 0) {
      planner_.Failed(batch);
      for (const Row& row : batch.rows) CHECK(answered_.insert(row.id).second);
      return;
    }
    planner_.Done(batch, std::chrono::microseconds(500 + 100 * batch.capacity + Pick(300) +
                                                   (batch.switches ? 3000 : 0)));
    for (const Row& row : batch.rows) CHECK(answered_.insert(row.id).second);
  }

  BatchPlanner planner_;
  std::mt19937_64 random_;
  Time now_ = Time(1h);
  uint64_t next_id_ = 1;
  std::map<uint64_t, Row> waiting_;
  std::set<uint64_t> answered_;
  std::optional<Batch> running_;
};

TEST("random steps: every row answered once, in batches of its own kind and size") {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Walk walk(seed);
    const int before = Failures();
    for (int i = 0; i < Steps(1'000'000) / 4 && Failures() == before; ++i) walk.Step();
    if (Failures() == before) walk.Finish();
  }
}
END;

}  // namespace
