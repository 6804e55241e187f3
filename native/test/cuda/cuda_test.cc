// The CUDA path over the real provider of ONNX Runtime, with the stand-in for the CUDA libraries
// (stand_in.h) or, where there is a GPU, with the libraries themselves. With the stand-in kernels
// do nothing, so that numbers are looked at only where the provider copies. Run by
// scripts/test-cuda.mjs.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#define RADSERVE_TEST_OWN_MAIN
#include "base/sha256.h"
#include "check.h"
#include "onnx.h"
#include "runtime/cuda.h"
#include "runtime/independence.h"
#include "runtime/session.h"
#include "runtime/session_device.h"
#include "scheduling/batcher.h"
#include "scheduling/scheduler.h"
#include "stand_in.h"

using namespace radserve;
using namespace radserve::test;

namespace {

const std::vector<std::string> kOutputs = {"y"};
constexpr int kIllegalAddress = 700;

/// The functions of stand_in.h, looked up because the real libcudart has none of them.
struct StandIn {
  decltype(&StandInCount) count;
  decltype(&StandInUsed) used;
  decltype(&StandInPinned) pinned;
  decltype(&StandInPlans) plans;
  decltype(&StandInGraphs) graphs;
  decltype(&StandInReset) reset;
  decltype(&StandInSetMemory) set_memory;
  decltype(&StandInBreak) break_device;
  decltype(&StandInSpoil) spoil;
  decltype(&StandInSlow) slow;
  decltype(&StandInHold) hold;
  decltype(&StandInAwaitHeld) await_held;
};

StandIn& Cuda() {
  static StandIn stand_in = [] {
    void* library = dlopen("libcudart.so.13", RTLD_NOW | RTLD_GLOBAL);
    const auto look = [&library](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          library == nullptr ? nullptr : dlsym(library, name));
    };
    StandIn found{};
    look(found.count, "StandInCount");
    look(found.used, "StandInUsed");
    look(found.pinned, "StandInPinned");
    look(found.graphs, "StandInGraphs");
    look(found.spoil, "StandInSpoil");
    look(found.reset, "StandInReset");
    look(found.set_memory, "StandInSetMemory");
    look(found.break_device, "StandInBreak");
    look(found.slow, "StandInSlow");
    look(found.hold, "StandInHold");
    look(found.await_held, "StandInAwaitHeld");
    library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
    look(found.plans, "StandInPlans");
    return found;
  }();
  return stand_in;
}

/// x [n,...] -> Flatten -> y: the provider copies, so that the numbers are right with the stand-in
/// too.
std::string Copying(const std::vector<int64_t>& x, const std::vector<int64_t>& y) {
  return OneNode("Flatten", {"x"}, x, y, "axis", 1);
}

std::filesystem::path FolderOf(pid_t process) {
  return std::filesystem::temp_directory_path() / ("radserve-cuda-test-" + std::to_string(process));
}

