#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <mutex>
#include <span>

#include "base/tensor.h"
#include "prepare/input.h"
#include "prepare/statistics.h"
#include "prepare/values.h"

namespace radserve {

/// Looks whether a tensor's type cuts off values of the image. What lies beyond the values that are
/// resampled is overshoot of the interpolation, which every program cuts off there; and what lies
/// beyond percentiles is meant to be.
class CutValues {
 public:
  explicit CutValues(const InputSpec& spec)
      : dtype_(spec.dtype),
        looks_(spec.dtype != Dtype::kFloat32 &&
               spec.normalisation.kind != NormalisationSpec::Kind::kPercentile) {}

  /// Values of a channel that are resampled. Several threads may call this and Stores.
  void Resamples(const Normaliser& normaliser, size_t channel, std::span<const float> values);

  /// Values of the tensor before they are converted to its type.
  void Stores(std::span<const float> values);

  bool found() const {
    return looks_ && (!Holds(dtype_, std::max(given_.low, stored_.low)) ||
                      !Holds(dtype_, std::min(given_.high, stored_.high)));
  }

 private:
  void Widen(Range& range, double one, double other);

  static constexpr Range kNone = {std::numeric_limits<double>::infinity(),
                                  -std::numeric_limits<double>::infinity()};
  Dtype dtype_;
  bool looks_;
  std::mutex mutex_;
  Range given_ = kNone;
  Range stored_ = kNone;
};

}  // namespace radserve
