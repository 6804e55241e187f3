#pragma once

#include <algorithm>
#include <any>
#include <cstddef>
#include <string>
#include <vector>

#include "postprocess/cover.h"

namespace radserve {

enum class Activation { kNone, kSigmoid, kSoftmax, kArgmax, kLabelMap, kPrototypes };

/// Whether a segmentation has one channel for each label, judged by thresholds, instead of one
/// label a pixel.
inline bool MayOverlap(Activation activation) {
  return activation == Activation::kSigmoid || activation == Activation::kNone ||
         activation == Activation::kPrototypes;
}

struct OutputKind;

/// What all kinds of outputs have, and the fields of one kind, which its own file reads and asks
/// for by their type.
struct OutputSpec {
  /// postprocess/kind.h; it lives as long as the process.
  const OutputKind* kind = nullptr;
  /// The tensor; for detections the one with the boxes.
  std::string tensor;
  /// The tensors beside it, in the manifest's order.
  std::vector<std::string> further_tensors;
  /// Number of the input whose grid maps and boxes are on.
  size_t input = 0;
  Activation activation = Activation::kNone;
  /// Of an output that is a map.
  MapCover cover;
  /// Maps go back to the source's grid before they are activated.
  bool activate_last = false;
  int labels = 0;
  /// Numbers, from 0 and rising, of the columns of the tensor (channels of maps) that are no label.
  std::vector<int> ignored;
  /// The manifest's thresholds, one a label; NaN for a label without a threshold.
  std::vector<double> thresholds;

  /// Names of the tensors it reads, in the manifest's order.
  std::vector<std::string> Tensors() const {
    std::vector<std::string> names = {tensor};
    names.insert(names.end(), further_tensors.begin(), further_tensors.end());
    return names;
  }
  /// Columns of scores that the tensor has.
  size_t Columns() const { return static_cast<size_t>(labels) + ignored.size(); }
  /// The place of a column among those that are not ignored; -1 for one that is.
  int PlaceOf(int column) const {
    const auto next = std::ranges::lower_bound(ignored, column);
    if (next != ignored.end() && *next == column) return -1;
    return column - static_cast<int>(next - ignored.begin());
  }
  /// The fields of its kind. Of an output of another kind they are as where nothing is set.
  template <typename Fields>
  const Fields& Own() const {
    static const Fields unset{};
    const auto* own = std::any_cast<Fields>(&own_);
    return own == nullptr ? unset : *own;
  }
  /// The same, to be set.
  template <typename Fields>
  Fields& Set() {
    if (std::any_cast<Fields>(&own_) == nullptr) own_ = Fields{};
    return *std::any_cast<Fields>(&own_);
  }

 private:
  std::any own_;
};

}  // namespace radserve
