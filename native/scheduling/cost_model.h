#ifndef RADSERVE_COST_MODEL_H_
#define RADSERVE_COST_MODEL_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "scheduling/fair_queue.h"

namespace radserve {

/// The median of the last durations: a cold run or a busy moment does not move it.
class MedianTime {
 public:
  void Add(Clock::duration duration) {
    last_[count_++ % last_.size()] = duration;
    auto sorted = last_;
    const size_t known = std::min(count_, sorted.size());
    const auto middle = sorted.begin() + static_cast<ptrdiff_t>(known / 2);
    std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<ptrdiff_t>(known));
    median_ = *middle;
  }
  bool known() const { return count_ > 0; }
  /// Zero before the first duration.
  Clock::duration Get() const { return median_; }

 private:
  std::array<Clock::duration, 15> last_{};
  size_t count_ = 0;
  Clock::duration median_{};
};

/// What batches of one shape cost on one device, learned from its runs.
///
/// Sizes form a ladder 1, 2, 4, 8, ... A step up is worth it while it makes a row at least 10 % cheaper: on a
/// CPU it usually is not, and then the cap is 1. The step above what is known may be tried. Each size has its
/// own median, because devices are not linear (nnU-Net in FP32 was seen to halve its speed from 2 rows to 4);
/// the line through the medians serves sizes without one.
class CostModel {
 public:
  explicit CostModel(int64_t max_batch) : limit_(max_batch) {}

  /// A run of `capacity` rows, padding included. The first of a size is left out: it allocates and searches.
  /// One that changed the device's shape teaches what the change costs, else what the size costs. Returns the
  /// cost of the change if it was one and can be told.
  std::optional<Clock::duration> Observe(int64_t capacity, Clock::duration took, bool switched);
  /// Larger batches do not fit any more.
  void Limit(int64_t capacity);

  /// The largest size worth running.
  int64_t cap() const { return cap_; }
  bool Measured(int64_t capacity) const;
  /// It has run at least once.
  bool Warm(int64_t capacity) const { return sizes_.contains(capacity); }
  /// Learned, or from the line, or the guess that a step up costs half of what its rows cost alone. Zero
  /// while nothing is known.
  Clock::duration Time(int64_t capacity) const;

  /// time(n) = per_row * n + fixed.
  struct Line {
    Clock::duration per_row{};
    Clock::duration fixed{};
  };
  /// Theil-Sen: the median of the slopes between all pairs. Where one size is known all is per row.
  Line Fit() const;
  struct Size {
    int64_t rows;
    Clock::duration time;
  };
  std::vector<Size> Sizes() const;

 private:
  void UpdateCap();

  struct Learned {
    bool warm = false;
    MedianTime time;
  };
  std::map<int64_t, Learned> sizes_;
  int64_t limit_;
  int64_t cap_ = 1;
  /// Sizes up to here were once found worth it; they stay so until they gain less than half of what was
  /// asked.
  int64_t accepted_ = 1;
};

}  // namespace radserve

#endif  // RADSERVE_COST_MODEL_H_
