#include "prepare/channels.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "prepare/input.h"

namespace radserve {
namespace {

/// The layers of one frame: one for each window.
std::vector<std::shared_ptr<const PixelSource>> LayersOf(const Plane& plane,
                                                         const ValueFields& spec) {
  if (spec.values.windows.empty()) return {std::make_shared<PixelSource>(plane, spec)};
  std::vector<std::shared_ptr<const PixelSource>> layers;
  ValueFields single = spec;
  single.values.windows.clear();
  for (const Window& window : spec.values.windows) {
    single.values.window = window;
    layers.push_back(std::make_shared<PixelSource>(plane, single));
  }
  return layers;
}

void CheckAlike(const PixelFormat& own, const PixelFormat& other) {
  if (own.rows == other.rows && own.columns == other.columns && own.samples == other.samples &&
      own.photometric == other.photometric && own.is_float == other.is_float) {
    return;
  }
  throw EngineError("series_invalid",
                    "Expected neighbouring slices with the rows, columns and kind of pixels of the "
                    "slice itself, " +
                        std::to_string(own.rows) + " x " + std::to_string(own.columns) +
                        "; found one of " + std::to_string(other.rows) + " x " +
                        std::to_string(other.columns) + ", or of another kind.");
}

}  // namespace

NeighboursSpec ReadNeighbours(const Description& o) {
  return {o.Int("before"), o.Int("after"), o.Text("edges") == "repeat"};
}

ChannelSource::ChannelSource(std::span<const Plane> frames, size_t centre, const InputSpec& spec)
    : per_layer_(spec.PixelChannels()) {
  if (centre >= frames.size()) throw EngineError("internal", "There is no such frame.");
  const Plane& own = frames[centre];
  columns_ = own.format.columns;
  const NeighboursSpec around = spec.neighbours.value_or(NeighboursSpec{});
  const auto last = static_cast<ptrdiff_t>(frames.size()) - 1;
  const auto middle = static_cast<ptrdiff_t>(centre);
  std::vector<std::vector<std::shared_ptr<const PixelSource>>> made(frames.size());
  for (ptrdiff_t at = middle - around.before; at <= middle + around.after; ++at) {
    if (at == middle) own_ = layers_.size();
    if ((at < 0 || at > last) && !around.repeat) {
      layers_.insert(layers_.end(), static_cast<size_t>(spec.Windows()), nullptr);
      continue;
    }
    const auto frame = static_cast<size_t>(std::clamp<ptrdiff_t>(at, 0, last));
    if (made[frame].empty()) {
      CheckAlike(own.format, frames[frame].format);
      made[frame] = LayersOf(frames[frame], spec);
    }
    layers_.insert(layers_.end(), made[frame].begin(), made[frame].end());
  }
}

void ChannelSource::Row(int row, float* const* channels) const {
  for (size_t i = 0; i < layers_.size(); ++i) {
    float* const* own = channels + static_cast<ptrdiff_t>(i) * per_layer_;
    if (layers_[i] != nullptr) {
      layers_[i]->Row(row, own);
      continue;
    }
    for (int c = 0; c < per_layer_; ++c) std::fill_n(own[c], columns_, background());
  }
}

Statistics ChannelSource::Measure(double low, double high) const {
  std::vector<std::pair<double, uint64_t>> values;
  AppendValues(values);
  return Summary(values, low, high);
}

void ChannelSource::AppendValues(std::vector<std::pair<double, uint64_t>>& values) const {
  for (const auto& layer : layers_) {
    if (layer != nullptr) layer->AppendValues(values);
  }
}

}  // namespace radserve