/// The models of this process, which sessions are made from anew.
struct Folder {
  Folder() { std::filesystem::create_directory(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  const std::filesystem::path path = FolderOf(getpid());
};

std::filesystem::path Put(const std::string& model) {
  static const Folder folder;
  static std::atomic<int> models = 0;
  const std::filesystem::path path = folder.path / (std::to_string(++models) + ".onnx");
  std::ofstream(path, std::ios::binary) << model;
  return path;
}

std::unique_ptr<Session> Load(const std::string& model, int device = 0, size_t memory = 0) {
  StartRuntime();
  SessionSettings settings;
  settings.provider = Provider::kCuda;
  settings.device = device;
  settings.device_memory = memory;
  return std::make_unique<Session>(Put(model), settings, "model_unavailable");
}

void Fill(std::span<std::byte> bytes, float first) {
  auto* values = reinterpret_cast<float*>(bytes.data());
  std::iota(values, values + bytes.size() / sizeof(float), first);
}

std::vector<float> Counting(float first, size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST("CUDA works, cuDNN and a convolution included") {
  StartRuntime();
  EQUAL(CudaProblem(0), std::string());
  EQUAL(CudaProblem(1), std::string());
  CHECK(!CudaProblem(7).empty());
}
END;

TEST("a hundred runs on every bucket: inputs go to the device and outputs come back, each once") {
  const auto session = Load(Copying({0, 2, 4}, {0, 8}));
  const std::vector<std::vector<int64_t>> shapes = {{2, 4}};
  for (const int64_t capacity : {1, 2, 4, 8}) {
    const auto bucket = session->MakeBucket(capacity, shapes, kOutputs, true);
    Cuda().reset();
    constexpr int kRuns = 100;
    int64_t given = 0;
    for (int run = 0; run < kRuns; ++run) {
      const int64_t rows = 1 + run % capacity;
      given += rows;
      for (int64_t row = 0; row < rows; ++row)
        Fill(bucket->Row(0, row), static_cast<float>(100 * run + 8 * row));
      bucket->Run(rows, {});
      for (int64_t row = 0; row < rows; ++row) {
        CHECK(AsFloats(bucket->TakeRow(row).at(0)) ==
              Counting(static_cast<float>(100 * run + 8 * row), 8));
      }
    }
    const StandInCounts counts = Cuda().count(0);
    EQUAL(counts.bytes_to_device, static_cast<uint64_t>(given * 8) * sizeof(float));
    EQUAL(counts.bytes_from_device, static_cast<uint64_t>(kRuns * capacity * 8) * sizeof(float));
    EQUAL(counts.copies_to_device, uint64_t{kRuns});
    EQUAL(counts.copies_from_device, uint64_t{kRuns});
    EQUAL(counts.strays, uint64_t{0});
  }
}
END;

TEST("rows that the device copies are found independent, and what that took is given back") {
  const auto session = Load(Copying({0, 2, 4}, {0, 8}));
  Cuda().reset();
  std::vector<Tensor> row = {MakeTensor("x", Dtype::kFloat32, {1, 2, 4})};
  size_t filled = 0;
  const auto fill = [&](size_t pattern, std::span<Tensor> tensors) {
    ++filled;
    Fill({tensors[0].data, tensors[0].Bytes()}, static_cast<float>(10 * pattern));
  };
  size_t used = 0;
  for (const int64_t rows : {2, 64}) {
    filled = 0;
    CHECK(RowsAreIndependent(*session, kOutputs, rows, row, fill, {}));
    // The batch twice, twice with other neighbours, and turned round; two rows alone.
    EQUAL(filled, static_cast<size_t>(5 * rows + 2));
    ShrinkGpu(0);
    // A stream of the session keeps a little once it has run.
    if (rows == 2) used = Cuda().used(0);
    EQUAL(Cuda().used(0), used);
  }
  EQUAL(Cuda().count(0).strays, uint64_t{0});
}
END;

TEST("rows that are still read keep their numbers while later batches run, and no memory grows") {
  const auto session = Load(Copying({0, 2}, {0, 2}));
  const auto bucket = session->MakeBucket(4, {{2}}, kOutputs);
  const auto run = [&](float first) {
    for (int64_t row = 0; row < 4; ++row)
      Fill(bucket->Row(0, row), first + static_cast<float>(row));
    bucket->Run(4, {});
    return bucket->TakeRow(3).at(0);
  };
  std::vector<Tensor> read;
  for (int i = 0; i < 8; ++i) read.push_back(run(static_cast<float>(10 * i)));
  const size_t pinned = Cuda().pinned();
  const size_t bytes = bucket->Bytes();
  for (int i = 0; i < 100; ++i) read.push_back(run(static_cast<float>(10 * (i + 8))));
  for (size_t i = 0; i < read.size(); ++i) {
    CHECK(AsFloats(read[i]) == Counting(static_cast<float>(10 * i + 3), 2));
  }
  EQUAL(Cuda().pinned(), pinned);
  EQUAL(bucket->Bytes(), bytes);
  // The inputs, the three places of the outputs, and one from which they are copied, on the host.
  EQUAL(bytes, 5 * 4 * 2 * sizeof(float));
}
END;

TEST("a row of the last run is not copied on the thread of the batches") {
  const auto session = Load(Copying({0, 2}, {0, 2}));
  const auto bucket = session->MakeBucket(2, {{2}}, kOutputs);
  bucket->Row(0, 0);
  bucket->Run(2, {});
  const Tensor first = bucket->TakeRow(0).at(0);
  const Tensor second = bucket->TakeRow(1).at(0);
  EQUAL(second.data - first.data, static_cast<ptrdiff_t>(2 * sizeof(float)));
}
END;

TEST("two models by turns take no more memory than at first") {
  const auto first = Load(OneNode("Add", {"x", "x"}, {0, 1024}, {0, 1024}));
  const auto second = Load(OneNode("Mul", {"x", "x"}, {0, 2048}, {0, 2048}));
  const auto a = first->MakeBucket(64, {{1024}}, kOutputs, true);
  const auto b = second->MakeBucket(64, {{2048}}, kOutputs);
  size_t settled = 0;
  for (int turn = 0; turn < 200; ++turn) {
    for (Bucket* bucket : {a.get(), b.get()}) {
      bucket->Row(0, 0);
      bucket->Run(64, {});
      bucket->TakeRow(0);
    }
    if (turn == 1) settled = Cuda().used(0);
  }
  EQUAL(Cuda().used(0), settled);
}
END;

/// A device of a session of which each row has `side` numbers.
struct Served {
  explicit Served(const std::string& model, int gpu = 0, int64_t largest = 8, size_t memory = 0,
                  size_t lanes = 1)
      : session(Load(model, gpu, memory)) {
    auto made = std::make_unique<SessionDevice>();
    device = made.get();
    device->AddModel(1, {session.get(), kOutputs, &stats, largest});
    batcher = std::make_unique<Batcher>(std::move(made), lanes);
    batcher->AddModel(1, largest);
  }

  std::shared_ptr<BatchRow> Row(int64_t side, float first) const { return RowOf({side}, first); }

  std::shared_ptr<BatchRow> RowOf(const std::vector<int64_t>& shape, float first,
                                  uint64_t model = 1) const {
    auto row = std::make_shared<BatchRow>();
    row->key = {model, {shape}};
    row->inputs = {device->NewRow(row->key, "x", Dtype::kFloat32)};
    Fill({row->inputs[0].data, row->inputs[0].Bytes()}, first);
    return row;
  }

  /// Submits rows, which wait from one moment on. The function that is returned waits for all of
  /// them.
  std::function<void()> Submit(const std::vector<std::shared_ptr<BatchRow>>& rows) const {
    const auto done = std::make_shared<std::latch>(static_cast<ptrdiff_t>(rows.size()));
    for (const auto& row : rows) row->done = [done] { done->count_down(); };
    batcher->Submit(rows);
    return [done] { done->wait(); };
  }
  void Answer(const std::vector<std::shared_ptr<BatchRow>>& rows) const { Submit(rows)(); }

  std::unique_ptr<Session> session;
  SessionDevice* device = nullptr;
  RunStats stats;
  // Ends first: it uses all of these.
  std::unique_ptr<Batcher> batcher;
};

TEST("rows go to the device from where they lie, neighbours at once, and zeros after them") {
  constexpr int64_t kLarge = 8192;
  const Served served(Copying({0, -1}, {0, -1}), 0, 4);
  const auto rows_of = [&](int64_t side) {
    std::vector<std::shared_ptr<BatchRow>> rows;
    for (int i = 0; i < 6; ++i) rows.push_back(served.Row(side, static_cast<float>(10 * i)));
    return rows;
  };
  const auto rows = rows_of(kLarge);
  const auto small = rows_of(2);
  const auto run = [&](const std::vector<std::shared_ptr<BatchRow>>& batch) {
    Cuda().reset();
    const auto result = served.device->Run(0, 4, batch, {});
    for (size_t i = 0; i < batch.size(); ++i) {
      CHECK(AsFloats(result.outputs.at(i).at(0)) == AsFloats(batch[i]->inputs[0]));
    }
    return Cuda().count(0).copies_to_device;
  };
  EQUAL(run({rows[5], rows[0], rows[2], rows[3]}), uint64_t{3});
  EQUAL(run({rows[1], rows[0]}), uint64_t{1});
  EQUAL(served.stats.Get().gathered, uint64_t{0});
  // Small ones are copied together before.
  EQUAL(run({small[5], small[0], small[2], small[3]}), uint64_t{1});
  EQUAL(served.stats.Get().gathered, uint64_t{1});
  const auto bucket = served.session->MakeBucket(4, {{2}}, kOutputs, true);
  for (const int64_t count : {1, 4, 2, 3}) {
    for (int64_t row = 0; row < count; ++row)
      Fill(bucket->Row(0, row), static_cast<float>(1 + row));
    bucket->Run(count, {});
    for (int64_t row = 0; row < 4; ++row) {
      const auto first = static_cast<float>(1 + row);
      CHECK(AsFloats(bucket->TakeRow(row).at(0)) ==
            (row < count ? Counting(first, 2) : std::vector<float>{0, 0}));
    }
  }
}
END;

TEST("a run that is stopped ends between two nodes, and the next one is whole") {
  // Two kernels; the first is held.
  const std::string model =
      Number(1, 8) +
      Bytes(7,
            Bytes(1,
                  Bytes(1, "x") + Bytes(1, "x") + Bytes(2, "m") + Bytes(3, "a") + Bytes(4, "Add")) +
                Bytes(1, Bytes(1, "m") + Bytes(2, "y") + Bytes(3, "b") + Bytes(4, "Sigmoid")) +
                Bytes(2, "test") + Bytes(11, Value("x", {0, 4})) + Bytes(12, Value("y", {0, 4}))) +
      Bytes(8, Bytes(1, "") + Number(2, 17));
  Served served(model);
  Cuda().reset();
  Cuda().hold(0, true);
  auto row = served.Row(4, 1);
  const auto answer = served.Submit({row});
  Cuda().await_held(0);
  served.batcher->Cancel(row);
  answer();
  CHECK(row->failure && row->failure->code == "cancelled");
  Cuda().hold(0, false);
  auto next = served.Row(4, 2);
  served.Answer({next});
  CHECK(!next->failure);
  // One of the run that was stopped, two of the next.
  EQUAL(Cuda().count(0).launches, uint64_t{3});
}
END;

/// x [n,1,h,w] -> Conv with one weight -> y: cuDNN plans for it.
std::string Convolution() {
  return OneNode("Conv", {"x", "w"}, {0, 1, -1, -1}, {0, 1, -1, -1}, "", 0,
                 Zeros("w", {1, 1, 1, 1}));
}

TEST("no bucket is planned again once it is warm, whatever sizes and shapes come by turns") {
  const Served served(Convolution());
  constexpr std::array<int64_t, 3> kSides = {8, 24, 16};
  const uint64_t before = Cuda().plans();
  for (const int64_t side : kSides) served.batcher->Warm(served.RowOf({1, side, side}, 0), 8, {});
  const uint64_t plans = Cuda().plans();
  CHECK(plans > before);
  // Four sizes of each shape.
  EQUAL(Cuda().graphs(), 4 * kSides.size());
  const size_t used = Cuda().used(0);
  Cuda().reset();
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    std::vector<std::shared_ptr<BatchRow>> rows;
    for (uint64_t r = 0; r <= random() % 12; ++r) {
      const int64_t side = kSides[random() % kSides.size()];
      rows.push_back(served.RowOf({1, side, side}, 0));
    }
    served.Answer(rows);
    for (const auto& row : rows) CHECK(!row->failure);
  }
  EQUAL(Cuda().plans(), plans);
  const StandInCounts counts = Cuda().count(0);
  EQUAL(counts.captures + counts.spoilt + counts.strays + counts.stale, uint64_t{0});
  CHECK(counts.graph_launches >= 300);
  EQUAL(Cuda().used(0), used);
}
END;

TEST(
    "what a graph gives are the numbers of its own rows, and they stay while it is launched "
    "again") {
  const auto session = Load(Copying({0, 2}, {0, 2}));
  const auto small = session->MakeBucket(1, {{2}}, kOutputs, true);
  const auto large = session->MakeBucket(4, {{2}}, kOutputs, true);
  Cuda().reset();
  std::vector<Tensor> read;
  for (int i = 0; i < 20; ++i) {
    Bucket& bucket = i % 2 == 0 ? *small : *large;
    for (int64_t row = 0; row < bucket.capacity(); ++row)
      Fill(bucket.Row(0, row), static_cast<float>(10 * i + row));
    bucket.Run(bucket.capacity(), {});
    read.push_back(bucket.TakeRow(bucket.capacity() - 1).at(0));
  }
  for (int i = 0; i < 20; ++i) {
    CHECK(AsFloats(read[static_cast<size_t>(i)]) ==
          Counting(static_cast<float>(10 * i + (i % 2 == 0 ? 0 : 3)), 2));
  }
  // A first run is plain; a capture is launched, too.
  EQUAL(Cuda().count(0).captures, uint64_t{2});
  EQUAL(Cuda().count(0).graph_launches, uint64_t{18});
  EQUAL(Cuda().count(0).strays, uint64_t{0});
}
END;

TEST(
    "what a graph reaches into stays while other buckets of its model run, with larger batches "
    "too") {
  const auto session = Load(OneNode("Gemm", {"x", "w", "b"}, {0, 4}, {0, 4}, "", 0,
                                    Zeros("w", {4, 4}) + Zeros("b", {4})));
  const auto small = session->MakeBucket(1, {{4}}, kOutputs, true);
  const auto large = session->MakeBucket(1024, {{4}}, kOutputs, true);
  const auto shared = session->MakeBucket(2048, {{4}}, kOutputs);
  CHECK(shared->Shared() && !small->Shared());
  Cuda().reset();
  for (int i = 0; i < 4; ++i) {
    for (Bucket* bucket : {small.get(), large.get(), shared.get()}) {
      bucket->Row(0, 0);
      bucket->Run(1, {});
    }
  }
  EQUAL(Cuda().count(0).stale, uint64_t{0});
  EQUAL(Cuda().count(0).captures, uint64_t{2});
}
END;

TEST("what a graph copies from pinned memory stays while rows of earlier runs are read") {
  // By x of n and m of 2n columns. Where parts are unequal the runtime copies their addresses from
  // memory that it has freed.
  const auto concat = [](const std::string& a, const std::string& b, const std::string& to) {
    const std::string axis = Bytes(5, Bytes(1, "axis") + Number(3, 1) + Number(20, 2));
    return Bytes(
        1, Bytes(1, a) + Bytes(1, b) + Bytes(2, to) + Bytes(3, to) + Bytes(4, "Concat") + axis);
  };
  const std::string graph = concat("x", "x", "m") + concat("x", "m", "y") + Bytes(2, "test") +
                            Bytes(11, Value("x", {0, 2})) + Bytes(12, Value("y", {0, 6}));
  const auto session =
      Load(Number(1, 8) + Bytes(7, graph) + Bytes(8, Bytes(1, "") + Number(2, 17)));
  const auto bucket = session->MakeBucket(1, {{2}}, kOutputs, true);
  Cuda().reset();
  std::vector<Tensor> read;
  for (int i = 0; i < 12; ++i) {
    bucket->Row(0, 0);
    bucket->Run(1, {});
    read.push_back(bucket->TakeRow(0).at(0));
  }
  EQUAL(Cuda().count(0).captures, uint64_t{1});
  EQUAL(Cuda().count(0).stale, uint64_t{0});
}
END;

TEST("an image whose shape never comes again is not captured") {
  const Served served(Copying({0, 0}, {0, 0}));
  Cuda().reset();
  for (int64_t side = 1; side <= 20; ++side) served.Answer({served.Row(side, 1)});
  EQUAL(Cuda().count(0).captures, uint64_t{0});
  EQUAL(Cuda().graphs(), size_t{0});
  // The second time it gets a session of its own, whose second run is captured.
  for (int i = 0; i < 2; ++i) {
    auto again = served.Row(7, 3);
    served.Answer({again});
    CHECK(AsFloats(again->outputs.at(0)) == Counting(3, 7));
  }
  EQUAL(Cuda().count(0).captures, uint64_t{1});
}
END;

TEST("nothing that allocates, frees or waits runs beside a capture") {
  const Served first(Copying({0, 0}, {0, 0}), 0);
  const Served second(Copying({0, 0}, {0, 0}), 1);
  Cuda().reset();
  std::atomic<int> wrong = 0;
  {
    std::atomic<bool> ended = false;
    std::jthread loads([&] {
      while (!ended)
        Load(OneNode("Add", {"x", "x"}, {0, 4}, {0, 4}), 1)->MakeBucket(2, {{4}}, kOutputs);
    });
    std::jthread looks([&] {
      while (!ended) {
        ShrinkGpu(0);
        if (UseOfGpu(1, 0).total == 0) ++wrong;
        first.session->MakeRows(64);
        std::this_thread::yield();
      }
    });
    std::jthread runs([&] {
      const Tensor x = MakeTensor("x", Dtype::kFloat32, {1, 16});
      Fill({x.data, x.Bytes()}, 5);
      while (!ended) {
        if (AsFloats(first.session->Run({&x, 1}, kOutputs, true, {}).at(0)) != Counting(5, 16))
          ++wrong;
      }
    });
    for (int64_t side = 1; side <= 60; ++side) {
      // Where a capture has to wait for long, it is tried again later.
      for (int i = 0; i < 4; ++i) {
        for (const Served* served : {&first, &second}) {
          auto row = served->Row(side, static_cast<float>(i));
          served->Answer({row});
          const bool good =
              !row->failure && AsFloats(row->outputs.at(0)) ==
                                   Counting(static_cast<float>(i), static_cast<size_t>(side));
          if (!good) ++wrong;
        }
      }
    }
    ended = true;
  }
  EQUAL(wrong.load(), 0);
  for (const int device : {0, 1}) {
    CHECK(Cuda().count(device).captures >= 50);
    EQUAL(Cuda().count(device).spoilt + Cuda().count(device).strays, uint64_t{0});
  }
}
END;

TEST("a model whose capture fails goes on without graphs, and no row is lost") {
  const Served served(Copying({0, 4}, {0, 4}));
  Cuda().reset();
  Cuda().spoil(1);
  for (int i = 0; i < 6; ++i) {
    auto row = served.Row(4, static_cast<float>(i));
    served.Answer({row});
    CHECK(!row->failure && AsFloats(row->outputs.at(0)) == Counting(static_cast<float>(i), 4));
  }
  EQUAL(Cuda().count(0).spoilt, uint64_t{1});
  EQUAL(Cuda().count(0).captures, uint64_t{0});
  EQUAL(Cuda().graphs(), size_t{0});
}
END;

TEST(
    "shapes that come again, more than there are places: every row has its numbers, and the memory "
    "is "
    "bounded") {
  const Served served(Copying({0, 0}, {0, 0}));
  Cuda().reset();
  size_t used = 0;
  for (int64_t shape = 0; shape < 300; ++shape) {
    const int64_t side = 1 + shape % 150;
    for (int i = 0; i < 3; ++i) {
      auto row = served.Row(side, static_cast<float>(i));
      served.Answer({row});
      CHECK(!row->failure && AsFloats(row->outputs.at(0)) ==
                                 Counting(static_cast<float>(i), static_cast<size_t>(side)));
    }
    CHECK(Cuda().graphs() <= 128);
    if (shape == 149) used = Cuda().used(0);
  }
  EQUAL(Cuda().count(0).captures, uint64_t{300});
  CHECK(Cuda().used(0) < used + used / 2);
}
END;

TEST("buckets by turns that do not all fit do not make each other's sessions anew") {
  constexpr size_t kWeights = size_t{512} * 512 * sizeof(float);
  const Served served(
      OneNode("MatMul", {"x", "w"}, {0, 512}, {0, 512}, "", 0, Zeros("w", {512, 512})));
  Cuda().reset();
  // Room for about two sessions more, half of which is for runs.
  Cuda().set_memory(0, Cuda().used(0) + 4 * kWeights);
  for (int turn = 0; turn < 40; ++turn) {
    for (const size_t rows : {1, 2, 4, 8}) {
      std::vector<std::shared_ptr<BatchRow>> batch;
      for (size_t i = 0; i < rows; ++i) batch.push_back(served.Row(512, 0));
      served.device->Run(0, static_cast<int64_t>(rows), batch, {});
    }
  }
  CHECK(Cuda().count(0).captures >= 1 && Cuda().count(0).captures < 4);
  Cuda().reset();
}
END;

TEST("two devices run side by side: one that waits keeps the other from nothing") {
  Served first(OneNode("Add", {"x", "x"}, {0, 4}, {0, 4}), 0);
  Served second(OneNode("Add", {"x", "x"}, {0, 4}, {0, 4}), 1);
  for (const Served* served : {&first, &second}) served->batcher->Warm(served->Row(4, 0), 8, {});
  Cuda().reset();
  Cuda().hold(0, true);
  auto held = first.Row(4, 1);
  const auto answer = first.Submit({held});
  Cuda().await_held(0);
  second.Answer({second.Row(4, 1), second.Row(4, 2)});
  CHECK(Cuda().count(1).launches > 0);
  CHECK(Cuda().count(1).bytes_to_device > 0);
  EQUAL(Cuda().count(0).launches, uint64_t{0});
  EQUAL(Cuda().count(0).strays + Cuda().count(1).strays, uint64_t{0});
  Cuda().hold(0, false);
  answer();
  CHECK(!held->failure);
}
END;

TEST("sixteen threads, two devices, several shapes: each row gets its own numbers") {
  Served first(Copying({0, 0}, {0, 0}), 0);
  Served second(Copying({0, 0}, {0, 0}), 1);
  Cuda().reset();
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 16; ++thread) {
      threads.emplace_back([&, thread] {
        std::mt19937_64 random(static_cast<uint64_t>(thread));
        for (int i = 0; i < 200; ++i) {
          const Served& served = random() % 2 == 0 ? first : second;
          const auto side = static_cast<int64_t>(8 << random() % 3);
          std::vector<std::shared_ptr<BatchRow>> rows;
          for (uint64_t r = 0; r <= random() % 4; ++r)
            rows.push_back(served.Row(side, static_cast<float>(random() % 1000)));
          std::vector<float> begins;
          for (const auto& row : rows) begins.push_back(AsFloats(row->inputs[0]).at(0));
          served.Answer(rows);
          for (size_t r = 0; r < rows.size(); ++r) {
            const bool good =
                !rows[r]->failure &&
                AsFloats(rows[r]->outputs.at(0)) == Counting(begins[r], static_cast<size_t>(side));
            if (!good) ++wrong;
          }
        }
      });
    }
  }
  EQUAL(wrong.load(), 0);
  EQUAL(Cuda().count(0).strays + Cuda().count(1).strays, uint64_t{0});
}
END;

