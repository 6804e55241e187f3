#include "runtime/run_memory.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "check.h"

using namespace radserve;
using namespace radserve::test;

namespace {

constexpr size_t kBytes = 1 << 20;

/// One run that needs so much at a time.
void* RunWith(size_t bytes) {
  const RunScope scope;
  void* memory = AllocateRunMemory(bytes);
  std::memset(memory, 1, bytes);
  FreeRunMemory(memory);
  return memory;
}

/// What one run leaves behind as its output.
void* OutputOf(size_t bytes) {
  const RunScope scope;
  return AllocateRunMemory(bytes);
}

TEST("the next run of the thread gets the same memory, aligned") {
  void* first = RunWith(kBytes);
  EQUAL(reinterpret_cast<uintptr_t>(first) % 64, uintptr_t{0});
  EQUAL(KeptRunMemory(), kBytes);
  CHECK(RunWith(kBytes) == first);
  CHECK(RunWith(kBytes - kBytes / 8) == first);
  EQUAL(KeptRunMemory(), kBytes);
  DropRunMemory();
  EQUAL(KeptRunMemory(), size_t{0});
}
END;

TEST("a much larger block is left for who needs it") {
  RunWith(kBytes);
  RunWith(kBytes / 2);
  EQUAL(KeptRunMemory(), kBytes + kBytes / 2);
  DropRunMemory();
}
END;

TEST("a large block serves the next run on any thread, as long as none asks for another length") {
  RunWith(80 * kBytes);
  std::thread([] { RunWith(80 * kBytes); }).join();
  EQUAL(KeptRunMemory(), 80 * kBytes);
  RunWith(70 * kBytes);
  EQUAL(KeptRunMemory(), 70 * kBytes);
  DropRunMemory();
  EQUAL(KeptRunMemory(), size_t{0});
}
END;

TEST("an output of a volume that was read elsewhere serves the next run") {
  void* output = OutputOf(32 * kBytes);
  std::thread([&] { FreeRunMemory(output); }).join();
  EQUAL(KeptRunMemory(), 32 * kBytes);
  CHECK(RunWith(32 * kBytes) == output);
  DropRunMemory();
}
END;

TEST("no more than 256 MiB of large blocks are kept") {
  {
    const RunScope scope;
    std::array<void*, 4> blocks{};
    for (void*& block : blocks) block = AllocateRunMemory(80 * kBytes);
    for (void* block : blocks) FreeRunMemory(block);
  }
  EQUAL(KeptRunMemory(), 240 * kBytes);
  DropRunMemory();
}
END;

TEST("what sixteen runs did not need goes back") {
  RunWith(kBytes);
  for (int run = 0; run < 40; ++run) RunWith(kBytes / 4);
  EQUAL(KeptRunMemory(), kBytes / 4);
  DropRunMemory();
}
END;

TEST("memory of a run outlives it, and is freed on another thread") {
  std::byte* memory = nullptr;
  {
    const RunScope scope;
    memory = static_cast<std::byte*>(AllocateRunMemory(kBytes));
    std::memset(memory, 7, kBytes);
  }
  RunWith(kBytes);
  std::thread([&] {
    const RunScope scope;
    CHECK(memory[kBytes - 1] == std::byte{7});
    FreeRunMemory(memory);
  }).join();
  // The thread took what it kept with it.
  EQUAL(KeptRunMemory(), kBytes);
  DropRunMemory();
}
END;

TEST("outside of runs nothing is kept, and what is too large is refused") {
  FreeRunMemory(AllocateRunMemory(kBytes));
  FreeRunMemory(nullptr);
  EQUAL(KeptRunMemory(), size_t{0});
  CHECK(AllocateRunMemory(std::numeric_limits<size_t>::max()) == nullptr);
}
END;

TEST("a run says the most that it had, and what it was refused") {
  LimitRunMemory(3 * kBytes);
  {
    const RunScope scope;
    void* first = AllocateRunMemory(kBytes);
    void* second = AllocateRunMemory(kBytes);
    FreeRunMemory(first);
    // What is kept makes room.
    void* third = AllocateRunMemory(2 * kBytes);
    CHECK(third != nullptr);
    CHECK(AllocateRunMemory(kBytes) == nullptr);
    EQUAL(RefusedInLastRun()->bytes, 4 * kBytes);
    CHECK(RefusedInLastRun()->alone);
    FreeRunMemory(second);
    FreeRunMemory(third);
  }
  EQUAL(MostOfLastRun(), 3 * kBytes);
  RunWith(kBytes);
  CHECK(!RefusedInLastRun());
  LimitRunMemory(0);
  DropRunMemory();
  EQUAL(RunMemory(), size_t{0});
}
END;

TEST("what others have now is waited for, what is beyond the limit is not") {
  LimitRunMemory(3 * kBytes);
  void* output = OutputOf(2 * kBytes);
  {
    const RunScope scope;
    CHECK(AllocateRunMemory(2 * kBytes) == nullptr);
    CHECK(!RefusedInLastRun()->alone);
    CHECK(!RunMemoryHasRoom(RefusedInLastRun()->bytes));
    CHECK(AllocateRunMemory(4 * kBytes) == nullptr);
    CHECK(RefusedInLastRun()->alone);
  }
  FreeRunMemory(output);
  CHECK(RunMemoryHasRoom(2 * kBytes));
  LimitRunMemory(0);
}
END;

TEST("a small run has its memory beside one that holds all of it") {
  LimitRunMemory(64 * kBytes);
  void* output = OutputOf(64 * kBytes);
  {
    const RunScope scope;
    void* small = AllocateRunMemory(2 * kBytes);
    CHECK(small != nullptr);
    CHECK(AllocateRunMemory(kBytes) == nullptr);
    FreeRunMemory(small);
  }
  FreeRunMemory(output);
  LimitRunMemory(0);
  DropRunMemory();
}
END;

TEST("sessions that run one after the other have the memory of the largest") {
  RunCache first(true);
  RunCache second(true);
  const auto run = [](RunCache& cache, std::vector<size_t> lengths) {
    const RunScope scope(&cache);
    std::vector<void*> blocks;
    for (const size_t bytes : lengths) {
      blocks.push_back(AllocateRunMemory(bytes));
      std::memset(blocks.back(), 1, bytes);
    }
    for (void* block : blocks) FreeRunMemory(block);
  };
  run(first, {100 * kBytes, 60 * kBytes});
  run(second, {40 * kBytes, 120 * kBytes});
  CHECK(KeptRunMemory() <= 164 * kBytes);
  run(first, {100 * kBytes, 60 * kBytes});
  CHECK(KeptRunMemory() <= 164 * kBytes);
  {
    // What one that runs has set free is for itself
    const RunScope scope(&first);
    FreeRunMemory(AllocateRunMemory(100 * kBytes));
    std::thread([&] { run(second, {100 * kBytes}); }).join();
  }
  CHECK(KeptRunMemory() >= 200 * kBytes);
  DropRunMemory();
  EQUAL(RunMemory(), size_t{0});
}
END;

TEST("a loop that takes a few bytes in each of its rounds has them once") {
  {
    const RunScope scope;
    for (int i = 0; i < 1000; ++i) FreeRunMemory(AllocateRunMemory(4));
    CHECK(KeptRunMemory() < 1024);
  }
  DropRunMemory();
}
END;

TEST("many small blocks count with what each takes beside its bytes") {
  LimitRunMemory(64 * kBytes);
  std::vector<void*> blocks;
  {
    const RunScope scope;
    while (void* block = AllocateRunMemory(4)) blocks.push_back(block);
    // A block, its head, and the runtime's tensor over it
    CHECK(blocks.size() * 384 <= 64 * kBytes);
    CHECK(RefusedInLastRun()->alone);
    for (void* block : blocks) FreeRunMemory(block);
  }
  LimitRunMemory(0);
  DropRunMemory();
  EQUAL(RunMemory(), size_t{0});
}
END;

TEST("runs of one session keep blocks of any length for each other, on any thread") {
  RunCache cache(true);
  const auto run = [&](size_t bytes) {
    const RunScope scope(&cache);
    void* memory = AllocateRunMemory(bytes);
    FreeRunMemory(memory);
    return memory;
  };
  void* first = run(80 * kBytes);
  std::thread([&] { CHECK(run(80 * kBytes) == first); }).join();
  EQUAL(cache.kept(), 80 * kBytes);
  DropRunMemory();
  EQUAL(cache.kept(), size_t{0});
}
END;

TEST("a run of a session has blocks of other lengths of the pages that others left") {
  RunCache cache(true);
  std::array<std::byte*, 3> small{};
  {
    const RunScope scope(&cache);
    for (size_t i = 0; i < small.size(); ++i) {
      small[i] = static_cast<std::byte*>(AllocateRunMemory(40 * kBytes));
      std::memset(small[i], static_cast<int>(i + 1), 40 * kBytes);
    }
    for (std::byte* block : small) FreeRunMemory(block);
    auto* large = static_cast<std::byte*>(AllocateRunMemory(100 * kBytes));
    // What moved is as it was, and nothing is beside it but what blocks leave of their last frames
    CHECK(large[0] != std::byte{0} && large[100 * kBytes - 1] != std::byte{0});
    CHECK(RunMemory() <= 126 * kBytes);
    std::memset(large, 9, 100 * kBytes);
    FreeRunMemory(large);
    CHECK(cache.kept() == RunMemory());
    void* first = AllocateRunMemory(40 * kBytes);
    void* second = AllocateRunMemory(34 * kBytes);
    EQUAL(reinterpret_cast<uintptr_t>(second) % 64, uintptr_t{0});
    std::memset(first, 1, 40 * kBytes);
    CHECK(static_cast<std::byte*>(second)[34 * kBytes - 1] == std::byte{9});
    CHECK(RunMemory() <= 126 * kBytes);
    // Of fresh pages is what is missing
    auto* larger = static_cast<std::byte*>(AllocateRunMemory(60 * kBytes));
    std::memset(larger, 5, 60 * kBytes);
    CHECK(RunMemory() >= 134 * kBytes && RunMemory() <= 140 * kBytes);
    CHECK(static_cast<std::byte*>(second)[0] == std::byte{9});
    for (void* block : {first, second, static_cast<void*>(larger)}) FreeRunMemory(block);
  }
  EQUAL(cache.kept(), RunMemory());
  DropRunMemory();
  EQUAL(RunMemory(), size_t{0});
}
END;

TEST("what is gathered is held to the limit") {
  LimitRunMemory(100 * kBytes);
  RunCache cache(true);
  {
    const RunScope scope(&cache);
    void* first = AllocateRunMemory(40 * kBytes);
    void* second = AllocateRunMemory(40 * kBytes);
    FreeRunMemory(first);
    CHECK(AllocateRunMemory(70 * kBytes) == nullptr);
    EQUAL(RefusedInLastRun()->bytes, 110 * kBytes);
    first = AllocateRunMemory(60 * kBytes);
    CHECK(first != nullptr);
    EQUAL(RunMemory(), 100 * kBytes);
    FreeRunMemory(first);
    FreeRunMemory(second);
  }
  LimitRunMemory(0);
  DropRunMemory();
  EQUAL(RunMemory(), size_t{0});
}
END;

TEST("an output of a session that was read elsewhere goes back to it, as long as it is there") {
  void* output = nullptr;
  void* late = nullptr;
  {
    RunCache cache(true);
    {
      const RunScope scope(&cache);
      output = AllocateRunMemory(300 * kBytes);
      late = AllocateRunMemory(40 * kBytes);
    }
    std::thread([&] { FreeRunMemory(output); }).join();
    EQUAL(cache.kept(), 300 * kBytes);
    const RunScope scope(&cache);
    CHECK(AllocateRunMemory(300 * kBytes) == output);
    FreeRunMemory(output);
  }
  FreeRunMemory(late);
  DropRunMemory();
  EQUAL(RunMemory(), size_t{0});
}
END;

TEST("everything can be dropped while threads run") {
  std::jthread other([](const std::stop_token& stop) {
    while (!stop.stop_requested()) RunWith(kBytes / 16);
  });
  for (int i = 0; i < 200; ++i) {
    RunWith(kBytes / 16);
    DropRunMemory();
  }
  other.request_stop();
  other.join();
  DropRunMemory();
  EQUAL(KeptRunMemory(), size_t{0});
}
END;

}  // namespace
