#ifndef RADSERVE_STATISTICS_H_
#define RADSERVE_STATISTICS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace radserve {

/// Over the values of an image (all channels), Pixel Padding left out. Percentiles interpolate linearly
/// between ranks; std is that of the population. All zero where every pixel is padding.
struct Statistics {
  double min = 0;
  double max = 0;
  double mean = 0;
  double std = 0;
  double low = 0;
  double high = 0;
};

/// `values` with how often each occurs; sorts them. `low` and `high` are percentiles, 0 to 100.
Statistics Summary(std::vector<std::pair<double, uint64_t>>& values, double low, double high);

}  // namespace radserve

#endif  // RADSERVE_STATISTICS_H_