/// Rows of a number a side of [first, first + 1, ...], answered with the same.
bool Echoes(const BatchRow& row, float first, int64_t side) {
  return !row.failure && AsFloats(row.outputs.at(0)) == Counting(first, static_cast<size_t>(side));
}

TEST(
    "a model of several inputs and outputs runs in batches: first plainly, then as a graph, with "
    "the same "
    "numbers") {
  const auto flatten = [](const std::string& from, const std::string& to) {
    return Bytes(1, Bytes(1, from) + Bytes(2, to) + Bytes(3, to) + Bytes(4, "Flatten"));
  };
  const std::string model =
      Number(1, 8) +
      Bytes(7, flatten("a", "y") + flatten("b", "z") + Bytes(2, "test") +
                   Bytes(11, Value("a", {0, 4})) + Bytes(11, Value("b", {0, 2})) +
                   Bytes(12, Value("y", {0, 4})) + Bytes(12, Value("z", {0, 2}))) +
      Bytes(8, Bytes(1, "") + Number(2, 17));
  const auto session = Load(model);
  SessionDevice device;
  RunStats stats;
  device.AddModel(1, {session.get(), {"z", "y"}, &stats, 4});
  Cuda().reset();
  constexpr int kRuns = 5;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<std::shared_ptr<BatchRow>> rows;
    for (int i = 0; i < 3; ++i) {
      auto row = std::make_shared<BatchRow>();
      row->key = {1, {{4}, {2}}};
      row->inputs = {MakeTensor("a", Dtype::kFloat32, {1, 4}),
                     MakeTensor("b", Dtype::kFloat32, {1, 2})};
      for (Tensor& input : row->inputs) {
        Fill({input.data, input.Bytes()},
             static_cast<float>(100 * run + 10 * i) + (input.name == "b" ? 5.0F : 0));
      }
      rows.push_back(row);
    }
    const Device::Result result = device.Run(0, 4, rows, {});
    EQUAL(result.outputs.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto first = static_cast<float>(100 * run) + 10 * static_cast<float>(i);
      CHECK(AsFloats(result.outputs[i].at(0)) == Counting(first + 5, 2));
      CHECK(AsFloats(result.outputs[i].at(1)) == Counting(first, 4));
    }
  }
  const StandInCounts counts = Cuda().count(0);
  EQUAL(counts.bytes_to_device, kRuns * 3 * 6 * sizeof(float));
  EQUAL(counts.captures, uint64_t{1});
  EQUAL(counts.graph_launches, uint64_t{kRuns - 2});
  EQUAL(counts.strays, uint64_t{0});
}
END;

