#include "scheduling/batch_planner.h"

#include <random>
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

constexpr Time kStart = Time(1h);

/// A planner of one model with batches of up to `largest` rows, of which each size takes so long.
struct Learned {
  explicit Learned(int64_t largest, const std::map<int64_t, Clock::duration>& times) {
    planner.AddModel(1, largest);
    for (const auto& [size, time] : times) {
      // The first is left out, whatever it took; one that was slow does not count.
      for (const Clock::duration took :
           {Clock::duration(900ms), time, time, Clock::duration(300ms), time})
        planner.Observe(key, size, took);
    }
  }
  void Add(int count, std::optional<Time> deadline = std::nullopt,
           Priority priority = Priority::kRoutine) {
    for (int i = 0; i < count; ++i) planner.Add({++ids, key, priority, deadline, kStart});
  }
  /// The sizes of all batches until nothing waits.
  std::vector<int64_t> Sizes() {
    std::vector<int64_t> sizes;
    while (const auto batch = planner.Next(kStart)) sizes.push_back(batch->capacity);
    return sizes;
  }

  BatchPlanner planner;
  const BucketKey key = {1, {{1, 64, 64}}};
  uint64_t ids = 0;
};

const std::map<int64_t, Clock::duration> kGpu = {
    {1, 5ms}, {2, 6ms}, {4, 7ms}, {8, 8ms}, {16, 10ms}};

// ---- What is decided.

TEST("the next batch is the smallest size that holds what waits") {
  for (const auto& [rows, size] :
       std::map<int, int64_t>{{1, 1}, {2, 2}, {3, 4}, {5, 8}, {8, 8}, {9, 16}, {16, 16}}) {
    Learned learned(16, kGpu);
    learned.Add(rows);
    CHECK(learned.Sizes() == std::vector<int64_t>{size});
  }
  Learned many(16, kGpu);
  many.Add(40);
  CHECK(many.Sizes() == (std::vector<int64_t>{16, 16, 8}));
  // Nothing is known yet: the same.
  Learned fresh(12, {});
  fresh.Add(11);
  CHECK(fresh.Sizes() == (std::vector<int64_t>{8, 4}));
}
END;

TEST("two lanes share the rows of a bucket, and a model that runs in one is left to the first") {
  Learned learned(16, kGpu);
  learned.Add(16);
  CHECK(!learned.planner.Next(kStart, nullptr, 1));
  learned.planner.SetLanes(1, 2);
  EQUAL(learned.planner.Next(kStart, nullptr, 1)->rows.size(), size_t{8});
  EQUAL(learned.planner.Next(kStart, nullptr, 0)->rows.size(), size_t{8});
  // One lane has ended its eight, and five have come back: eight run, of thirteen it takes its
  // part.
  learned.Add(5);
  EQUAL(learned.planner.Next(kStart, nullptr, 1)->rows.size(), size_t{5});
  learned.Add(11);
  const auto next = learned.planner.Next(kStart, nullptr, 0);
  EQUAL(next->rows.size(), size_t{8});
  EQUAL(next->lanes, int64_t{2});
  learned.planner.SetLanes(1, 1);
  CHECK(!learned.planner.Next(kStart, nullptr, 1));
  EQUAL(learned.planner.Next(kStart, nullptr, 0)->rows.size(), size_t{3});
}
END;

TEST("two batches run in place of a larger one where they end sooner") {
  // As nnU-Net in FP32 on an A100: two rows are faster, four far slower.
  Learned knee(8, {{1, 40ms}, {2, 51ms}, {4, 189ms}, {8, 400ms}});
  knee.Add(8);
  CHECK(knee.Sizes() == (std::vector<int64_t>{2, 2, 2, 2}));
  // As a device whose time goes with the rows: nine rows take sixteen's time together.
  Learned linear(16, {{1, 2ms}, {2, 3ms}, {4, 5ms}, {8, 9ms}, {16, 17ms}});
  linear.Add(9);
  CHECK(linear.Sizes() == (std::vector<int64_t>{8, 1}));
}
END;

TEST("a row that would be late in a large batch goes in a smaller one, if it is in time then") {
  Learned learned(16, kGpu);
  learned.Add(15);
  learned.Add(1, kStart + 7ms);
  const auto first = learned.planner.Next(kStart);
  EQUAL(first->capacity, 4);
  EQUAL(first->rows.front().id, 16u);
  CHECK(first->expected == 7ms);
  CHECK(learned.Sizes() == std::vector<int64_t>{16});
  // Nothing would save it: the others do not pay for that.
  learned.Add(15);
  learned.Add(1, kStart + 1ms);
  CHECK(learned.Sizes() == std::vector<int64_t>{16});
}
END;

