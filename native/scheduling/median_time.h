#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "scheduling/fair_queue.h"

namespace radserve {

/// The median of the last durations, the lower one of two in the middle: a cold run or a busy
/// moment does not move it.
class MedianTime {
 public:
  void Add(Clock::duration duration) {
    last_[count_++ % last_.size()] = duration;
    auto sorted = last_;
    const size_t known = std::min(count_, sorted.size());
    const auto middle = sorted.begin() + static_cast<ptrdiff_t>((known - 1) / 2);
    std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<ptrdiff_t>(known));
    median_ = *middle;
  }
  /// Zero before the first duration.
  Clock::duration Get() const { return median_; }

 private:
  std::array<Clock::duration, 15> last_{};
  size_t count_ = 0;
  Clock::duration median_{};
};

}  // namespace radserve
