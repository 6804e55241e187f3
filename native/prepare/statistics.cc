#include "prepare/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/simd.h"

namespace radserve {
namespace {

double Percentile(const std::vector<std::pair<double, uint64_t>>& sorted, uint64_t count,
                  double percent) {
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

RADSERVE_HOT_LOOP void NormaliseRow(const float* __restrict values, size_t count, float low,
                                    float high, double subtract, double multiply, double add,
                                    float* __restrict out) {
  for (size_t x = 0; x < count; ++x) {
    float value = values[x] < low ? low : values[x];
    value = value > high ? high : value;
    out[x] = static_cast<float>((static_cast<double>(value) - subtract) * multiply + add);
  }
}

double Inverse(double span) { return span > 0 ? 1 / span : 0; }

void Set(Normaliser& n, size_t channels, double subtract, double multiply, double add) {
  n.subtract.assign(channels, subtract);
  n.multiply.assign(channels, multiply);
  n.add.assign(channels, add);
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

void VolumeStatistics::Add(const std::vector<std::pair<double, uint64_t>>& values) {
  for (const auto& [value, times] : values) {
    if (count_ == 0) running_.min = running_.max = value;
    running_.min = std::min(running_.min, value);
    running_.max = std::max(running_.max, value);
    count_ += times;
    // West 1979: stays exact enough if the sum of squares would not.
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

void Normaliser::Row(size_t channel, const float* values, size_t count, const Limits& limits,
                     float* out) const {
  NormaliseRow(values, count, limits.low, limits.high, subtract[channel], multiply[channel],
               add[channel], out);
}

NormalisationSpec ReadNormalisation(const Description& o) {
  using Kind = NormalisationSpec::Kind;
  NormalisationSpec n;
  n.kind = o.OneOf<Kind>("kind", {{"none", Kind::kNone},
                                  {"scale", Kind::kScale},
                                  {"mean_std", Kind::kMeanStd},
                                  {"min_max", Kind::kMinMax},
                                  {"z_score", Kind::kZScore},
                                  {"percentile", Kind::kPercentile}});
  if (n.kind == Kind::kScale) o.Into("multiply", n.multiply, "add", n.add);
  if (n.kind == Kind::kMeanStd) o.Into("mean", n.mean, "std", n.std);
  if (n.kind == Kind::kPercentile) o.Into("low", n.low, "high", n.high);
  if (o.Has("to")) n.to = o.Some<2>("to");
  if (o.Has("of")) n.nonzero = o.Text("of") == "nonzero";
  return n;
}

Normaliser MakeNormaliser(const NormalisationSpec& spec, int channel_count,
                          const std::function<Statistics(double low, double high)>& measure) {
  using Kind = NormalisationSpec::Kind;
  Normaliser n;
  const auto channels = static_cast<size_t>(channel_count);
  Set(n, channels, 0, 1, 0);
  switch (spec.kind) {
    case Kind::kNone:
      break;
    case Kind::kScale:
      Set(n, channels, 0, spec.multiply, spec.add);
      break;
    case Kind::kMeanStd:
      for (size_t c = 0; c < channels; ++c) {
        n.subtract[c] = spec.mean[spec.mean.size() == 1 ? 0 : c];
        n.multiply[c] = 1 / spec.std[spec.std.size() == 1 ? 0 : c];
      }
      break;
    case Kind::kMinMax:
      n.found = measure(0, 100);
      Set(n, channels, n.found->min,
          (spec.to[1] - spec.to[0]) * Inverse(n.found->max - n.found->min), spec.to[0]);
      break;
    case Kind::kZScore:
      n.found = measure(0, 100);
      Set(n, channels, n.found->mean, Inverse(n.found->std), 0);
      break;
    case Kind::kPercentile:
      n.found = measure(spec.low, spec.high);
      Set(n, channels, n.found->low,
          (spec.to[1] - spec.to[0]) * Inverse(n.found->high - n.found->low), spec.to[0]);
      break;
  }
  return n;
}

}  // namespace radserve