TEST("batches form while the device is busy") {
  FakeDevice device({}, 32);
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

TEST("no shape waits without end while others saturate the device") {
  FakeDevice device({}, 32);
  device.on_done = [&](const Row& row) {
    device.Submit(static_cast<int>(row.key.row_shapes[0][2]));
  };
  for (int i = 0; i < 192; ++i) device.Submit(i % 3);
  device.RunUntil(device.now() + 60s);
  Clock::duration longest{};
  for (const auto& served : device.served) longest = std::max(longest, served.latency);
  CHECK(longest < 5s);
}
END;

TEST("a stat waits for the batch that runs and its own, whatever its shape") {
  const FakeCost cost;
  FakeDevice device(cost, 32);
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
  CHECK(latency[latency.size() * 95 / 100] <= Milliseconds(2 * cost.Run(32)));
}
END;

TEST("a deadline is met beside a shape that keeps the device busy") {
  FakeDevice device({}, 32);
  device.on_done = [&](const Row& row) {
    if (row.key.row_shapes[0][2] == 0) device.Submit(0);
  };
  for (int i = 0; i < 64; ++i) device.Submit(0);
  device.Submit(1);
  device.RunUntil(device.now() + 5s);
  int met = 0;
  for (int i = 0; i < 20; ++i) {
    device.served.clear();
    const Time deadline = device.now() + 80ms;
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
  Time now(1h);
  for (uint64_t id = 1; id <= 8; ++id)
    planner.Add({id, key, Priority::kRoutine, std::nullopt, now});
  const auto batch = planner.Next(now);
  EQUAL(batch->rows.size(), 8u);
  planner.Limit(key, batch->capacity / 2);
  for (const Row& row : batch->rows) planner.Add(row);
  EQUAL(planner.Next(now)->rows.size(), 4u);
  EQUAL(planner.Next(now)->rows.size(), 4u);
  CHECK(!planner.Next(now));
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
    if (Pick(10) == 0 && batch.capacity > 1) {
      planner_.Limit(batch.key, batch.capacity / 2);
      for (const Row& row : batch.rows) {
        planner_.Add(row);
        waiting_.emplace(row.id, row);
      }
      return;
    }
    if (Pick(20) == 0) {
      for (const Row& row : batch.rows) CHECK(answered_.insert(row.id).second);
      return;
    }
    const auto took = std::chrono::microseconds(500 + 100 * batch.capacity + Pick(300));
    planner_.Observe(batch.key, batch.capacity, took);
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

/// Rows a second of so many callers, who each come back some time after an answer, one after the
/// other.
double ClosedLoop(bool padded, int callers, double back_ms) {
  FakeDevice device({0.3, 5}, 16, padded);
  device.Warm(1, 16);
  int returning = 0;
  device.on_done = [&](const Row&) {
    device.After(back_ms * ++returning, [&] {
      --returning;
      device.Submit(1);
    });
  };
  for (int i = 0; i < callers; ++i) device.Submit(1);
  const Time begun = device.now();
  device.RunUntil(begun + 2s);
  return static_cast<double>(device.served.size()) / 2;
}

TEST(
    "callers that come back one after the other fill a batch of a GPU, where the first of them ran "
    "alone") {
  const double ideal = 16 / (0.3 * 16 + 5) * 1000;
  CHECK(ClosedLoop(false, 16, 0.03) < 0.75 * ideal);
  CHECK(ClosedLoop(true, 16, 0.03) > 0.9 * ideal);
  // Nothing is gained for one caller, nor lost.
  EQUAL(ClosedLoop(true, 1, 0.03), ClosedLoop(false, 1, 0.03));
}
END;

TEST(
    "a row waits an eighth of a batch at most for callers that stay away, and not at all where "
    "others wait") {
  const auto after = [](auto add) {
    Learned learned(16, kGpu);
    learned.planner.AddModel(1, 16, true);
    learned.planner.Ended(learned.key, 16, kStart);
    add(learned);
    std::optional<Time> until;
    const auto batch = learned.planner.Next(kStart, &until);
    CHECK(batch.has_value() != until.has_value());
    return until;
  };
  CHECK(after([](Learned& learned) { learned.Add(3); }) == kStart + Clock::duration(10ms) / 8);
  CHECK(!after([](Learned& learned) { learned.Add(16); }));
  CHECK(!after([](Learned& learned) { learned.Add(3, std::nullopt, Priority::kStat); }));
  CHECK(!after([](Learned& learned) { learned.Add(3, kStart + 7ms); }));
  CHECK(!after([](Learned& learned) {
    learned.Add(3);
    learned.planner.Add({99, {2, {{1, 64, 64}}}, Priority::kRoutine, std::nullopt, kStart});
  }));
  Learned learned(16, kGpu);
  learned.planner.AddModel(1, 16, true);
  learned.planner.Ended(learned.key, 16, kStart);
  learned.Add(3);
  std::optional<Time> until;
  CHECK(learned.planner.Next(kStart + 2ms, &until).has_value());
}
END;

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
