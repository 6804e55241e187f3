#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/tensor.h"
#include "postprocess/cover.h"
#include "postprocess/output.h"
#include "prepare/geometry.h"

namespace radserve {

/// How a tensor holds maps of two or three sides.
struct MapShape {
  /// Whether channels come before the sides, else after.
  bool planar = true;
  /// [depth,] height, width.
  std::vector<int> sides;
};
/// Reads a shape [1,C,...] or [1,...,C]; `channels_last` decides if it fits both. A model may leave
/// out sides of length one: the batch, and the channel if there is a single one. Throws
/// output_invalid for other shapes.
MapShape ReadMapShape(const Tensor& tensor, size_t sides, size_t channels, bool channels_last);

/// An output tensor as planes over the model's input, one for each channel. Reads the
/// tensor's own memory where its elements are floats in that order, which must outlive it.
class Maps {
 public:
  /// See ReadMapShape.
  Maps(const Tensor& tensor, size_t channels, bool channels_last);
  Maps(const Maps&) = delete;
  Maps& operator=(const Maps&) = delete;

  int rows() const { return rows_; }
  int columns() const { return columns_; }
  size_t channels() const { return channels_; }
  /// Pixels of one channel.
  size_t pixels() const { return static_cast<size_t>(rows_) * static_cast<size_t>(columns_); }
  std::span<const float> values() const { return {values_, channels_ * pixels()}; }
  const float* Channel(size_t c) const { return values_ + c * pixels(); }
  /// Takes channels out, whose numbers rise.
  void Drop(std::span<const int> channels);
  /// Sigmoid of each value, or softmax over the channels of each pixel; nothing for the others.
  void Activate(Activation activation);

 private:
  int rows_ = 0;
  int columns_ = 0;
  size_t channels_;
  /// Empty, or what `values_` shows.
  std::vector<float> own_;
  const float* values_ = nullptr;
};

/// Activates a map of one channel. Throws output_invalid for what is not finite.
void ActivateMap(const OutputSpec& spec, const Tensor& tensor, Maps& map);

/// Where the maps of an output lie. Throws as LayMap of cover.h does.
MapGrid GridOf(const OutputSpec& spec, const Maps& maps, const Geometry& geometry);

}  // namespace radserve
