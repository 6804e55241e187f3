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

/// A quantile of the last `remembered` durations: the one with `rank(count)` shorter ones.
template <size_t remembered, size_t least, size_t (*rank)(size_t count)>
class RecentTime {
 public:
  void Add(Clock::duration duration) {
    last_[count_++ % remembered] = duration;
    std::array<Clock::duration, remembered> sorted = last_;
    const size_t known = std::min(count_, remembered);
    const auto found = sorted.begin() + static_cast<ptrdiff_t>(rank(known));
    std::nth_element(sorted.begin(), found, sorted.begin() + static_cast<ptrdiff_t>(known));
    quantile_ = *found;
  }
  /// Enough durations to tell.
  bool known() const { return count_ >= least; }
  /// Zero before the first.
  Clock::duration Get() const { return quantile_; }

 private:
  std::array<Clock::duration, remembered> last_{};
  size_t count_ = 0;
  Clock::duration quantile_{};
};

constexpr size_t MiddleRank(size_t count) { return count / 2; }
constexpr size_t UpperRank(size_t count) { return (count - 1) * 3 / 4; }
/// The median: a cold run or a busy moment does not move it.
using MedianTime = RecentTime<15, 1, MiddleRank>;
/// What three of four of the last runs stayed below.
using UpperTime = RecentTime<16, 8, UpperRank>;

/// What batches of one shape cost on one device, learned from its runs.
///
/// Sizes form a ladder 1, 2, 4, 8, ... A step up is worth it while it makes a row at least 10 % cheaper: on a
/// CPU it usually is not, and then the cap is 1. The step above what is known may be tried. Each size has its
/// own median, because devices are not linear (nnU-Net in FP32 was seen to halve its speed from 2 rows to 4);
/// the line through the medians serves sizes without one, and people.
class CostModel {
 public:
  explicit CostModel(int64_t max_batch) : limit_(max_batch) {}

  /// A run of `capacity` rows, padding included. The first of a size is left out: it allocates and searches.
  /// One that changed the device's shape teaches what the change costs, else what the size costs. Returns the
  /// cost of the change where it was one and can be told.
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
  /// The smallest size that holds so many rows.
  static int64_t SizeFor(int64_t rows);

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
