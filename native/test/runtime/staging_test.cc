#include "runtime/staging.h"

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <new>
#include <random>
#include <thread>
#include <utility>
#include <vector>

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

std::vector<Row> Take(Staging& staging, int count, int64_t block_rows = 8,
                      const BucketKey& key = kKey) {
  std::vector<Row> rows;
  for (int i = 0; i < count; ++i) {
    rows.push_back(staging.Take(key, {kRow, block_rows}, Plain));
    if (rows.back() != nullptr) std::memset(rows.back().get(), 1 + i, kRow);
  }
  return rows;
}

/// Whether they lie one right after the other.
bool Neighbours(const std::vector<const std::byte*>& rows) {
  for (size_t i = 1; i < rows.size(); ++i) {
    if (rows[i] != rows[i - 1] + kRow) return false;
  }
  return true;
}

TEST("rows that are taken one after the other are neighbours, but for those of another block") {
  Staging staging(1 << 20);
  const std::vector<Row> r = Take(staging, 10);
  CHECK(Neighbours({r[0].get(), r[1].get(), r[2].get(), r[3].get()}));
  CHECK(Neighbours({r[8].get(), r[9].get()}));
  CHECK(!Neighbours({r[7].get(), r[8].get()}) && !Neighbours({r[9].get(), r[0].get()}));
}
END;

TEST("a block ends behind its last row, so that no memory after it is a neighbour") {
  Staging staging(1 << 20);
  // Two blocks right after each other, as far as what allocates them knows.
  std::array<std::byte, 4 * kRow> memory{};
  std::byte* next = memory.data();
  const Staging::Allocate pack = [&](size_t bytes) {
    return std::shared_ptr<std::byte>(std::shared_ptr<void>(), std::exchange(next, next + bytes));
  };
  const Row first = staging.Take(kKey, {kRow, 1}, pack);
  const Row second = staging.Take(kKey, {kRow, 1}, pack);
  CHECK(first != nullptr && second != nullptr && !Neighbours({first.get(), second.get()}));
}
END;

TEST("a block begins again once nobody has a row of it") {
  Staging staging(1 << 20);
  std::vector<Row> r = Take(staging, 3);
  const std::byte* const first = r[0].get();
  const Row kept = r[1];
  r.clear();
  CHECK(Take(staging, 1)[0].get() == first + 3 * kRow);
  EQUAL(static_cast<int>(*kept), 2);
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
  staging.Remove(2);
  EQUAL(staging.bytes(), 2 * 8 * kRow);
  EQUAL(static_cast<int>(three[7].get()[0]), 8);
  const Staging::Allocate none = [](size_t) -> std::shared_ptr<std::byte> {
    throw std::bad_alloc();
  };
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

TEST("rows keep their places, whoever takes and drops them at the same time") {
  Staging staging{64 * 32 * sizeof(int)};
  std::atomic<int> left = Steps(200000);
  std::atomic<int> placed = 0;
  const auto take = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::deque<std::pair<int, Row>> held;
    for (int number = left--; number > 0; number = left--) {
      Row row = staging.Take({1, {{static_cast<int64_t>(random() % 2)}}}, {sizeof(int), 32}, Plain);
      if (row != nullptr) {
        ++placed;
        std::memcpy(row.get(), &number, sizeof(number));
        held.emplace_back(number, std::move(row));
      }
      while (held.size() > random() % 8) {
        EQUAL(std::memcmp(held.front().second.get(), &held.front().first, sizeof(number)), 0);
        held.pop_front();
      }
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(take, i);
  threads.clear();
  CHECK(placed > 100);
}
END;

}  // namespace
