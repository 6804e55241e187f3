#include "prepare/cut_values.h"

#include <algorithm>

#include "base/simd.h"

namespace radserve {
namespace {

/// So many that the compiler makes vectors of them.
constexpr size_t kLanes = 64;

/// The least and the greatest of values, of which there is one at least.
RADSERVE_HOT_LOOP Range RangeOfRow(const float* values, size_t count) {
  float low[kLanes];
  float high[kLanes];
  for (size_t lane = 0; lane < kLanes; ++lane) low[lane] = high[lane] = values[0];
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float value = values[i + lane];
      low[lane] = value < low[lane] ? value : low[lane];
      high[lane] = value > high[lane] ? value : high[lane];
    }
  }
  for (; i < count; ++i) {
    low[0] = values[i] < low[0] ? values[i] : low[0];
    high[0] = values[i] > high[0] ? values[i] : high[0];
  }
  return {*std::min_element(low, low + kLanes), *std::max_element(high, high + kLanes)};
}

}  // namespace

void CutValues::Resamples(const Normaliser& normaliser, size_t channel,
                          std::span<const float> values) {
  if (!looks_ || values.empty()) return;
  const Range range = RangeOfRow(values.data(), values.size());
  Widen(given_, normaliser(channel, static_cast<float>(range.low)),
        normaliser(channel, static_cast<float>(range.high)));
}

void CutValues::Stores(std::span<const float> values) {
  if (!looks_ || values.empty()) return;
  const Range range = RangeOfRow(values.data(), values.size());
  Widen(stored_, range.low, range.high);
}

void CutValues::Widen(Range& range, double one, double other) {
  const std::lock_guard lock(mutex_);
  range.low = std::min({range.low, one, other});
  range.high = std::max({range.high, one, other});
}

}  // namespace radserve
