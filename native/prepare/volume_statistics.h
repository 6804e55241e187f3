#ifndef RADSERVE_VOLUME_STATISTICS_H_
#define RADSERVE_VOLUME_STATISTICS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "prepare/statistics.h"

namespace radserve {

/// Statistics over values that come in portions, without keeping each of them where they repeat.
class VolumeStatistics {
 public:
  /// `percentiles` says whether they will be asked for, `distinct` whether values come with counts. Values
  /// that do not are kept as floats, four bytes each.
  VolumeStatistics(bool percentiles, bool distinct) : percentiles_(percentiles), distinct_(distinct) {}

  void Add(const std::vector<std::pair<double, uint64_t>>& values);
  /// All zero where nothing was added.
  Statistics Get(double low, double high);

 private:
  void Merge();
  double Single(double percent);

  bool percentiles_;
  bool distinct_;
  Statistics running_;
  double squares_ = 0;
  uint64_t count_ = 0;
  std::vector<std::pair<double, uint64_t>> counted_;
  size_t merge_at_ = size_t{1} << 20;
  std::vector<float> singles_;
};

}  // namespace radserve

#endif  // RADSERVE_VOLUME_STATISTICS_H_
