#include "engine/seen_runs.h"

#include <algorithm>
#include <iterator>

namespace radserve {
namespace {

/// Sizes that are remembered; the smallest makes room.
constexpr size_t kSizes = 64;

}  // namespace

void SeenRuns::Saw(size_t pixels, size_t bytes) {
  const std::lock_guard lock(mutex_);
  size_t& most = most_[pixels];
  most = std::max(most, bytes);
  if (most_.size() > kSizes) most_.erase(most_.begin());
}

size_t SeenRuns::Expected(size_t pixels) const {
  const std::lock_guard lock(mutex_);
  if (most_.empty()) return 0;
  auto near = most_.lower_bound(pixels);
  if (near == most_.end()) --near;
  if (near->first != pixels && near != most_.begin()) {
    const auto below = std::prev(near);
    if (pixels > below->first && pixels - below->first < near->first - pixels) near = below;
  }
  const double part =
      near->first == 0 ? 1 : static_cast<double>(pixels) / static_cast<double>(near->first);
  return static_cast<size_t>(static_cast<double>(near->second) * part);
}

}  // namespace radserve