TEST(
    "what does not fit while graphs are alive runs once they are gone: a batch in parts, one row "
    "whole") {
  constexpr int64_t kLong = 1 << 16;
  constexpr size_t kBytes = kLong * sizeof(float);
  const Served served(Copying({0, 0}, {0, 0}));
  Cuda().reset();
  const auto answer = [&](int count) {
    std::vector<std::shared_ptr<BatchRow>> rows;
    for (int i = 0; i < count; ++i) rows.push_back(served.Row(kLong, static_cast<float>(i)));
    served.Answer(rows);
    for (int i = 0; i < count; ++i)
      CHECK(Echoes(*rows[static_cast<size_t>(i)], static_cast<float>(i), kLong));
  };
  for (int i = 0; i < 3; ++i) answer(1);
  EQUAL(Cuda().graphs(), size_t{1});
  // Room for two rows more, as they go in and as they come out.
  Cuda().set_memory(0, Cuda().used(0) + 4 * kBytes);
  answer(8);
  for (int i = 0; i < 3; ++i) answer(2);
  for (int i = 0; i < 6; ++i) answer(1);
  const StandInCounts counts = Cuda().count(0);
  CHECK(counts.captures >= 2 && Cuda().graphs() >= 1);
  EQUAL(counts.stale + counts.spoilt + counts.strays, uint64_t{0});
  Cuda().reset();
}
END;

