#include "prepare/intensity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "prepare/statistics.h"

namespace radserve {
namespace {

/// Linear between ranks. Sorts parts of `values`.
double PercentileOf(std::vector<float>& values, double percent) {
  const double rank = percent / 100 * static_cast<double>(values.size() - 1);
  const auto below = values.begin() + static_cast<ptrdiff_t>(rank);
  std::nth_element(values.begin(), below, values.end());
  const double at = static_cast<double>(*below);
  const double part = rank - std::floor(rank);
  if (part == 0) return at;
  return at + (static_cast<double>(*std::min_element(below + 1, values.end())) - at) * part;
}

template <typename See>
void ForCounted(const IntensityValues& values, bool nonzero, const See& see) {
  values([&](const IntensityPortion& portion) {
    for (size_t i = 0; i < portion.count; ++i) {
      const float value = portion.first[i * portion.step];
      if (!nonzero || value != 0) see(value);
    }
  });
}

/// Two passes, so that squares of large values lose no digits; all is 0 of no values.
Statistics MomentsOf(const IntensityValues& values, bool nonzero) {
  Statistics s;
  double count = 0;
  ForCounted(values, nonzero, [&](float value) {
    const auto given = static_cast<double>(value);
    s.min = count == 0 ? given : std::min(s.min, given);
    s.max = count == 0 ? given : std::max(s.max, given);
    s.mean += given;
    ++count;
  });
  if (count == 0) return s;
  s.mean /= count;
  double squares = 0;
  ForCounted(values, nonzero, [&](float value) {
    const double away = static_cast<double>(value) - s.mean;
    squares += away * away;
  });
  s.std = std::sqrt(squares / count);
  return s;
}

}  // namespace

float IntensityChange::operator()(float value) const {
  if (nonzero && value == 0) return value;
  return static_cast<float>((std::clamp(static_cast<double>(value), low, high) - subtract) * multiply + add);
}

IntensityChange ChangeOf(const IntensitySpec& step, const IntensityValues& values) {
  using Kind = IntensitySpec::Kind;
  IntensityChange change;
  change.nonzero = step.nonzero;
  const auto spread = [&](double low, double high) {
    change.subtract = low;
    change.multiply = high > low ? (step.to[1] - step.to[0]) / (high - low) : 0;
    change.add = step.to[0];
  };
  if (step.kind == Kind::kPercentile || step.kind == Kind::kClipPercentiles) {
    std::vector<float> counted;
    ForCounted(values, step.nonzero, [&](float value) { counted.push_back(value); });
    if (counted.empty()) return change;
    const double low = PercentileOf(counted, step.low);
    const double high = PercentileOf(counted, step.high);
    if (step.kind == Kind::kPercentile) spread(low, high);
    if (step.clip || step.kind == Kind::kClipPercentiles) {
      change.low = low;
      change.high = high;
    }
    return change;
  }
  const Statistics s = MomentsOf(values, step.nonzero);
  if (step.kind == Kind::kMinMax) {
    spread(s.min, s.max);
  } else {
    change.subtract = s.mean;
    change.multiply = s.std > 0 ? 1 / s.std : 0;
  }
  return change;
}

void ChangeValues(const IntensitySpec& step, std::span<float> values, size_t channels, bool channels_last) {
  // Values that have their statistics together
  const size_t groups = step.each_channel ? channels : 1;
  const bool woven = channels_last && groups > 1;
  const size_t length = values.size() / groups;
  for (size_t group = 0; group < groups; ++group) {
    const IntensityPortion all{values.data() + (woven ? group : group * length), woven ? channels : 1,
                               length};
    const IntensityChange change =
        ChangeOf(step, [&](const std::function<void(const IntensityPortion&)>& see) { see(all); });
    float* value = values.data() + (all.first - values.data());
    for (size_t i = 0; i < length; ++i, value += all.step) *value = change(*value);
  }
}

void ChangeTensor(const InputSpec& spec, Tensor& tensor) {
  if (spec.intensity.empty()) return;
  if (tensor.dtype != Dtype::kFloat32) throw EngineError("internal", "Expected a tensor of float32.");
  const std::span values(reinterpret_cast<float*>(tensor.data), tensor.Elements());
  for (const IntensitySpec& step : spec.intensity) {
    if (!step.at_source) ChangeValues(step, values, static_cast<size_t>(spec.Channels()), spec.channels_last);
  }
}

}  // namespace radserve
