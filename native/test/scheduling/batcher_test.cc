#include "scheduling/batcher.h"

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <latch>
#include <random>
#include <semaphore>
#include <thread>

#include "check.h"
#include "steps.h"

using namespace radserve;
using namespace radserve::test;
using namespace std::chrono_literals;

namespace {

/// Doubles the number of each row; takes no more rows than fit; fails with a batch that holds a bad
/// number; holds a batch back while it is closed. By its own account a run takes 5 ms, and in the
/// second lane so many times that.
class Doubler : public Device {
 public:
  static constexpr size_t kLanes = 2;
  std::atomic<int64_t> memory_rows = 8;
  /// Others have the memory for more than one row.
  std::atomic<bool> crowded = false;
  int times_in_second = 1;
  std::atomic<int> runs = 0;
  std::array<std::atomic<int>, kLanes> rows_of{};
  std::atomic<bool> second_lane = false;
  std::atomic<int64_t> largest = 0;
  std::counting_semaphore<kLanes> entered{0};

  Result Run(int64_t lane, int64_t capacity, std::span<const std::shared_ptr<BatchRow>> rows,
             const std::stop_token& stop) override {
    const auto which = static_cast<size_t>(lane);
    CHECK(!std::exchange(busy_.at(which), true));
    ++runs;
    rows_of.at(which) += static_cast<int>(rows.size());
    if (lane > 0) second_lane = true;
    const int64_t taken = taken_ += capacity;
    {
      std::unique_lock lock(mutex_);
      if (closed_) {
        entered.release();
        opened_.wait(lock, stop, [this] { return !closed_; });
      }
    }
    CHECK(static_cast<int64_t>(rows.size()) <= capacity);
    largest = std::max<int64_t>(largest, static_cast<int64_t>(rows.size()));
    taken_ -= capacity;
    busy_.at(which) = false;
    if (stop.stop_requested()) throw EngineError("internal", "stopped between two nodes");
    if (taken > memory_rows) throw OutOfMemory("too large");
    if (crowded && capacity > 1) throw OutOfMemory("others have it", 1);
    Result result;
    for (const auto& row : rows) {
      CHECK(row->key == rows.front()->key);
      float value = 0;
      std::memcpy(&value, row->inputs.at(0).data, sizeof(value));
      if (value < 0) throw EngineError("output_invalid", "bad");
      Tensor out = MakeTensor("y", Dtype::kFloat32, {1});
      value *= 2;
      std::memcpy(out.data, &value, sizeof(value));
      result.outputs.push_back({out});
    }
    // One row costs as much as many.
    result.ran = 5ms * (lane > 0 ? times_in_second : 1);
    return result;
  }

  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    closed_ = false;
    opened_.notify_all();
  }

  void RemoveLanes(uint64_t) override {
    CHECK(!busy_.at(1));
    second_lane = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any opened_;
  bool closed_ = false;
  std::array<bool, kLanes> busy_{};
  /// Rows of the batches that run.
  std::atomic<int64_t> taken_ = 0;
};

struct Ended {
  std::shared_ptr<BatchRow> row = std::make_shared<BatchRow>();
  std::atomic<int> calls = 0;
  std::binary_semaphore done{0};

