#include "prepare/statistics.h"

#include <algorithm>
#include <cmath>

namespace radserve {
namespace {

double Percentile(const std::vector<std::pair<double, uint64_t>>& sorted, uint64_t count, double percent) {
  const double rank = percent / 100 * static_cast<double>(count - 1);
  const auto below = static_cast<uint64_t>(rank);
  double at[2] = {sorted.back().first, sorted.back().first};
  uint64_t seen = 0;
  int found = 0;
  for (const auto& [value, times] : sorted) {
    seen += times;
    while (found < 2 && seen > below + static_cast<uint64_t>(found)) at[found++] = value;
    if (found == 2) break;
  }
  return at[0] + (at[1] - at[0]) * (rank - static_cast<double>(below));
}

}  // namespace

Statistics Summary(std::vector<std::pair<double, uint64_t>>& values, double low, double high) {
  Statistics s;
  uint64_t count = 0;
  double sum = 0;
  for (const auto& [value, times] : values) {
    count += times;
    sum += value * static_cast<double>(times);
  }
  if (count == 0) return s;
  s.mean = sum / static_cast<double>(count);
  double squares = 0;
  for (const auto& [value, times] : values) {
    squares += (value - s.mean) * (value - s.mean) * static_cast<double>(times);
  }
  s.std = std::sqrt(squares / static_cast<double>(count));
  std::sort(values.begin(), values.end());
  s.min = values.front().first;
  s.max = values.back().first;
  s.low = Percentile(values, count, low);
  s.high = Percentile(values, count, high);
  return s;
}

}  // namespace radserve