/// A model whose graphs take a while, `times_beside` that beside another, warm in two lanes if that
/// pays.
std::unique_ptr<Served> InLanes(const std::string& model, int times_beside = 1) {
  auto served = std::make_unique<Served>(model, 0, 8, 0, 2);
  Cuda().reset();
  Cuda().slow(0, 3, times_beside);
  do {
    // On a busy machine one of two lanes may wait for the processor.
    served->batcher->Warm(served->Row(4, 0), 8, {});
  } while (times_beside == 1 && served->batcher->Lanes(1) == 1);
  Cuda().slow(0, 0, 1);
  return served;
}

/// Rows of the four numbers from 10 * i on.
std::vector<std::shared_ptr<BatchRow>> Numbered(const Served& served, int count,
                                                uint64_t model = 1) {
  std::vector<std::shared_ptr<BatchRow>> rows;
  for (int i = 0; i < count; ++i)
    rows.push_back(served.RowOf({4}, static_cast<float>(10 * i), model));
  return rows;
}

void CheckNumbered(const std::vector<std::shared_ptr<BatchRow>>& rows) {
  for (size_t i = 0; i < rows.size(); ++i) CHECK(Echoes(*rows[i], static_cast<float>(10 * i), 4));
}

TEST("a second lane stays where batches run beside each other, and goes where they do not") {
  const std::string model = Copying({0, 4}, {0, 4});
  CHECK(!InLanes(model, 10)->batcher->ForgoLanes(1));
  const auto in_lanes = InLanes(model);
  const Served& served = *in_lanes;
  // Four sizes in each lane.
  EQUAL(Cuda().graphs(), size_t{8});
  Cuda().reset();
  Cuda().slow(0, 1, 1);
  const size_t used = Cuda().used(0);
  for (int i = 0; i < 50; ++i) {
    const auto rows = Numbered(served, 16);
    served.Answer(rows);
    CheckNumbered(rows);
  }
  const StandInCounts counts = Cuda().count(0);
  EQUAL(counts.most_at_once, uint64_t{2});
  EQUAL(counts.captures + counts.spoilt + counts.strays + counts.stale, uint64_t{0});
  EQUAL(Cuda().used(0), used);
  // Room is wanted for another model.
  CHECK(served.batcher->ForgoLanes(1));
  EQUAL(Cuda().graphs(), size_t{4});
  CHECK(Cuda().used(0) < used);
  const auto rows = Numbered(served, 16);
  served.Answer(rows);
  CheckNumbered(rows);
  Cuda().reset();
}
END;

TEST("no capture of one lane has work of the other beside it, and every row its own numbers") {
  const auto in_lanes = InLanes(Copying({0, 4}, {0, 4}));
  const Served& served = *in_lanes;
  Cuda().reset();
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        const auto rows = Numbered(served, 1 + i % 5);
        served.Answer(rows);
        CheckNumbered(rows);
        // As where the model has left: both lanes prepare their sizes anew.
        if (i % 10 == 0) served.device->Clear(1);
      }
    });
  }
  threads.clear();
  const StandInCounts counts = Cuda().count(0);
  CHECK(counts.captures >= 8);
  EQUAL(counts.spoilt + counts.strays + counts.stale, uint64_t{0});
}
END;

