#ifndef RADSERVE_ACTIVATION_H_
#define RADSERVE_ACTIVATION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>

#include "error.h"

namespace radserve {

inline float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

/// In place, over all values.
inline void Softmax(std::span<float> values) {
  const float top = *std::max_element(values.begin(), values.end());
  float sum = 0;
  for (float& v : values) sum += v = std::exp(v - top);
  for (float& v : values) v /= sum;
}

/// Throws output_invalid for values that are no finite numbers; `tensor` is the output's name.
inline void CheckFinite(std::span<const float> values, const std::string& tensor) {
  if (std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) return;
  throw EngineError("output_invalid",
                    "The output \"" + tensor + "\" holds values that are no finite numbers.");
}

/// Throws output_invalid for values outside 0 to 1, beyond what rounding explains: logits, most likely.
inline void CheckProbabilities(std::span<const float> values, const std::string& tensor) {
  constexpr float kRounding = 1e-3f;
  const auto good = [](float v) { return v >= -kRounding && v <= 1 + kRounding; };
  if (std::all_of(values.begin(), values.end(), good)) return;
  throw EngineError("output_invalid", "Expected probabilities from 0 to 1 in the output \"" + tensor +
                                          "\", found others. Logits need activation \"sigmoid\".");
}

/// A probability in steps of 1/255, to the nearest.
inline uint8_t InSteps(float probability) {
  return static_cast<uint8_t>(std::lround(std::clamp(static_cast<double>(probability), 0.0, 1.0) * 255));
}

/// Throws output_invalid for values that are no label indices.
inline void CheckLabels(std::span<const float> values, int labels, const std::string& tensor) {
  const auto good = [&](float v) {
    return v >= 0 && v <= static_cast<float>(labels) && v == static_cast<float>(static_cast<int>(v));
  };
  if (std::all_of(values.begin(), values.end(), good)) return;
  throw EngineError("output_invalid", "Expected label indices from 0 to " + std::to_string(labels) +
                                          " in the output \"" + tensor + "\", found another value.");
}

}  // namespace radserve

#endif  // RADSERVE_ACTIVATION_H_
