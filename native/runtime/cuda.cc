#include "runtime/cuda.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "runtime/ort.h"

namespace radserve {
namespace {

/// The provider is built for these (docs/operations.md).
constexpr const char* kCudaRuntime = "libcudart.so.13";
constexpr const char* kCudnn = "libcudnn.so.9";

/// EX_SOFTWARE of sysexits.h, an internal software error. The supervisor restarts after any status
/// but 0.
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

struct Gate {
  /// Held while a thread asks for the other, which would let work pass a capture that waits.
  std::mutex turn;
  std::shared_timed_mutex work;
};

constexpr auto kPatience = std::chrono::milliseconds(500);

/// Never destroyed: threads may work with CUDA while the process ends.
Gate& TheGate() {
  static auto& gate = *std::make_unique<Gate>().release();
  return gate;
}

/// How many objects of the two kinds the thread has.
thread_local int depth = 0;

/// cudaMemcpyKind, and the flag of a stream that does not wait for the default stream.
constexpr int kHostToDevice = 1;
constexpr int kDeviceToHost = 2;
constexpr unsigned kNonBlocking = 1;

/// Functions of the CUDA runtime, whose enumerations are ints and whose handles are pointers.
struct Runtime {
  int (*get_device)(int*) = nullptr;
  int (*set_device)(int) = nullptr;
  int (*memory)(size_t*, size_t*) = nullptr;
  int (*create)(void**, unsigned) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*copy)(void*, const void*, size_t, int, void*) = nullptr;
  int (*clear)(void*, int, size_t, void*) = nullptr;
  int (*wait)(void*) = nullptr;
  const char* (*text)(int) = nullptr;

  Runtime() {
    // Never closed: the provider has it open, too.
    void* library = dlopen(kCudaRuntime, RTLD_NOW);
    const auto look = [library](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          library == nullptr ? nullptr : dlsym(library, name));
      if (function == nullptr)
        throw EngineError("model_unavailable", std::string(kCudaRuntime) + " has no " + name + ".");
    };
    look(get_device, "cudaGetDevice");
    look(set_device, "cudaSetDevice");
    look(memory, "cudaMemGetInfo");
    look(create, "cudaStreamCreateWithFlags");
    look(destroy, "cudaStreamDestroy");
    look(copy, "cudaMemcpyAsync");
    look(clear, "cudaMemsetAsync");
    look(wait, "cudaStreamSynchronize");
    look(text, "cudaGetErrorString");
  }
};

const Runtime& Cuda() {
  static const Runtime runtime;
  return runtime;
}

/// In the words of the provider, from which ClassifyFailure tells what it means.
void Check(int error) {
  if (error == 0) return;
  throw Ort::Exception("CUDA failure " + std::to_string(error) + ": " + Cuda().text(error),
                       ORT_FAIL);
}

}  // namespace

std::unordered_map<std::string, std::string> CudaOptions(const SessionSettings& settings,
                                                         bool graphs, bool channels_last) {
  std::unordered_map<std::string, std::string> options = {
      {"device_id", std::to_string(settings.device)},
      // Plans by rule: trying every algorithm takes up to a second for each new shape.
      {"cudnn_conv_algo_search", "HEURISTIC"},
      {"do_copy_in_default_stream", "1"},
      {"arena_extend_strategy", "kSameAsRequested"},
      // On by default in the runtime. Without it a float16 graph gets no tensor cores.
      {"use_tf32", settings.precision == Precision::kFloat32 ? "0" : "1"},
      {"prefer_nhwc", channels_last ? "1" : "0"},
      {"enable_cuda_graph", graphs ? "1" : "0"}};
  if (graphs && settings.device_memory > 0)
    options["gpu_mem_limit"] = std::to_string(settings.device_memory);
  return options;
}

std::optional<GpuMemory> MemoryOfGpu(int device) {
  try {
    const Runtime& cuda = Cuda();
    const CudaWork work;
    GpuMemory memory;
    int before = 0;
    if (cuda.get_device(&before) != 0) return std::nullopt;
    const bool known =
        cuda.set_device(device) == 0 && cuda.memory(&memory.free, &memory.total) == 0;
    cuda.set_device(before);
    return known ? std::optional(memory) : std::nullopt;
  } catch (const EngineError&) {
    return std::nullopt;
  }
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
  const bool others =
      std::ranges::any_of(TheGpus().used, [](const auto& gpu) { return !gpu.second; });
  std::cerr << "radserve: GPU " << device << " is lost for this process, "
            << (others ? "which goes on with the others: "
                       : "which ends so that a fresh one can go on: ")
            << why << std::endl;
  // No destructors: they would call into the broken device.
  if (!others) _exit(kDeviceLostStatus);
}

bool GpuLost(int device) {
  const std::lock_guard lock(TheGpus().mutex);
  const auto found = TheGpus().used.find(device);
  return found != TheGpus().used.end() && found->second;
}

CudaWork::CudaWork() {
  if (depth++ > 0) return;
  const std::lock_guard turn(TheGate().turn);
  TheGate().work.lock_shared();
}

CudaWork::~CudaWork() {
  if (--depth == 0) TheGate().work.unlock_shared();
}

CudaCapture::CudaCapture() {
  if (depth > 0) throw EngineError("internal", "A capture was begun within other work of CUDA.");
  const std::lock_guard turn(TheGate().turn);
  lock_ = std::unique_lock(TheGate().work, kPatience);
  if (lock_) depth = 1;
}

CudaCapture::~CudaCapture() {
  if (lock_) depth = 0;
}

CudaStream::CudaStream(int device) : device_(device) {
  Check(Cuda().set_device(device_));
  Check(Cuda().create(&handle_, kNonBlocking));
}

CudaStream::~CudaStream() {
  // A broken context answers every call with its error.
  if (!GpuLost(device_)) Cuda().destroy(handle_);
}

void CudaStream::CopyIn(void* device, const void* host, size_t bytes) const {
  Check(Cuda().set_device(device_));
  Check(Cuda().copy(device, host, bytes, kHostToDevice, handle_));
}

void CudaStream::CopyOut(void* host, const void* device, size_t bytes) const {
  Check(Cuda().set_device(device_));
  Check(Cuda().copy(host, device, bytes, kDeviceToHost, handle_));
}

void CudaStream::Clear(void* device, size_t bytes) const {
  Check(Cuda().set_device(device_));
  Check(Cuda().clear(device, 0, bytes, handle_));
}

void CudaStream::Wait() const { Check(Cuda().wait(handle_)); }

}  // namespace radserve
