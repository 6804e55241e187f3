#pragma once

#include <any>
#include <cstddef>
#include <string>
#include <vector>

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
  int labels = 0;
  /// The manifest's thresholds, one a label; NaN for a label without a threshold.
  std::vector<double> thresholds;

  /// Names of the tensors it reads, in the manifest's order.
  std::vector<std::string> Tensors() const {
    std::vector<std::string> names = {tensor};
    names.insert(names.end(), further_tensors.begin(), further_tensors.end());
    return names;
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
