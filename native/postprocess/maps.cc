#include "postprocess/maps.h"

#include <cstdint>
#include <string>
#include <utility>

#include "base/error.h"
#include "postprocess/activation.h"

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
    throw EngineError("output_invalid", "Expected a map of " + std::to_string(channels) +
                                            " channel(s) for one " + (sides == 2 ? "image" : "volume") +
                                            " from the output \"" + tensor.name + "\", found shape " +
                                            ShapeText(tensor.shape) + ".");
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

Axis BackRows(const Geometry& g, int map_rows) {
  const double ratio = static_cast<double>(map_rows) / g.rows;
  return {map_rows, g.source_rows, g.ToTensorY(0) * ratio, g.height / g.source_height * ratio, g.antialias};
}

Axis BackColumns(const Geometry& g, int map_columns) {
  const double ratio = static_cast<double>(map_columns) / g.columns;
  return {map_columns, g.source_columns, g.ToTensorX(0) * ratio, g.width / g.source_width * ratio,
          g.antialias};
}

}  // namespace radserve
