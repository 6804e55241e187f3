#include "prepare/volume_statistics.h"

#include <algorithm>
#include <cmath>

namespace radserve {

void VolumeStatistics::Add(const std::vector<std::pair<double, uint64_t>>& values) {
  for (const auto& [value, times] : values) {
    if (count_ == 0) running_.min = running_.max = value;
    running_.min = std::min(running_.min, value);
    running_.max = std::max(running_.max, value);
    count_ += times;
    // West 1979: stays exact enough where the sum of squares would not.
    const double difference = value - running_.mean;
    running_.mean += difference * (static_cast<double>(times) / static_cast<double>(count_));
    squares_ += difference * (value - running_.mean) * static_cast<double>(times);
  }
  if (!percentiles_) return;
  if (!distinct_) {
    for (const auto& [value, times] : values) singles_.push_back(static_cast<float>(value));
    return;
  }
  counted_.insert(counted_.end(), values.begin(), values.end());
  if (counted_.size() >= merge_at_) Merge();
}

/// Equal values become one; the next time comes when their number has doubled.
void VolumeStatistics::Merge() {
  std::sort(counted_.begin(), counted_.end());
  size_t kept = 0;
  for (size_t i = 0; i < counted_.size(); ++i) {
    if (kept > 0 && counted_[kept - 1].first == counted_[i].first) {
      counted_[kept - 1].second += counted_[i].second;
    } else {
      counted_[kept++] = counted_[i];
    }
  }
  counted_.resize(kept);
  merge_at_ = std::max(merge_at_, kept * 2);
}

Statistics VolumeStatistics::Get(double low, double high) {
  if (count_ == 0) return {};
  Statistics s = running_;
  s.std = std::sqrt(std::max(0.0, squares_) / static_cast<double>(count_));
  if (!percentiles_) return s;
  if (distinct_) {
    Statistics summary = Summary(counted_, low, high);
    s.low = summary.low;
    s.high = summary.high;
    return s;
  }
  s.low = Single(low);
  s.high = Single(high);
  return s;
}

/// Linear between the ranks, as Summary does.
double VolumeStatistics::Single(double percent) {
  const double rank = percent / 100 * static_cast<double>(singles_.size() - 1);
  const auto below = singles_.begin() + static_cast<ptrdiff_t>(rank);
  std::nth_element(singles_.begin(), below, singles_.end());
  const double at = static_cast<double>(*below);
  const double part = rank - std::floor(rank);
  if (part == 0) return at;
  const double next = static_cast<double>(*std::min_element(below + 1, singles_.end()));
  return at + (next - at) * part;
}

}  // namespace radserve
