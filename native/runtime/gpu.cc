#include "runtime/gpu.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/cuda_stream.h"

namespace radserve {
namespace {

/// As kCudaRuntime.
constexpr const char* kCudnn = "libcudnn.so.9";

/// EX_SOFTWARE of sysexits.h, an internal software error. The supervisor restarts after any status but 0.
constexpr int kDeviceLostStatus = 70;

struct Gpus {
  std::mutex mutex;
  /// Whether it is lost.
  std::map<int, bool> used;
};

/// Never destroyed: threads may ask while the process ends.
Gpus& TheGpus() {
  static auto& gpus = *std::make_unique<Gpus>().release();
  return gpus;
}

template <typename Function>
Function* Look(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

std::optional<GpuMemory> MemoryOfGpu(int device) {
  void* runtime = dlopen(kCudaRuntime, RTLD_NOW | RTLD_NOLOAD);
  if (runtime == nullptr) return std::nullopt;
  const CudaWork work;
  auto* get_device = Look<int(int*)>(runtime, "cudaGetDevice");
  auto* set_device = Look<int(int)>(runtime, "cudaSetDevice");
  auto* get_info = Look<int(size_t*, size_t*)>(runtime, "cudaMemGetInfo");
  GpuMemory memory;
  bool known = false;
  int before = 0;
  if (get_device != nullptr && set_device != nullptr && get_info != nullptr && get_device(&before) == 0) {
    known = set_device(device) == 0 && get_info(&memory.free, &memory.total) == 0;
    set_device(before);
  }
  dlclose(runtime);
  return known ? std::optional(memory) : std::nullopt;
}

std::string CudnnProblem() {
  // Never closed: the provider is about to open it, too.
  if (dlopen(kCudnn, RTLD_NOW | RTLD_GLOBAL) != nullptr) return "";
  const char* why = dlerror();
  return why == nullptr ? std::string(kCudnn) + " cannot be opened" : why;
}

void UseGpu(int device) {
  const std::lock_guard lock(TheGpus().mutex);
  TheGpus().used.try_emplace(device, false);
}

void LoseGpu(int device, const std::string& why) {
  const std::lock_guard lock(TheGpus().mutex);
  if (std::exchange(TheGpus().used[device], true)) return;
  const bool others = std::ranges::any_of(TheGpus().used, [](const auto& gpu) { return !gpu.second; });
  std::cerr << "radserve: GPU " << device << " is lost for this process, "
            << (others ? "which goes on with the others: " : "which ends so that a fresh one can go on: ")
            << why << std::endl;
  // No destructors: they would call into the broken device.
  if (!others) _exit(kDeviceLostStatus);
}

bool GpuLost(int device) {
  const std::lock_guard lock(TheGpus().mutex);
  const auto found = TheGpus().used.find(device);
  return found != TheGpus().used.end() && found->second;
}

}  // namespace radserve
