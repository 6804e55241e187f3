#ifndef RADSERVE_CUDA_STREAM_H_
#define RADSERVE_CUDA_STREAM_H_

#include <cstddef>
#include <mutex>
#include <shared_mutex>

namespace radserve {

/// While a CUDA graph is captured, no other thread of the process may allocate, free or wait with CUDA, on whichever GPU:
/// its call would fail and spoil the capture (cudaStreamCaptureModeGlobal, which the provider uses). So whoever calls
/// CUDA, or lets ONNX Runtime call it, holds a CudaWork meanwhile, and whoever captures a CudaCapture. A thread that has
/// one may make more of CudaWork, which cost nothing.
class CudaWork {
 public:
  CudaWork();
  ~CudaWork();
  CudaWork(const CudaWork&) = delete;
  CudaWork& operator=(const CudaWork&) = delete;
};

/// Waits for the work of all threads, which then waits for it; for half a second at most, so that work which takes long (a
/// load, a GPU that hangs) does not hold up the others. Not made by a thread that has a CudaWork.
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

/// A stream of a GPU: what it is given happens in that order, beside what other streams do. Every method throws
/// Ort::Exception with CUDA's number, as a run does. Its user holds a CudaWork.
class CudaStream {
 public:
  /// The provider of ONNX Runtime is loaded.
  explicit CudaStream(int device);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  /// cudaStream_t.
  void* handle() const { return handle_; }
  /// Copies between memory of the device and pinned memory of the host, which stays until Wait has returned.
  void CopyIn(void* device, const void* host, size_t bytes) const;
  void CopyOut(void* host, const void* device, size_t bytes) const;
  /// Returns once all that the stream was given has happened.
  void Wait() const;

 private:
  const int device_;
  void* handle_ = nullptr;
};

}  // namespace radserve

#endif  // RADSERVE_CUDA_STREAM_H_
