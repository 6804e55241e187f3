#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/cuda.h"
#include "runtime/loaded_graph.h"
#include "runtime/ort.h"
#include "runtime/run_memory.h"
#include "runtime/session.h"
#include "runtime/shared_graph.h"

namespace radserve {

/// A graph as ONNX Runtime holds it, which a Session and its buckets share. On the CPU `wide`,
/// `narrow` or both are there; on CUDA `wide` alone.
struct SessionState final : LoadedGraph, std::enable_shared_from_this<SessionState> {
  /// The graph that `wide` and `narrow` share, where they do; it ends after them.
  std::unique_ptr<SharedWeights> weights;
  /// GraphSource::Kept; it ends after them, too.
  std::shared_ptr<const void> files;
  std::optional<Ort::Session> wide;
  std::optional<Ort::Session> narrow;
  Provider provider = Provider::kCpu;
  /// What runs of `wide` keep for each other, on the CPU.
  RunCache runs{true};

  // The fields below are there on CUDA only.
  int device = 0;
  /// The most that all models there may take together (0: no limit).
  size_t device_memory = 0;
  /// Runs and copies of the session go to this stream, one after the other: whoever runs holds
  /// `running`.
  std::optional<CudaStream> stream;
  std::mutex running;
  /// Made for one bucket, which runs in it alone: see Session::MakeBucket.
  bool own = false;
  /// Whether the runs of that bucket are captured as a CUDA graph. Then the session has an arena of
  /// its own, which never shrinks: what was captured has addresses in it, also in chunks that count
  /// as free. The graph is its thread's.
  bool graphs = false;
  /// Allocators of the device's memory, and of pinned memory: host memory that the GPU reads and
  /// writes by itself. A value over such memory says that it is the CPU's: what is said to be
  /// pinned the runtime takes for memory of the device, and copies neither there nor back.
  std::shared_ptr<Ort::Allocator> memory;
  std::shared_ptr<Ort::Allocator> pinned;

  SessionState() = default;
  /// Sessions of a GPU that is lost stay: to release them would call into the broken context.
  ~SessionState() override;
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  std::vector<Tensor> Run(std::span<const Tensor> feeds, std::span<const std::string> outputs,
                          bool want_wide, const std::stop_token& stop,
                          std::atomic<size_t>& most) override;
  std::vector<SessionMemory> Memory() const override;
  size_t Kept() const override { return runs.kept(); }
  std::unique_ptr<Bucket> MakeBucket(int64_t capacity,
                                     const std::vector<std::vector<int64_t>>& row_shapes,
                                     std::span<const std::string> outputs) override;
  std::shared_ptr<std::byte> MakeRows(size_t bytes) const override;

  /// The number of the GPU, or kNoGpu.
  int Gpu() const { return provider == Provider::kCuda ? device : kNoGpu; }
  /// Ort::Session::Run is not const, but safe to call from many threads.
  Ort::Session& Pick(bool want_wide) { return wide && (want_wide || !narrow) ? *wide : *narrow; }
  /// Where runs of a session keep their memory; nullptr for that of the thread.
  RunCache* CacheOf(const Ort::Session& session) {
    return provider == Provider::kCpu && wide && &session == &*wide ? &runs : nullptr;
  }
};

/// Bytes that all models of a GPU have taken there. Its user holds a CudaWork.
size_t TakenOfGpu(int device);

/// See Session::MakeBucket.
std::unique_ptr<Bucket> MakeBucket(std::shared_ptr<SessionState> state, int64_t capacity,
                                   const std::vector<std::vector<int64_t>>& row_shapes,
                                   std::span<const std::string> outputs);

/// See Session::MakeRows.
std::shared_ptr<std::byte> MakeRows(const SessionState& state, size_t bytes);

/// The bucket of CUDA; in tests, which have no GPU, over a session of the CPU. Throws
/// Ort::Exception.
std::unique_ptr<Bucket> MakeCudaBucket(std::shared_ptr<SessionState> state, int64_t capacity,
                                       const std::vector<std::vector<int64_t>>& row_shapes,
                                       std::span<const std::string> outputs);

}  // namespace radserve
