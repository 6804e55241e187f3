#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/description.h"

namespace radserve {

/// Over the values of an image (all channels), Pixel Padding left out. Percentiles interpolate
/// linearly between ranks; std is that of the population. All zero if every pixel is padding.
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

/// Statistics over values that come in portions, without keeping each of them if they repeat.
class VolumeStatistics {
 public:
  /// `percentiles` says whether they will be asked for, `distinct` whether values come with counts.
  /// Values that do not are kept as floats, four bytes each.
  VolumeStatistics(bool percentiles, bool distinct)
      : percentiles_(percentiles), distinct_(distinct) {}

  void Add(const std::vector<std::pair<double, uint64_t>>& values);
  /// All zero if nothing was added.
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

/// What values are clipped to.
struct Limits {
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
};

/// normalised = (value - subtract) * multiply + add, one of each for every channel.
struct Normaliser {
  std::vector<double> subtract, multiply, add;
  /// The statistics of which the normalisation was made, if it measures.
  std::optional<Statistics> found;

  float operator()(size_t channel, float value) const {
    return static_cast<float>((static_cast<double>(value) - subtract[channel]) * multiply[channel] +
                              add[channel]);
  }
  /// Clips and normalises a row of a channel.
  void Row(size_t channel, const float* values, size_t count, const Limits& limits,
           float* out) const;
};

/// `normalisation` of an input.
struct NormalisationSpec {
  enum class Kind { kNone, kScale, kMeanStd, kMinMax, kZScore, kPercentile } kind = Kind::kNone;
  double multiply = 1;
  double add = 0;
  std::vector<double> mean, std;
  double low = 0;
  double high = 100;
  std::array<double, 2> to = {0, 1};
  /// kZScore of volumes with ResamplingSpec::crop_nonzero: mean and deviation are those of the
  /// body, and what lies outside of it is 0 (nnU-Net's use_mask_for_norm).
  bool nonzero = false;
};

NormalisationSpec ReadNormalisation(const Description& o);

/// `measure(low, high)` gives the statistics of what is normalised together, with those
/// percentiles; it is called only if the normalisation needs them.
Normaliser MakeNormaliser(const NormalisationSpec& spec, int channels,
                          const std::function<Statistics(double low, double high)>& measure);

}  // namespace radserve
