// The CUDA path over the real provider of ONNX Runtime, with the stand-in for the CUDA libraries (stand_in.h) or, where
// there is a GPU, with the libraries themselves. With the stand-in kernels do nothing, so that numbers are looked at only
// where the provider copies. Run by scripts/test-cuda.mjs.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <latch>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "check.h"
#include "onnx.h"
#include "runtime/gpu.h"
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
  decltype(&StandInReset) reset;
  decltype(&StandInSetMemory) set_memory;
  decltype(&StandInBreak) break_device;
  decltype(&StandInHold) hold;
  decltype(&StandInAwaitHeld) await_held;
};

StandIn& Cuda() {
  static StandIn stand_in = [] {
    void* library = dlopen("libcudart.so.13", RTLD_NOW | RTLD_GLOBAL);
    const auto look = [library](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          library == nullptr ? nullptr : dlsym(library, name));
    };
    StandIn found{};
    look(found.count, "StandInCount");
    look(found.used, "StandInUsed");
    look(found.pinned, "StandInPinned");
    look(found.reset, "StandInReset");
    look(found.set_memory, "StandInSetMemory");
    look(found.break_device, "StandInBreak");
    look(found.hold, "StandInHold");
    look(found.await_held, "StandInAwaitHeld");
    return found;
  }();
  return stand_in;
}

/// x [n,...] -> Flatten -> y: the provider copies, so that the numbers are right with the stand-in too.
std::string Copying(const std::vector<int64_t>& x, const std::vector<int64_t>& y) {
  return OneNode("Flatten", {"x"}, x, y, "axis", 1);
}

std::unique_ptr<Session> Load(const std::string& model, int device = 0, size_t memory = 0) {
  StartRuntime();
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("radserve-cuda-test-" + std::to_string(getpid()) + ".onnx");
  std::ofstream(path, std::ios::binary) << model;
  SessionSettings settings;
  settings.provider = Provider::kCuda;
  settings.device = device;
  settings.device_memory = memory;
  std::unique_ptr<Session> session;
  try {
    session = std::make_unique<Session>(path, settings, "model_unavailable");
  } catch (...) {
    std::filesystem::remove(path);
    throw;
  }
  std::filesystem::remove(path);
  return session;
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
    const auto bucket = session->MakeBucket(capacity, shapes, kOutputs);
    Cuda().reset();
    constexpr int kRuns = 100;
    for (int run = 0; run < kRuns; ++run) {
      const int64_t rows = 1 + run % capacity;
      for (int64_t row = 0; row < rows; ++row) Fill(bucket->Row(0, row), static_cast<float>(100 * run + 8 * row));
      bucket->Run(rows, {});
      for (int64_t row = 0; row < rows; ++row) {
        CHECK(AsFloats(bucket->TakeRow(row).at(0)) == Counting(static_cast<float>(100 * run + 8 * row), 8));
      }
    }
    const StandInCounts counts = Cuda().count(0);
    const auto bytes = static_cast<uint64_t>(kRuns * capacity * 8) * sizeof(float);
    EQUAL(counts.bytes_to_device, bytes);
    EQUAL(counts.bytes_from_device, bytes);
    EQUAL(counts.copies_to_device, uint64_t{kRuns});
    EQUAL(counts.copies_from_device, uint64_t{kRuns});
    EQUAL(counts.strays, uint64_t{0});
  }
}
END;

TEST("two models by turns take no more memory than at first") {
  const auto first = Load(OneNode("Add", {"x", "x"}, {0, 1024}, {0, 1024}));
  const auto second = Load(OneNode("Mul", {"x", "x"}, {0, 2048}, {0, 2048}));
  const auto a = first->MakeBucket(64, {{1024}}, kOutputs);
  const auto b = second->MakeBucket(64, {{2048}}, kOutputs);
  size_t settled = 0;
  for (int turn = 0; turn < 200; ++turn) {
    for (Bucket* bucket : {a.get(), b.get()}) {
      bucket->Row(0, 0);
      bucket->Run(64, {});
      bucket->TakeRow(0);
    }
    if (turn == 0) std::cout << Cuda().used(0) << "\n";
    if (turn == 1) settled = Cuda().used(0);
  }
  EQUAL(Cuda().used(0), settled);
  std::cout << first->Memory().at(0).bytes << " " << settled << " " << second->Memory().at(0).bytes << "\n";
}
END;

}  // namespace
