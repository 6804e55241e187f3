#include "runtime/staging.h"

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <random>
#include <thread>

#include "check.h"
#include "steps.h"

using namespace radserve;
using namespace radserve::test;

namespace {

using Row = std::shared_ptr<std::byte>;

const BucketKey kKey = {1, {{4}}};
constexpr size_t kRow = 4;

std::shared_ptr<std::byte> Plain(size_t bytes) {
  const auto memory = std::make_shared<std::byte[]>(bytes);
  return {memory, memory.get()};
}

std::vector<Row> Take(Staging& staging, int count, int64_t block_rows = 8, const BucketKey& key = kKey) {
  std::vector<Row> rows;
  for (int i = 0; i < count; ++i) {
    rows.push_back(staging.Take(key, {kRow, block_rows}, Plain));
    if (rows.back() != nullptr) std::memset(rows.back().get(), 1 + i, kRow);
  }
  return rows;
}

std::optional<Staging::Batch> Join(Staging& staging, const std::vector<const std::byte*>& rows,
                                   int64_t size) {
  return staging.Join(rows, size);
}

TEST("neighbours are a batch, in whatever order they come") {
  Staging staging(1 << 20);
  const std::vector<Row> r = Take(staging, 4);
  const auto batch = Join(staging, {r[3].get(), r[1].get(), r[2].get()}, 3);
  CHECK(batch.has_value() && batch->data.data() == r[1].get());
  CHECK(batch->order == (std::vector<size_t>{1, 2, 0}));
  CHECK(batch->padding == nullptr);
}
END;

TEST("rows that are no neighbours are no batch") {
  Staging staging(1 << 20);
  std::vector<Row> r = Take(staging, 9);
  CHECK(!Join(staging, {r[0].get(), r[2].get()}, 2));
  // The ninth lies in another block, and plain memory in none.
  CHECK(!Join(staging, {r[7].get(), r[8].get()}, 2));
  const std::array<std::byte, kRow> plain{};
  CHECK(!Join(staging, {plain.data()}, 1));
  CHECK(!Join(staging, {r[0].get(), plain.data()}, 2));
}
END;

TEST("places beyond the rows are zeros, and nobody else's until the batch is gone") {
  Staging staging(1 << 20);
  {
    // What was there before.
    const std::vector<Row> before = Take(staging, 8);
  }
  std::vector<Row> r = Take(staging, 3);
  auto batch = Join(staging, {r[0].get(), r[1].get(), r[2].get()}, 6);
  CHECK(batch.has_value());
  for (size_t i = 0; i < 3 * kRow; ++i) CHECK(batch->data[3 * kRow + i] == std::byte{0});
  std::vector<Row> later = Take(staging, 1);
  CHECK(later[0].get() == batch->data.data() + 6 * kRow);
  // One more row than the block has.
  CHECK(!Join(staging, {later[0].get()}, 3));
  CHECK(Join(staging, {later[0].get()}, 2).has_value());
  r.clear();
  later.clear();
  CHECK(Take(staging, 1)[0].get() != batch->data.data());
  const std::byte* const first = batch->data.data();
  batch.reset();
  CHECK(Take(staging, 1)[0].get() == first);
}
END;

TEST("where another row lies the zeros have no place") {
  Staging staging(1 << 20);
  const std::vector<Row> r = Take(staging, 3);
  CHECK(!Join(staging, {r[0].get(), r[1].get()}, 4));
  CHECK(Join(staging, {r[0].get(), r[1].get()}, 2).has_value());
  EQUAL(static_cast<int>(r[2].get()[0]), 3);
}
END;

TEST("blocks take no more memory than they may, and unused ones make room") {
  Staging staging(3 * 8 * kRow);
  std::vector<Row> one = Take(staging, 8);
  std::vector<Row> two = Take(staging, 1, 8, {1, {{5}}});
  std::vector<Row> three = Take(staging, 8, 8, {2, {{4}}});
  EQUAL(staging.bytes(), 3 * 8 * kRow);
  CHECK(Take(staging, 1)[0] == nullptr);
  one.clear();
  two.clear();
  // The first of them was not used for longest.
  CHECK(Take(staging, 1, 8, {3, {{4}}})[0] != nullptr);
  EQUAL(staging.bytes(), 3 * 8 * kRow);
  CHECK(Join(staging, {three[0].get(), three[1].get()}, 2).has_value());
  staging.Remove(2);
  EQUAL(staging.bytes(), 2 * 8 * kRow);
  CHECK(!Join(staging, {three[0].get(), three[1].get()}, 2));
  EQUAL(static_cast<int>(three[7].get()[0]), 8);
  const Staging::Allocate none = [](size_t) -> std::shared_ptr<std::byte> { throw std::bad_alloc(); };
  CHECK(staging.Take({4, {{4}}}, {kRow, 8}, none) == nullptr);
  EQUAL(staging.bytes(), 2 * 8 * kRow);
}
END;

TEST("rows outlive what gave them") {
  auto staging = std::make_unique<Staging>(1 << 20);
  const std::vector<Row> r = Take(*staging, 1);
  staging.reset();
  EQUAL(static_cast<int>(r[0].get()[0]), 1);
}
END;

/// Rows of several threads, each with its own number, joined by another one into batches of sizes by chance.
struct Traffic {
  explicit Traffic(int rows) : left(rows) {}

  Staging staging{64 * 32 * sizeof(int)};
  std::mutex mutex;
  std::deque<Row> waiting;
  std::atomic<int> left;
  std::atomic<int> joined = 0;

  void Prepare(unsigned seed) {
    std::mt19937 random(seed);
    const Staging::Block block = {sizeof(int), 32};
    for (int number = left--; number > 0; number = left--) {
      Row row = staging.Take({1, {{static_cast<int64_t>(random() % 2)}}}, block, Plain);
      if (row == nullptr) row = Plain(sizeof(int));
      std::memcpy(row.get(), &number, sizeof(number));
      const std::lock_guard lock(mutex);
      waiting.push_back(std::move(row));
    }
  }

  std::vector<Row> Next(size_t most) {
    std::vector<Row> rows;
    const std::lock_guard lock(mutex);
    while (rows.size() < most && !waiting.empty()) {
      rows.push_back(std::move(waiting.front()));
      waiting.pop_front();
    }
    return rows;
  }

  void Check(const std::vector<Row>& rows, size_t size) {
    std::vector<const std::byte*> data;
    for (const Row& row : rows) data.push_back(row.get());
    const auto batch = staging.Join(data, static_cast<int64_t>(size));
    if (!batch) return;
    ++joined;
    for (size_t k = 0; k < size; ++k) {
      int found = -1;
      int expected = 0;
      std::memcpy(&found, batch->data.data() + k * sizeof(int), sizeof(int));
      if (k < rows.size()) std::memcpy(&expected, data[batch->order[k]], sizeof(int));
      EQUAL(found, expected);
    }
  }
};

TEST("rows and zeros keep their places, whoever takes, joins and drops them at the same time") {
  Traffic traffic(Steps(200000));
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < 3; ++i) threads.emplace_back([&traffic, i] { traffic.Prepare(i); });
  std::mt19937 random(5);
  for (;;) {
    const bool last = traffic.left <= 0;
    const std::vector<Row> rows = traffic.Next(1 + random() % 4);
    if (!rows.empty()) traffic.Check(rows, std::max<size_t>(rows.size(), 1 + random() % 6));
    if (last && rows.empty()) break;
  }
  threads.clear();
  CHECK(traffic.joined > 100);
}
END;

}  // namespace