TEST(
    "a second lane that has no room is not opened, and one that loses its room goes: all rows are "
    "answered") {
  constexpr size_t kWeights = size_t{512} * 512 * sizeof(float);
  const std::string heavy =
      OneNode("MatMul", {"x", "w"}, {0, 512}, {0, 512}, "", 0, Zeros("w", {512, 512}));
  for (const bool at_load : {true, false}) {
    const Served served(heavy, 0, 2, 0, 2);
    Cuda().reset();
    Cuda().slow(0, 3, 1);
    // Two sessions for two sizes, the first of the second lane, and not the second: half of the
    // room is for runs.
    if (at_load) Cuda().set_memory(0, Cuda().used(0) + 9 * kWeights / 2);
    do {
      served.batcher->Warm(served.Row(512, 0), 2, {});
    } while (!at_load && served.batcher->Lanes(1) == 1);
    EQUAL(Cuda().graphs(), size_t{at_load ? 2U : 4U});
    if (!at_load) {
      // The model has left, and when it comes back the memory is taken.
      served.device->Clear(1);
      Cuda().set_memory(0, Cuda().used(0) + kWeights);
      const auto row = served.Row(512, 0);
      EQUAL(CodeOf([&] { served.device->Run(1, 1, std::span(&row, 1), {}); }),
            std::string("overloaded"));
    }
    for (int i = 0; i < 20; ++i) {
      std::vector<std::shared_ptr<BatchRow>> rows;
      for (int row = 0; row < 4; ++row) rows.push_back(served.Row(512, 0));
      served.Answer(rows);
      for (const auto& row : rows) CHECK(!row->failure);
    }
    if (at_load) CHECK(!served.batcher->ForgoLanes(1));
    EQUAL(Cuda().count(0).spoilt + Cuda().count(0).strays + Cuda().count(0).stale, uint64_t{0});
  }
  Cuda().reset();
}
END;

TEST(
    "a model that is loaded anew beside work in flight: each row has its own numbers, and the old "
    "one's "
    "memory goes") {
  const auto in_lanes = InLanes(Copying({0, 4}, {0, 4}));
  Served& served = *in_lanes;
  const size_t graphs = Cuda().graphs();
  EQUAL(graphs, size_t{8});
  Cuda().reset();
  Cuda().hold(0, true);
  const auto before = Numbered(served, 16);
  const auto answer_before = served.Submit(before);
  Cuda().await_held(0);
  RunStats stats;
  const auto next = Load(Copying({0, 4}, {0, 4}));
  served.device->AddModel(2, {next.get(), kOutputs, &stats, 8});
  served.batcher->AddModel(2, 8);
  const auto after = Numbered(served, 8, 2);
  const auto answer_after = served.Submit(after);
  Cuda().hold(0, false);
  answer_before();
  answer_after();
  CheckNumbered(before);
  CheckNumbered(after);
  const size_t used = Cuda().used(0);
  served.batcher->RemoveModel(1);
  served.device->RemoveModel(1);
  served.session.reset();
  CHECK(Cuda().used(0) < used);
  EQUAL(Cuda().count(0).strays + Cuda().count(0).stale, uint64_t{0});
  // Ends before the session that it uses.
  served.batcher.reset();
  EQUAL(Cuda().graphs(), Cuda().count(0).captures);
}
END;

/// A graph of so many floats of weights, as a file with its hash.
struct HeavyFile {
  explicit HeavyFile(int64_t side)
      : content(
            OneNode("MatMul", {"x", "w"}, {0, side}, {0, side}, "", 0, Zeros("w", {side, side}))),
        path(Put(content)) {
    StartRuntime();
  }

