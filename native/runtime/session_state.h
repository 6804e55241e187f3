#ifndef RADSERVE_SESSION_STATE_H_
#define RADSERVE_SESSION_STATE_H_

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/ort.h"
#include "runtime/session.h"
#include "runtime/shared_graph.h"

namespace radserve {

/// What a Session and its buckets share. On the CPU `wide`, `narrow` or both are there; on CUDA `wide` alone.
struct SessionState {
  /// What `wide` and `narrow` share, where they do; it ends after them.
  std::unique_ptr<SharedWeights> weights;
  std::optional<Ort::Session> wide;
  std::optional<Ort::Session> narrow;
  GraphFacts facts;
  Provider provider = Provider::kCpu;
  int device = 0;
  /// The memory did not suffice: the next run of a bucket gives back what earlier runs took and no run needs
  /// now.
  std::atomic<bool> shrink = false;

  SessionState() = default;
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;
  /// Sessions of a GPU that is lost stay: to release them would call into the broken context.
  ~SessionState();

  /// The number of the GPU, or kNoGpu.
  int Gpu() const { return provider == Provider::kCuda ? device : kNoGpu; }
  /// Ort::Session::Run is not const, but safe to call from many threads.
  Ort::Session& Pick(bool want_wide) { return wide && (want_wide || !narrow) ? *wide : *narrow; }
};

/// See Session::MakeBucket.
std::unique_ptr<Bucket> MakeBucket(std::shared_ptr<SessionState> state, int64_t capacity,
                                   const std::vector<std::vector<int64_t>>& row_shapes,
                                   std::span<const std::string> outputs);

/// See Session::MakeRows.
std::shared_ptr<std::byte> MakeRows(const std::shared_ptr<SessionState>& state, size_t bytes);

/// The bucket of CUDA, which runs with IoBinding; in tests, which have no GPU, over a session of the CPU. Throws
/// Ort::Exception.
std::unique_ptr<Bucket> MakeBoundBucket(std::shared_ptr<SessionState> state, int64_t capacity,
                                        const std::vector<std::vector<int64_t>>& row_shapes,
                                        std::span<const std::string> outputs);

}  // namespace radserve

#endif  // RADSERVE_SESSION_STATE_H_
