#include "prepare/labels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "prepare/input.h"

namespace radserve {
namespace {

/// Where one voxel of the tensor lies between two of the source's, along one axis.
struct Between {
  std::array<int, 2> source;
  std::array<double, 2> weights;
  int nearest;
};

/// `apart`: slices that are resampled by themselves, of which the nearest counts.
std::vector<Between> AlongAxis(const VolumeAxis& axis) {
  const VolumeAxis::Splines& splines = axis.splines.value();
  const bool apart = splines.forward == 0;
  std::vector<Between> places;
  for (int i = 0; i < axis.tensor; ++i) {
    const double place = axis.offset - splines.first + (i + 0.5) * axis.scale - 0.5;
    const double at = std::clamp(place, 0.0, splines.count - 1.0);
    const int nearest = std::min(static_cast<int>(std::floor(at + 0.5)), splines.count - 1);
    const int under = apart ? nearest : static_cast<int>(std::floor(at));
    const double part = apart ? 0 : at - under;
    const auto of_source = [&](int voxel) {
      const int counted = splines.first + std::min(voxel, splines.count - 1);
      return axis.flipped ? axis.source - 1 - counted : counted;
    };
    places.push_back(
        {{of_source(under), of_source(under + 1)}, {1 - part, part}, of_source(nearest)});
  }
  return places;
}

/// The label that wins, from the eight voxels around a place.
class Vote {
 public:
  void Add(uint8_t label, double weight) {
    if (weight == 0) return;
    for (size_t i = 0; i < count_; ++i) {
      if (labels_[i] != label) continue;
      scores_[i] += weight;
      return;
    }
    labels_[count_] = label;
    scores_[count_++] = weight;
  }

  uint8_t Winner(uint8_t nearest) const {
    // Outside is -1, and so the least.
    const auto order = [](uint8_t label) {
      return label == kOutside ? -1 : static_cast<int>(label);
    };
    size_t best = 0;
    for (size_t i = 1; i < count_; ++i) {
      const bool less = order(labels_[i]) < order(labels_[best]);
      if (scores_[i] > scores_[best] || (scores_[i] == scores_[best] && less)) best = i;
    }
    for (size_t i = 0; i < count_; ++i) {
      if (labels_[i] == nearest && scores_[i] == scores_[best]) return nearest;
    }
    return labels_[best];
  }

 private:
  std::array<uint8_t, 8> labels_{};
  std::array<double, 8> scores_{};
  size_t count_ = 0;
};

}  // namespace

int LabelChannelsOf(const Description& input) {
  return input.Has("cascade") ? static_cast<int>(input.Child("cascade").Count("labels")) : 0;
}

void FillLabelChannels(std::span<const uint8_t> labels, const VolumePlacement& placement,
                       const InputSpec& spec, const std::stop_token& stop, Tensor& tensor) {
  std::array<std::vector<Between>, 3> along;
  std::array<size_t, 3> strides{};
  std::array<size_t, 3> sides{};
  for (size_t a = 0; a < 3; ++a) {
    along[a] = AlongAxis(placement.axes[a]);
    sides[static_cast<size_t>(placement.axes[a].source_axis)] =
        static_cast<size_t>(placement.axes[a].source);
  }
  for (size_t a = 0; a < 3; ++a) {
    strides[a] = 1;
    for (auto s = static_cast<size_t>(placement.axes[a].source_axis) + 1; s < 3; ++s)
      strides[a] *= sides[s];
  }
  const auto voxel = [&](int z, int y, int x) {
    return labels[static_cast<size_t>(z) * strides[0] + static_cast<size_t>(y) * strides[1] +
                  static_cast<size_t>(x) * strides[2]];
  };
  const auto first = static_cast<size_t>(spec.Channels());
  const auto added = static_cast<size_t>(spec.label_channels);
  const size_t voxels = along[0].size() * along[1].size() * along[2].size();
  const float one = 1;
  size_t at = 0;
  for (const Between& z : along[0]) {
    CheckStop(stop);
    for (const Between& y : along[1]) {
      for (const Between& x : along[2]) {
        Vote vote;
        for (size_t corner = 0; corner < 8; ++corner) {
          const size_t c = corner >> 2U;
          const size_t b = corner >> 1U & 1U;
          const size_t a = corner & 1U;
          const double weight = z.weights[c] * y.weights[b] * x.weights[a];
          if (weight != 0) vote.Add(voxel(z.source[c], y.source[b], x.source[a]), weight);
        }
        const uint8_t label = vote.Winner(voxel(z.nearest, y.nearest, x.nearest));
        if (label >= 1 && label <= added) {
          const size_t channel = first + label - 1;
          const size_t to =
              spec.channels_last ? at * (first + added) + channel : channel * voxels + at;
          StoreRow(spec.dtype, &one, 1, tensor.data + to * DtypeSize(spec.dtype), 1);
        }
        ++at;
      }
    }
  }
}

}  // namespace radserve