  void Write(const std::string& bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
  SessionSettings Settings(int device = 0) const {
    SessionSettings settings;
    settings.provider = Provider::kCuda;
    settings.device = device;
    std::string hash;
    for (const std::byte byte : Sha256(std::as_bytes(std::span(content)))) {
      hash += "0123456789abcdef"[std::to_integer<int>(byte) >> 4];
      hash += "0123456789abcdef"[std::to_integer<int>(byte) & 15];
    }
    settings.hashes = {{path.string(), hash}};
    return settings;
  }

  const std::string content;
  const std::filesystem::path path;
};

TEST(
    "a session that leaves gives back what it took of the device and of pinned memory, and returns "
    "as it "
    "was") {
  constexpr int64_t kSide1024 = 1024;
  constexpr size_t kWeights = kSide1024 * kSide1024 * sizeof(float);
  const HeavyFile file(kSide1024);
  Session session(file.path, file.Settings(), "model_unavailable");
  SessionDevice device;
  RunStats stats;
  device.AddModel(1, {&session, kOutputs, &stats, 8});
  const auto run = [&] {
    std::vector<std::shared_ptr<BatchRow>> rows;
    for (int i = 0; i < 8; ++i) {
      auto row = std::make_shared<BatchRow>();
      row->key = {1, {{kSide1024}}};
      row->inputs = {device.NewRow(row->key, "x", Dtype::kFloat32)};
      Fill({row->inputs[0].data, row->inputs[0].Bytes()}, 0);
      rows.push_back(row);
    }
    return device.Run(0, 8, rows, {}).outputs;
  };
  run();
  const size_t used = Cuda().used(0);
  const size_t pinned = Cuda().pinned();
  const size_t taken = UseOfGpu(0, 0).taken;
  // Somebody still reads a result when the model leaves: that holds its own memory, and no weights.
  std::vector<std::vector<Tensor>> read = run();
  device.Clear(1);
  session.Unload();
  ShrinkGpu(0);
  EQUAL(device.bytes(), size_t{0});
  EQUAL(Cuda().graphs(), size_t{0});
  CHECK(Cuda().used(0) + kWeights <= used);
  CHECK(UseOfGpu(0, 0).taken + kWeights <= taken);
  CHECK(session.Memory().empty());
  EQUAL(session.graph().inputs.size(), size_t{1});
  EQUAL(CodeOf([&] { session.MakeRows(1); }), std::string("model_unavailable"));
  EQUAL(AsFloats(read.at(7).at(0)).size(), size_t{kSide1024});
  read.clear();
  CHECK(Cuda().pinned() < pinned);
  for (int turn = 0; turn < 3; ++turn) {
    session.Reload();
    run();
    EQUAL(Cuda().used(0), used);
    EQUAL(Cuda().pinned(), pinned);
    device.Clear(1);
    session.Unload();
    ShrinkGpu(0);
  }
}
END;

TEST(
    "a session does not return from another file, nor where its memory is taken, and it does once "
    "that is "
    "mended") {
  const HeavyFile file(512);
  Session session(file.path, file.Settings(), "model_unavailable");
  session.Unload();
  file.Write(OneNode("Add", {"x", "x"}, {0, 512}, {0, 512}));
  std::string said;
  try {
    session.Reload();
  } catch (const EngineError& e) {
    said = e.code() + " " + e.what();
  }
  CHECK(said.find("model_unavailable The model cannot be read: expected " +
                  file.path.filename().string()) == 0);
  file.Write(file.content);
  Cuda().set_memory(0, Cuda().used(0) + 1024);
  bool refused = false;
  try {
    session.Reload();
  } catch (const NoRoomToLoad&) {
    refused = true;
  }
  CHECK(refused);
  Cuda().reset();
  session.Reload();
  const auto bucket = session.MakeBucket(2, {{512}}, kOutputs);
  bucket->Row(0, 0);
  bucket->Run(2, {});
  EQUAL(bucket->TakeRow(1).at(0).Bytes(), 512 * sizeof(float));
}
END;

TEST("where nothing is captured each bucket has a session of its own, as far as the memory goes") {
  constexpr size_t kWeights = size_t{1024} * 1024 * sizeof(float);
  const HeavyFile file(1024);
  Session session(file.path, file.Settings(), "model_unavailable");
  session.ForgoGraphs();
  SessionDevice device;
  RunStats stats;
  device.AddModel(1, {&session, kOutputs, &stats, 8});
  const auto run = [&](int64_t capacity) {
    auto row = std::make_shared<BatchRow>();
    row->comes_again = true;
    row->key = {1, {{1024}}};
    row->inputs = {device.NewRow(row->key, "x", Dtype::kFloat32)};
    Fill({row->inputs[0].data, row->inputs[0].Bytes()}, 0);
    EQUAL(device.Run(0, capacity, std::span(&row, 1), {}).outputs.at(0).size(), size_t{1});
  };
  Cuda().reset();
  const size_t alone = Cuda().used(0);
  run(1);
  run(2);
  run(4);
  const size_t three = Cuda().used(0);
  CHECK(three >= alone + 3 * kWeights && three < alone + 4 * kWeights);
  // No room for one more: a bucket that comes often takes the session of the one that was not used
  // for longest.
  Cuda().set_memory(0, three + kWeights);
  for (int i = 0; i < 8; ++i) run(8);
  run(4);
  CHECK(Cuda().used(0) < three + kWeights);
  EQUAL(Cuda().count(0).captures + Cuda().count(0).graph_launches, uint64_t{0});
  device.Clear(1);
  ShrinkGpu(0);
  CHECK(Cuda().used(0) <= alone);
  Cuda().reset();
}
END;

TEST("a load that does not fit is refused in words, and the session before it goes on") {
  Served served(Copying({0, 4}, {0, 4}));
  served.Answer({served.Row(4, 0)});
  Cuda().set_memory(0, Cuda().used(0) + (size_t{1} << 20));
  const std::string heavy =
      OneNode("MatMul", {"x", "w"}, {0, 1024}, {0, 1024}, "", 0, Zeros("w", {1024, 1024}));
  std::string said;
  try {
    Load(heavy);
  } catch (const EngineError& e) {
    said = e.code() + " " + e.what();
  }
  CHECK(said.find("model_unavailable The memory did not suffice to load the model") == 0);
  auto row = served.Row(4, 5);
  served.Answer({row});
  CHECK(!row->failure);
  Cuda().reset();
}
END;

TEST("weights in a file of their own reach the device, and the file is not needed any more") {
  constexpr size_t kBytes = 1024 * sizeof(float);
  const std::filesystem::path path = Put("").replace_extension(".data");
  const std::string file = path.filename();
  std::ofstream(path, std::ios::binary) << std::string(kBytes, '\0');
  const std::string weights = Number(1, 1024) + Number(2, 1) + Bytes(8, "w") +
                              Bytes(13, Bytes(1, "location") + Bytes(2, file)) + Number(14, 1);
  Cuda().reset();
  const auto session =
      Load(OneNode("Add", {"x", "w"}, {0, 1024}, {0, 1024}, "", 0, Bytes(5, weights)));
  std::filesystem::remove(path);
  EQUAL(Cuda().count(0).bytes_to_device, uint64_t{kBytes});
  const auto bucket = session->MakeBucket(2, {{1024}}, kOutputs);
  for (int64_t row = 0; row < 2; ++row) Fill(bucket->Row(0, row), 0);
  bucket->Run(2, {});
  EQUAL(bucket->TakeRow(1).at(0).Bytes(), kBytes);
}
END;

/// x [n,4] -> Shape -> Gather -> Concat -> Reshape(x): as exporters write it; or with a node
/// between that CUDA has no kernel for.
std::string ShapeChain(const std::string& refused) {
  const auto number = [](const std::string& name, int64_t value) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &value, sizeof(value));
    return Bytes(5, Number(1, 1) + Number(2, 7) + Bytes(8, name) + Bytes(9, bytes));
  };
  const std::string x = refused.empty() ? "x" : "z";
  std::string nodes =
      Bytes(1, Bytes(1, "x") + Bytes(2, "s") + Bytes(3, "shape") + Bytes(4, "Shape")) +
      Bytes(1, Bytes(1, "s") + Bytes(1, "zero") + Bytes(2, "g") + Bytes(3, "gather") +
                   Bytes(4, "Gather")) +
      Bytes(1, Bytes(1, "g") + Bytes(1, "rest") + Bytes(2, "c") + Bytes(3, "concat") +
                   Bytes(4, "Concat") + Bytes(5, Bytes(1, "axis") + Number(3, 0) + Number(20, 2)));
  if (!refused.empty())
    nodes += Bytes(1, Bytes(1, "x") + Bytes(2, "z") + Bytes(3, "strange") + Bytes(4, refused));
  nodes += Bytes(
      1, Bytes(1, x) + Bytes(1, "c") + Bytes(2, "y") + Bytes(3, "reshape") + Bytes(4, "Reshape"));
  const std::string zero =
      Bytes(5, Number(1, 1) + Number(2, 7) + Bytes(8, "zero") + Bytes(9, std::string(8, '\0')));
  return Number(1, 8) +
         Bytes(7, nodes + Bytes(2, "test") + zero + number("rest", -1) +
                      Bytes(11, Value("x", {0, 2, 2})) + Bytes(12, Value("y", {0, -1}))) +
         Bytes(8, Bytes(1, "") + Number(2, 17));
}

TEST("nodes on the CPU may touch shapes; others are refused by name") {
  const auto session = Load(ShapeChain(""));
  const auto bucket = session->MakeBucket(2, {{2, 2}}, kOutputs);
  for (int run = 0; run < 3; ++run) {
    for (int64_t row = 0; row < 2; ++row)
      Fill(bucket->Row(0, row), static_cast<float>(4 * row + run));
    bucket->Run(2, {});
    CHECK(AsFloats(bucket->TakeRow(1).at(0)) == Counting(static_cast<float>(4 + run), 4));
  }
  std::string said;
  try {
    Load(ShapeChain("Asinh"));
  } catch (const EngineError& e) {
    said = e.code() + " " + e.what();
  }
  CHECK(said.find("model_unavailable CUDA has no kernel for these nodes") == 0);
  CHECK(said.find("Asinh \"strange\"") != std::string::npos);
  CHECK(said.find("gather") == std::string::npos);
}
END;

TEST("the plain loop that the engine is measured against runs here, with graphs and without") {
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::filesystem::path graph = Put(Convolution());
  for (const std::string options : {"", " 0 enable_cuda_graph=1"}) {
    const std::string command = "printf 'run 2 1 0 4 8 8 0.05\nrun 1 1 0 2 16 16 0.05\n' | " +
                                folder.string() + "/raw_ort " + graph.string() + " cuda" + options;
    std::FILE* pipe = popen(command.c_str(), "r");
    std::string said;
    std::array<char, 512> buffer{};
    while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) said += buffer.data();
    EQUAL(pclose(pipe), 0);
    EQUAL(std::ranges::count(said, '\n'), 2);
    CHECK(said.find("{\"rate\":") == 0);
  }
}
END;

// ---- What ends a process, in processes of its own.

struct Ended {
  int status = 0;
  std::string said;
};

