#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/description.h"
#include "base/image.h"
#include "prepare/pixels.h"
#include "prepare/statistics.h"
#include "prepare/values.h"

namespace radserve {

struct InputSpec;

/// Slices beside the one that is looked at, as further channels.
struct NeighboursSpec {
  int before = 0;
  int after = 0;
  /// Beyond the first and the last slice: the edge slice again, instead of background.
  bool repeat = false;

  int Slices() const { return before + 1 + after; }
};

/// `neighbours` of an input.
NeighboursSpec ReadNeighbours(const Description& o);

/// All channels of a tensor, row by row: those of the frame's neighbours before it, its own, and
/// those of the neighbours after it; of each frame those of the first window, then of the second,
/// and so on.
class ChannelSource {
 public:
  /// `frames` are the frame and as many of its neighbours as there are, in their order; `centre` is
  /// the number of the frame. All must outlive it. Throws what PixelSource throws; series_invalid
  /// if a neighbour has another size or kind of pixels.
  ChannelSource(std::span<const Plane> frames, size_t centre, const InputSpec& spec);

  int channels() const { return per_layer_ * static_cast<int>(layers_.size()); }
  float background() const { return Own().background(); }
  const std::optional<Range>& observed() const { return Own().observed(); }
  /// Fills `channels()` arrays of the image's width. Thread safe.
  void Row(int row, float* const* channels) const;
  /// Over all channels that are made of pixels; an edge slice that is there again counts again.
  /// `low` and `high` are percentiles, 0 to 100.
  Statistics Measure(double low, double high) const;
  /// Adds the values of all its pixels, as PixelSource does.
  void AppendValues(std::vector<std::pair<double, uint64_t>>& values) const;
  /// Values of the frame itself.
  std::vector<uint8_t> PaddingMask() const { return Own().PaddingMask(); }

 private:
  const PixelSource& Own() const { return *layers_[own_]; }

  int per_layer_ = 1;
  int columns_ = 0;
  /// One for each window of each frame; nullptr where there is no frame.
  std::vector<std::shared_ptr<const PixelSource>> layers_;
  /// The first layer of the frame itself.
  size_t own_ = 0;
};

}  // namespace radserve