  explicit Ended(float value, int64_t shape = 1) {
    row->key = {1, {{shape}}};
    Tensor in = MakeTensor("x", Dtype::kFloat32, {1});
    std::memcpy(in.data, &value, sizeof(value));
    row->inputs.push_back(in);
    row->done = [this] {
      ++calls;
      done.release();
    };
  }
  /// The number that came out, or the code of the failure.
  std::string Outcome() {
    done.acquire();
    CHECK(calls == 1);
    if (row->failure) return row->failure->code;
    float value = 0;
    std::memcpy(&value, row->outputs.at(0).data, sizeof(value));
    return std::to_string(static_cast<int>(value));
  }
};

struct Place {
  Doubler* device;
  std::unique_ptr<Batcher> batcher;
  explicit Place(size_t lanes = 1) {
    auto made = std::make_unique<Doubler>();
    device = made.get();
    batcher = std::make_unique<Batcher>(std::move(made), lanes);
    batcher->AddModel(1, 16);
  }
  /// Rows that wait while the device is busy, so that they run together.
  void Hold() {
    device->Close();
    holder = std::make_unique<Ended>(0.0F, 99);
    batcher->Submit(holder->row);
    device->entered.acquire();
  }
  void Release() {
    device->Open();
    EQUAL(holder->Outcome(), "0");
  }
  /// Rows with their own numbers, but for the one that fails.
  std::vector<std::unique_ptr<Ended>> Submit(int count, int bad = -1) const {
    std::vector<std::unique_ptr<Ended>> rows;
    for (int i = 0; i < count; ++i) {
      rows.push_back(std::make_unique<Ended>(i == bad ? -1.0F : static_cast<float>(i)));
      batcher->Submit(rows.back()->row);
    }
    return rows;
  }
  /// The same, which wait from one moment on.
  std::vector<std::unique_ptr<Ended>> SubmitTogether(int count) const {
    std::vector<std::unique_ptr<Ended>> rows;
    std::vector<std::shared_ptr<BatchRow>> together;
    for (int i = 0; i < count; ++i) {
      rows.push_back(std::make_unique<Ended>(static_cast<float>(i)));
      together.push_back(rows.back()->row);
    }
    batcher->Submit(together);
    return rows;
  }
  /// Thirty-two rows, half of them in each lane at the same time.
  void RunInBothLanes() const {
    device->Close();
    const auto rows = SubmitTogether(32);
    for (size_t i = 0; i < Doubler::kLanes; ++i) device->entered.acquire();
    device->Open();
    for (int i = 0; i < 32; ++i)
      EQUAL(rows[static_cast<size_t>(i)]->Outcome(), std::to_string(2 * i));
  }
  std::unique_ptr<Ended> holder;
};

TEST("warming learns every size that fits, and rows that wait together run together") {
  Place place;
  place.batcher->Warm(Ended(0).row, 16, {});
  place.Hold();
  const auto rows = place.Submit(20);
  const int before = place.device->runs;
  place.Release();
  for (int i = 0; i < 20; ++i)
    EQUAL(rows[static_cast<size_t>(i)]->Outcome(), std::to_string(2 * i));
  EQUAL(place.device->runs - before, 3);
  EQUAL(place.device->largest.load(), int64_t{8});
}
END;

TEST("memory that ran out at work splits the batch, and a bad row fails alone") {
  Place place;
  place.batcher->Warm(Ended(0).row, 16, {});
  place.Hold();
  const auto rows = place.Submit(8, 3);
  place.device->memory_rows = 2;
  place.Release();
  for (int i = 0; i < 8; ++i) {
    EQUAL(rows[static_cast<size_t>(i)]->Outcome(),
          i == 3 ? "output_invalid" : std::to_string(2 * i));
  }
  place.Hold();
  const auto more = place.Submit(8);
  const int before = place.device->runs;
  place.Release();
  for (int i = 0; i < 8; ++i) EQUAL(more[static_cast<size_t>(i)]->Outcome(), std::to_string(2 * i));
  EQUAL(place.device->runs - before, 4);
}
END;

TEST("a row that has no memory alone either needs more than there is") {
  Place place;
  place.device->memory_rows = 0;
  const auto rows = place.Submit(2);
  for (const auto& row : rows) {
    EQUAL(row->Outcome(), "memory_exceeded");
    CHECK(!row->row->crowded_out);
  }
}
END;

TEST("memory that others have for a while fails rows as such, and makes no later batch smaller") {
  Place place;
  place.device->crowded = true;
  place.batcher->Warm(Ended(0).row, 16, {});
  place.Hold();
  const auto rows = place.Submit(8);
  place.Release();
  for (const auto& row : rows) {
    EQUAL(row->Outcome(), "overloaded");
    CHECK(row->row->crowded_out);
  }
  place.device->crowded = false;
  place.Hold();
  const auto more = place.Submit(8);
  const int before = place.device->runs;
  place.Release();
  for (int i = 0; i < 8; ++i) EQUAL(more[static_cast<size_t>(i)]->Outcome(), std::to_string(2 * i));
  EQUAL(place.device->runs - before, 1);
}
END;

/// A place of two lanes, warm.
Place InLanes(int times_in_second = 1) {
  Place place(Doubler::kLanes);
  place.device->memory_rows = 32;
  place.device->times_in_second = times_in_second;
  place.batcher->Warm(Ended(0).row, 16, {});
  return place;
}

TEST(
    "a model runs in two lanes where two batches beside each other are sooner done, and they share "
    "its "
    "rows") {
  // A third of a lane more pays, a thirtieth does not.
  CHECK(InLanes(3).device->second_lane);
  CHECK(!InLanes(30).device->second_lane);
  const Place place = InLanes();
  CHECK(place.device->second_lane);
  for (auto& lane : place.device->rows_of) lane = 0;
  place.RunInBothLanes();
  for (const auto& lane : place.device->rows_of) EQUAL(lane.load(), 16);
  // Room is wanted for another model.
  CHECK(place.batcher->ForgoLanes(1));
  CHECK(!place.device->second_lane && !place.batcher->ForgoLanes(1));
  for (const auto& row : place.Submit(16)) CHECK(row->Outcome() != "overloaded");
  EQUAL(place.device->rows_of[1].load(), 16);
}
END;

TEST("what does not fit beside the other lane runs in one, in batches as large as before") {
  const Place place = InLanes();
  place.device->memory_rows = 16;
  place.RunInBothLanes();
  CHECK(!place.device->second_lane);
  place.device->largest = 0;
  for (const auto& row : place.SubmitTogether(16)) CHECK(row->Outcome() != "overloaded");
  EQUAL(place.device->largest.load(), int64_t{16});
}
END;

TEST("cancelled rows leave at once; a batch of cancelled rows is stopped") {
  Place place;
  place.Hold();
  Ended waiting(1);
  Ended other(2);
  place.batcher->Submit(waiting.row);
  place.batcher->Submit(other.row);
  place.batcher->Cancel(waiting.row);
  EQUAL(waiting.Outcome(), "cancelled");
  place.batcher->Cancel(place.holder->row);
  EQUAL(place.holder->Outcome(), "cancelled");
  place.device->Open();
  EQUAL(other.Outcome(), "4");
  place.batcher->Cancel(other.row);
  EQUAL(other.calls.load(), 1);
}
END;

TEST("what waits or runs when it ends is told so") {
  Place place;
  place.Hold();
  Ended waiting(1);
  place.batcher->Submit(waiting.row);
  place.batcher.reset();
  EQUAL(waiting.Outcome(), "shutting_down");
  EQUAL(place.holder->Outcome(), "shutting_down");
}
END;

TEST("images of one size that all fail keep none of another size from its turn") {
  Place place;
  Ended other(3, 2);
  std::vector<std::unique_ptr<Ended>> failing;
  std::atomic<int> failed = 0;
  std::binary_semaphore all_failed{0};
  std::function<void()> submit = [&] {
    failing.push_back(std::make_unique<Ended>(-1.0F, 1));
    failing.back()->row->done = [&] {
      // At once the next one, so that there is always another
      const int count = ++failed;
      if (count < 200) submit();
      if (count == 201) all_failed.release();
    };
    place.batcher->Submit(failing.back()->row);
  };
  place.Hold();
  submit();
  submit();
  place.batcher->Submit(other.row);
  int before = 0;
  other.row->done = [&, done = other.row->done] {
    before = failed;
    done();
  };
  place.Release();
  EQUAL(other.Outcome(), "6");
  CHECK(before < 20);
  all_failed.acquire();
}
END;

TEST(
    "a batch that was about to start when it ends is asked to stop, and so is each of its rows "
    "alone") {
  Place place;
  place.batcher->Warm(Ended(0).row, 16, {});
  place.Hold();
  const auto rows = place.Submit(8, 0);
  // The first of them fails alone; while it is told so, everything ends.
  rows[0]->row->done = [&, done = rows[0]->row->done] {
    CHECK(!place.batcher->Stop(0ms));
    done();
  };
  place.Release();
  EQUAL(rows[0]->Outcome(), "output_invalid");
  for (size_t i = 1; i < rows.size(); ++i) EQUAL(rows[i]->Outcome(), "shutting_down");
}
END;

TEST(
    "many submitters and cancellers at once: every row ends once, with its own number, in both "
    "lanes") {
  for (const int64_t memory : {8, 32}) {
    Place place = InLanes();
    place.device->memory_rows = memory;
    place.batcher->AddModel(2, 4);
    const int rounds = Steps(1000);
    std::vector<std::jthread> threads;
    for (uint64_t t = 1; t <= 3; ++t) {
      threads.emplace_back([&place, t, rounds] {
        std::mt19937_64 random(t);
        for (int round = 0; round < rounds; ++round) {
          std::vector<std::unique_ptr<Ended>> rows;
          for (int i = 0; i < 10; ++i) {
            const bool bad = random() % 20 == 0;
            rows.push_back(
                std::make_unique<Ended>(bad ? -1.0F : static_cast<float>(i), random() % 2));
            rows.back()->row->key.model = 1 + random() % 2;
            rows.back()->row->priority = static_cast<Priority>(random() % 3);
            place.batcher->Submit(rows.back()->row);
            if (random() % 4 == 0) place.batcher->Cancel(rows[random() % rows.size()]->row);
          }
          for (int i = 0; i < 10; ++i) {
            const std::string outcome = rows[static_cast<size_t>(i)]->Outcome();
            CHECK(outcome == std::to_string(2 * i) || outcome == "cancelled" ||
                  outcome == "output_invalid");
          }
        }
      });
    }
    threads.clear();
  }
}
END;

}  // namespace
