#include "runtime/cuda_stream.h"

#include <dlfcn.h>

#include <chrono>
#include <memory>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "runtime/gpu.h"
#include "runtime/ort.h"

namespace radserve {
namespace {

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
  int (*set_device)(int) = nullptr;
  int (*create)(void**, unsigned) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*copy)(void*, const void*, size_t, int, void*) = nullptr;
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
    look(set_device, "cudaSetDevice");
    look(create, "cudaStreamCreateWithFlags");
    look(destroy, "cudaStreamDestroy");
    look(copy, "cudaMemcpyAsync");
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
  throw Ort::Exception("CUDA failure " + std::to_string(error) + ": " + Cuda().text(error), ORT_FAIL);
}

}  // namespace

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

void CudaStream::Wait() const { Check(Cuda().wait(handle_)); }

}  // namespace radserve
