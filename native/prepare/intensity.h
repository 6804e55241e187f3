#ifndef RADSERVE_INTENSITY_H_
#define RADSERVE_INTENSITY_H_

#include <cstddef>
#include <functional>
#include <limits>
#include <span>

#include "base/spec.h"
#include "base/tensor.h"

namespace radserve {

/// What a step of `intensity` comes to: value becomes (clamp(value, low, high) - subtract) * multiply + add.
struct IntensityChange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  double subtract = 0;
  double multiply = 1;
  double add = 0;
  /// 0 stays 0.
  bool nonzero = false;

  float operator()(float value) const;
};

/// Some values of those that are changed together, `step` floats apart.
struct IntensityPortion {
  const float* first = nullptr;
  size_t step = 1;
  size_t count = 0;
};
/// Shows all of them, in portions; it may be called more than once.
using IntensityValues = std::function<void(const std::function<void(const IntensityPortion&)>& see)>;

/// The change by the statistics of values. The deviation is that of the population; without contrast min_max and percentile
/// give the low end, z_score 0. Percentiles interpolate linearly between ranks.
IntensityChange ChangeOf(const IntensitySpec& step, const IntensityValues& values);

/// Changes the values of `channels`, which lie channel after channel, or all channels of a voxel together.
void ChangeValues(const IntensitySpec& step, std::span<float> values, size_t channels, bool channels_last);

/// The steps of `spec` that are not done at the source, over a whole float32 tensor of its channels.
void ChangeTensor(const InputSpec& spec, Tensor& tensor);

}  // namespace radserve

#endif  // RADSERVE_INTENSITY_H_
