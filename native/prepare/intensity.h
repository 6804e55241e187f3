#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

#include "base/description.h"
#include "base/tensor.h"

namespace radserve {

struct InputSpec;

/// A change of values by their own statistics, which is none of an affine map of the source's.
struct IntensitySpec {
  enum class Kind { kMinMax, kZScore, kPercentile, kClipPercentiles } kind = Kind::kZScore;
  /// Before resampling, instead of the tensor's values. Of volumes those of one channel.
  bool at_source = false;
  /// Values that are 0 are not counted, and stay.
  bool nonzero = false;
  /// Each channel has statistics of its own.
  bool each_channel = false;
  double low = 0;
  double high = 100;
  std::array<double, 2> to = {0, 1};
  /// kPercentile: what lies beyond the percentiles becomes `to`.
  bool clip = false;

  /// Whether it has the values twice for a while.
  bool NeedsCopy() const { return kind == Kind::kPercentile || kind == Kind::kClipPercentiles; }
};

/// One step of `intensity` of an input.
IntensitySpec ReadIntensity(const Description& o);

/// What a step of `intensity` comes to: value becomes (clamp(value, low, high) - subtract) *
/// multiply + add.
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

/// Values of all channels: `count` of each, `step` floats apart.
struct IntensityRow {
  std::vector<float*> channels;
  size_t count = 0;
  size_t step = 1;
};
/// Shows all values that are prepared together, in rows. They may be changed, and it may be called
/// more than once.
using IntensityRows = std::function<void(const std::function<void(const IntensityRow& row)>& see)>;

/// The steps of `intensity` before resampling, by the statistics of the values that `rows` shows.
/// The deviation is that of the population; without contrast min_max and percentile give the low
/// end, z_score 0. Percentiles interpolate linearly between ranks.
class SourceIntensity {
 public:
  SourceIntensity(const InputSpec& spec, const IntensityRows& rows);

  bool empty() const { return steps_.empty(); }
  void Change(const IntensityRow& row) const;

 private:
  /// For each step a change of each channel.
  std::vector<std::vector<IntensityChange>> steps_;
};

/// The steps after resampling, over a whole float32 tensor of the channels of `spec`.
void ChangeTensor(const InputSpec& spec, Tensor& tensor);

}  // namespace radserve
