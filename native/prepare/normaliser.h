#ifndef RADSERVE_NORMALISER_H_
#define RADSERVE_NORMALISER_H_

#include <functional>
#include <optional>
#include <vector>

#include "base/spec.h"
#include "prepare/statistics.h"

namespace radserve {

/// normalised = (value - subtract) * multiply + add, one of each for every channel.
struct Normaliser {
  std::vector<double> subtract, multiply, add;
  /// What the normalisation was made of, where it measures.
  std::optional<Statistics> found;

  float operator()(size_t channel, float value) const {
    return static_cast<float>((static_cast<double>(value) - subtract[channel]) * multiply[channel] +
                              add[channel]);
  }
};

/// `measure(low, high)` gives the statistics of what is normalised together, with those percentiles; it is
/// called only where the normalisation needs them.
Normaliser MakeNormaliser(const NormalisationSpec& spec, int channels,
                          const std::function<Statistics(double low, double high)>& measure);

}  // namespace radserve

#endif  // RADSERVE_NORMALISER_H_
