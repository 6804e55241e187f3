#include "resample/gaussian.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace radserve {
namespace {

/// The weights of a filter from -radius to radius.
std::vector<double> GaussianWeights(double deviation) {
  constexpr double kTruncate = 4;
  const int radius = static_cast<int>(kTruncate * deviation + 0.5);
  std::vector<double> weights;
  double sum = 0;
  for (int i = -radius; i <= radius; ++i)
    sum +=
        weights.emplace_back(deviation > 0 ? std::exp(-0.5 * i * i / (deviation * deviation)) : 1);
  for (double& weight : weights) weight /= sum;
  return weights;
}

/// The input that is at a place beyond the border, counted on mirrored about the outermost centres.
int Mirrored(int place, int input) {
  if (input == 1) return 0;
  const int period = 2 * (input - 1);
  const int within = ((place % period) + period) % period;
  return std::min(within, period - within);
}

/// The weights of the inputs, of which those from `first` to `last` are not 0.
class Weights {
 public:
  Weights(int input, bool mirror) : all_(static_cast<size_t>(input)), mirror_(mirror) {}

  void Add(int place, double weight) {
    const int input = static_cast<int>(all_.size());
    if (place < 0 || place >= input) {
      if (!mirror_) return;
      place = Mirrored(place, input);
    }
    all_[static_cast<size_t>(place)] += weight;
    first_ = std::min(first_, place);
    last_ = std::max(last_, place);
  }

  /// Moves them to the taps, and is empty again.
  void MoveTo(Taps& taps) {
    const auto begin = all_.begin() + first_;
    const auto end = all_.begin() + last_ + 1;
    taps.Add(first_, std::vector<float>(begin, end));
    std::fill(begin, end, 0);
    first_ = static_cast<int>(all_.size());
    last_ = -1;
  }

 private:
  std::vector<double> all_;
  bool mirror_;
  int first_ = static_cast<int>(all_.size());
  int last_ = -1;
};

}  // namespace

Taps MakeGaussianTaps(const Axis& axis, bool mirror) {
  const std::vector<double> filter =
      GaussianWeights(axis.antialias ? std::max(0.0, (axis.scale - 1) / 2) : 0);
  const int radius = static_cast<int>(filter.size() / 2);
  Taps taps;
  Weights weights(axis.input, mirror);
  for (int i = 0; i < axis.output; ++i) {
    const double at = axis.offset + (i + 0.5) * axis.scale - 0.5;
    const int low = static_cast<int>(std::floor(at));
    for (const int filtered : {low, low + 1}) {
      // Where nothing is, nothing is filtered; mirrored, the filtered values are
      if (!mirror && (filtered < 0 || filtered >= axis.input)) continue;
      const int centre = mirror ? Mirrored(filtered, axis.input) : filtered;
      const double share = filtered == low ? 1 - (at - low) : at - low;
      if (share == 0) continue;
      for (int k = -radius; k <= radius; ++k)
        weights.Add(centre + k, share * filter[static_cast<size_t>(k + radius)]);
    }
    weights.MoveTo(taps);
  }
  return taps;
}

}  // namespace radserve
