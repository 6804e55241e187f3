#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace radserve {

/// The most that runs of a model were seen to take, by the size of their images.
class SeenRuns {
 public:
  void Saw(size_t pixels, size_t bytes);
  /// What a run over so many pixels is expected to take: what one took, or, of the nearest size
  /// that was seen, in proportion. 0 before the first.
  size_t Expected(size_t pixels) const;

 private:
  mutable std::mutex mutex_;
  std::map<size_t, size_t> most_;
};

}  // namespace radserve
