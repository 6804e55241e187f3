#include "postprocess/maps.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "postprocess/activation.h"
#include "postprocess/kind.h"

namespace radserve {

MapShape ReadMapShape(const Tensor& tensor, size_t sides, size_t channels, bool channels_last) {
  std::vector<int64_t> shape = tensor.shape;
  if (shape.size() == sides && channels == 1) shape.insert(shape.begin(), 1);
  if (shape.size() == sides + 1) shape.insert(shape.begin(), 1);
  const auto wanted = static_cast<int64_t>(channels);
  const bool whole = shape.size() == sides + 2 && shape[0] == 1 && tensor.Elements() > 0;
  const bool first = whole && shape[1] == wanted;
  const bool last = whole && shape.back() == wanted;
  if (!first && !last) {
    InvalidOutput(tensor, "a map of " + std::to_string(channels) + " channel(s) for one " +
                              (sides == 2 ? "image" : "volume"));
  }
  MapShape found;
  found.planar = first && !(last && channels_last);
  for (size_t side = 0; side < sides; ++side) {
    found.sides.push_back(static_cast<int>(shape[side + (found.planar ? 2 : 1)]));
  }
  return found;
}

Maps::Maps(const Tensor& tensor, size_t channels, bool channels_last) : channels_(channels) {
  const auto [planar, sides] = ReadMapShape(tensor, 2, channels, channels_last);
  rows_ = sides[0];
  columns_ = sides[1];
  const bool aligned = reinterpret_cast<uintptr_t>(tensor.data) % alignof(float) == 0;
  if (tensor.dtype == Dtype::kFloat32 && aligned && (planar || channels == 1)) {
    values_ = reinterpret_cast<const float*>(tensor.data);
    return;
  }
  own_ = AsFloats(tensor);
  if (!planar && channels > 1) {
    std::vector<float> planes(own_.size());
    for (size_t i = 0; i < pixels(); ++i) {
      for (size_t c = 0; c < channels; ++c) planes[c * pixels() + i] = own_[i * channels + c];
    }
    own_ = std::move(planes);
  }
  values_ = own_.data();
}

void Maps::Drop(std::span<const int> channels) {
  if (channels.empty()) return;
  std::vector<float> kept;
  for (size_t c = 0; c < channels_; ++c) {
    if (std::ranges::find(channels, static_cast<int>(c)) != channels.end()) continue;
    kept.insert(kept.end(), Channel(c), Channel(c) + pixels());
  }
  channels_ -= channels.size();
  own_ = std::move(kept);
  values_ = own_.data();
}

void Maps::Activate(Activation activation) {
  if (activation != Activation::kSigmoid && activation != Activation::kSoftmax) return;
  if (own_.empty()) own_.assign(values().begin(), values().end());
  values_ = own_.data();
  if (activation == Activation::kSigmoid) {
    Sigmoid(own_);
  } else {
    SoftmaxPlanes(own_, pixels());
  }
}

void ActivateMap(const OutputSpec& spec, const Tensor& tensor, Maps& map) {
  CheckFinite(map.values(), tensor.name);
  if (spec.activation == Activation::kSigmoid) map.Activate(spec.activation);
}

MapGrid GridOf(const OutputSpec& spec, const Maps& maps, const Geometry& geometry) {
  return LayMap(spec.cover, maps.rows(), maps.columns(), geometry, spec.tensor);
}

}  // namespace radserve