/// Runs this program again for one of Child's parts, with the libraries of that folder.
Ended RunChild(const std::string& part, const std::string& libraries) {
  std::array<int, 2> ends{};
  CHECK(pipe(ends.data()) == 0);
  const std::string path = "LD_LIBRARY_PATH=" + libraries;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    std::array<char*, 4> arguments = {const_cast<char*>("test_cuda"), const_cast<char*>("--child"),
                                      const_cast<char*>(part.c_str()), nullptr};
    std::array<char*, 2> environment = {const_cast<char*>(path.c_str()), nullptr};
    execve("/proc/self/exe", arguments.data(), environment.data());
    _exit(127);
  }
  close(ends[1]);
  Ended ended;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    ended.said.append(buffer.data(), static_cast<size_t>(got));
  }
  close(ends[0]);
  waitpid(child, &ended.status, 0);
  std::filesystem::remove_all(FolderOf(child));
  return ended;
}

std::string Libraries() {
  const char* path = std::getenv("LD_LIBRARY_PATH");
  return path == nullptr ? "" : path;
}

constexpr int64_t kSide = 1 << 18;
constexpr size_t kRow = static_cast<size_t>(kSide) * sizeof(float);

/// Eight rows at a time where two do not fit; then one row that is too large, and one that is not.
/// `limit` is the arena's, `memory` the device's.
int RunOutOfMemory(size_t limit, size_t memory) {
  Served served(Copying({0, 0}, {0, 0}), 0, 8, limit);
  Cuda().set_memory(0, memory);
  std::vector<std::shared_ptr<BatchRow>> rows;
  for (int round = 0; round < 8; ++round) {
    rows.clear();
    for (int i = 0; i < 8; ++i) rows.push_back(served.Row(kSide, static_cast<float>(i)));
    served.Answer(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      CHECK(!rows[i]->failure);
      CHECK(!rows[i]->outputs.empty() &&
            AsFloats(rows[i]->outputs[0]).at(0) == static_cast<float>(i));
    }
  }
  const std::vector<std::shared_ptr<BatchRow>> two = {served.Row(kSide, 0), served.Row(kSide, 1)};
  EQUAL(CodeOf([&] { served.device->Run(0, 2, two, {}); }), std::string("overloaded"));
  auto large = served.Row(8 * kSide, 1);
  served.Answer({large});
  CHECK(large->failure && large->failure->code == "memory_exceeded");
  auto again = served.Row(kSide, 1);
  served.Answer({again});
  CHECK(!again->failure);
  const GpuUse use = UseOfGpu(0, limit);
  CHECK(use.taken > 0 && use.taken <= 3 * kRow);
  EQUAL(use.total, memory);
  EQUAL(use.free, memory - Cuda().used(0));
  EQUAL(use.Room(), limit == 0 ? use.free : limit - use.taken);
  return Failures();
}

/// 0 if all went as the part says.
int Child(const std::string& part) {
  StartRuntime();
  const std::string add = OneNode("Add", {"x", "x"}, {0, 4}, {0, 4});
  if (part == "no cudnn") {
    std::cout << CudaProblem(0) << "\n";
    return 0;
  }
  // Room for one row, as it goes in and as it comes out.
  if (part == "memory refused") return RunOutOfMemory(0, 3 * kRow);
  if (part == "limit of the arena") return RunOutOfMemory(3 * kRow, size_t{1} << 30);
  if (part == "broken in a run") {
    Served served(add);
    served.Answer({served.Row(4, 0)});
    Cuda().break_device(0, 0, kIllegalAddress);
    served.Answer({served.Row(4, 0)});
    return 1;
  }
  if (part == "broken in a capture") {
    Served served(add);
    const auto row = served.Row(4, 0);
    row->comes_again = true;
    served.device->Run(0, 1, std::span(&row, 1), {});
    // One kernel of the plain run and two of the runs before the capture.
    Cuda().break_device(0, 3, kIllegalAddress);
    served.device->Run(0, 1, std::span(&row, 1), {});
    return 1;
  }
  if (part == "broken at load") {
    Load(add);
    Cuda().break_device(0, 0, kIllegalAddress);
    Load(add);
    return 1;
  }
  if (part == "one of two broken") {
    {
      const auto in_lanes = InLanes(Copying({0, 4}, {0, 4}));
      const Served& first = *in_lanes;
      Served second(Copying({0, 4}, {0, 4}), 1);
      second.Answer({second.Row(4, 0)});
      Cuda().break_device(0, 0, kIllegalAddress);
      const std::vector<std::shared_ptr<BatchRow>> lost = Numbered(first, 16);
      first.Answer(lost);
      for (const auto& row : lost) CHECK(row->failure && row->failure->code == "model_unavailable");
      auto kept = second.Row(4, 3);
      second.Answer({kept});
      CHECK(!kept->failure && AsFloats(kept->outputs.at(0)) == Counting(3, 4));
      auto later = first.Row(4, 0);
      first.Answer({later});
      CHECK(later->failure && later->failure->code == "model_unavailable");
      EQUAL(CodeOf([&] { Load(add, 0); }), std::string("model_unavailable"));
      CHECK(UseOfGpu(0, 0).lost && !UseOfGpu(1, 0).lost);
    }
    return Failures();
  }
  return 2;
}

TEST(
    "a batch that does not fit is split, whether CUDA refuses the memory or the arena's limit "
    "does") {
  for (const char* part : {"memory refused", "limit of the arena"}) {
    const Ended ended = RunChild(part, Libraries());
    EQUAL(ended.status, 0);
    if (ended.status != 0) std::cerr << ended.said;
  }
}
END;

TEST("a cuDNN that is missing is named") {
  const std::filesystem::path folder = Put("").replace_extension("");
  std::filesystem::create_directory(folder);
  for (const auto& library : std::filesystem::directory_iterator(Libraries())) {
    if (library.path().filename() == "libcudnn.so.9") continue;
    std::filesystem::create_symlink(library.path(), folder / library.path().filename());
  }
  const Ended ended = RunChild("no cudnn", folder);
  std::filesystem::remove_all(folder);
  EQUAL(ended.status, 0);
  EQUAL(ended.said,
        std::string("libcudnn.so.9: cannot open shared object file: No such file or directory\n"));
}
END;

TEST("a context that breaks ends the process with status 70, in a run, in a capture and at load") {
  for (const char* part : {"broken in a run", "broken in a capture", "broken at load"}) {
    const Ended ended = RunChild(part, Libraries());
    CHECK(WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == 70);
    CHECK(ended.said.find("radserve: GPU 0 is lost for this process, which ends") !=
          std::string::npos);
  }
}
END;

TEST("one GPU of two that breaks takes its own work and nothing else") {
  const Ended ended = RunChild("one of two broken", Libraries());
  EQUAL(ended.status, 0);
  CHECK(ended.said.find("GPU 0 is lost for this process, which goes on with the others") !=
        std::string::npos);
  if (ended.status != 0) std::cerr << ended.said;
}
END;

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> given(arguments + 1, arguments + count);
  if (given.size() == 2 && given[0] == "--child") return Child(given[1]);
  return radserve::test::RunAll(given.empty() ? "" : given[0]);
}
