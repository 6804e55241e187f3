#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "runtime/session.h"

/// Radserve's own calls of CUDA, and the state of the GPUs that this process uses, by CUDA's
/// numbers. Any thread.
namespace radserve {

/// Options of the CUDA execution provider, by its own names (onnxruntime.ai, CUDA execution
/// provider, configuration options). Without graphs the limit of its memory is the arena's, which
/// all such sessions of a GPU share.
std::unordered_map<std::string, std::string> CudaOptions(const SessionSettings& settings,
                                                         bool graphs, bool channels_last = false);

struct GpuMemory {
  /// Not taken by anybody, of this process or of others.
  size_t free = 0;
  size_t total = 0;
};
/// As the CUDA runtime says; nullopt if it is missing, or does not answer.
std::optional<GpuMemory> MemoryOfGpu(int device);

/// cuDNN is opened by the provider when it is first needed, which may be long after the start. What
/// is wrong with it, in the words of the dynamic linker; "" if it opens.
std::string CudnnProblem();

/// From now on the process works with that GPU.
void UseGpu(int device);
/// The context of a GPU is broken, as `why` says. If no other GPU works, the process ends with
/// status 70: every later call would fail, and a fresh process can go on. Otherwise what runs on
/// the others goes on, and that GPU is not used any more.
void LoseGpu(int device, const std::string& why);
bool GpuLost(int device);

/// While a CUDA graph is captured, no other thread of the process may allocate, free or wait with
/// CUDA, on whichever GPU: its call would fail and spoil the capture (cudaStreamCaptureModeGlobal,
/// which the provider uses). So whoever calls CUDA, or lets ONNX Runtime call it, holds a CudaWork
/// meanwhile, and whoever captures a CudaCapture. A thread that has one may make more of CudaWork,
/// which cost nothing.
class CudaWork {
 public:
  CudaWork();
  ~CudaWork();
  CudaWork(const CudaWork&) = delete;
  CudaWork& operator=(const CudaWork&) = delete;
};

/// Waits for the work of all threads, which then waits for it; for half a second at most, so that
/// work which takes long (a load, a GPU that hangs) does not hold up the others. Not made by a
/// thread that has a CudaWork.
class CudaCapture {
 public:
  CudaCapture();
  ~CudaCapture();
  CudaCapture(const CudaCapture&) = delete;
  CudaCapture& operator=(const CudaCapture&) = delete;

  /// Whether it may begin.
  explicit operator bool() const { return lock_.owns_lock(); }

 private:
  std::unique_lock<std::shared_timed_mutex> lock_;
};

/// A stream of a GPU: what it is given happens in that order, beside what other streams do. Every
/// method throws Ort::Exception with CUDA's number, as a run does. Its user holds a CudaWork.
class CudaStream {
 public:
  /// The provider of ONNX Runtime is loaded.
  explicit CudaStream(int device);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  /// cudaStream_t.
  void* handle() const { return handle_; }
  /// Copies between memory of the device and pinned memory of the host, which stays until Wait has
  /// returned. From other memory of the host CopyIn is right, but slower.
  void CopyIn(void* device, const void* host, size_t bytes) const;
  void CopyOut(void* host, const void* device, size_t bytes) const;
  /// Fills memory of the device with zeros.
  void Clear(void* device, size_t bytes) const;
  /// Returns once all that the stream was given has happened.
  void Wait() const;

 private:
  const int device_;
  void* handle_ = nullptr;
};

}  // namespace radserve
