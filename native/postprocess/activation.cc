#include "postprocess/activation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/simd.h"

namespace radserve {
namespace {

// Loops that end early are not vectorised, and hardly ever end early: these look at every value.

RADSERVE_HOT_LOOP bool AllWithin(const float* values, size_t count, float low, float high) {
  int outside = 0;
  for (size_t i = 0; i < count; ++i) outside |= (values[i] >= low) & (values[i] <= high) ? 0 : 1;
  return outside == 0;
}

RADSERVE_HOT_LOOP bool AllLabels(const float* __restrict values, size_t count, float most,
                                 uint8_t* __restrict out) {
  int others = 0;
  for (size_t i = 0; i < count; ++i) {
    float label = values[i] >= 0 ? values[i] : 0;
    label = label <= most ? label : most;
    const int index = static_cast<int>(label);
    others |= static_cast<float>(index) == values[i] ? 0 : 1;
    out[i] = static_cast<uint8_t>(index);
  }
  return others == 0;
}

}  // namespace

void Sigmoid(std::span<float> values) {
  for (float& v : values) v = 1 / (1 + std::exp(-v));
}

void Softmax(std::span<float> values) {
  const float top = *std::max_element(values.begin(), values.end());
  float sum = 0;
  for (float& v : values) sum += v = std::exp(v - top);
  for (float& v : values) v /= sum;
}

size_t ClassesOf(std::span<const int64_t> shape) {
  const auto longer =
      std::find_if(shape.rbegin(), shape.rend(), [](int64_t side) { return side > 1; });
  return longer == shape.rend() ? 1 : static_cast<size_t>(*longer);
}

void SoftmaxOfScores(std::span<float> scores, std::span<const int64_t> shape, size_t labels) {
  const size_t classes = labels == 1 ? 1 : ClassesOf(shape);
  for (size_t at = 0; at < scores.size(); at += classes) Softmax(scores.subspan(at, classes));
}

void SoftmaxPlanes(std::span<float> planes, size_t pixels, size_t first, size_t last) {
  std::vector<float> pixel(planes.size() / pixels);
  for (size_t i = first; i < std::min(last, pixels); ++i) {
    for (size_t c = 0; c < pixel.size(); ++c) pixel[c] = planes[c * pixels + i];
    Softmax(pixel);
    for (size_t c = 0; c < pixel.size(); ++c) planes[c * pixels + i] = pixel[c];
  }
}

void CheckFinite(std::span<const float> values, const std::string& tensor) {
  constexpr float kMost = std::numeric_limits<float>::max();
  if (AllWithin(values.data(), values.size(), -kMost, kMost)) return;
  throw EngineError("output_invalid",
                    "The output \"" + tensor + "\" holds values that are no finite numbers.");
}

void CheckProbabilities(std::span<const float> values, const std::string& tensor) {
  constexpr float kRounding = 1e-3f;
  if (AllWithin(values.data(), values.size(), -kRounding, 1 + kRounding)) return;
  throw EngineError("output_invalid", "Expected probabilities from 0 to 1 in the output \"" +
                                          tensor +
                                          "\", found others. Logits need activation \"sigmoid\".");
}

void ToLabels(std::span<const float> values, int labels, const std::string& tensor, uint8_t* out) {
  if (AllLabels(values.data(), values.size(), static_cast<float>(labels), out)) return;
  throw EngineError("output_invalid", "Expected label indices from 0 to " + std::to_string(labels) +
                                          " in the output \"" + tensor +
                                          "\", found another value.");
}

RADSERVE_HOT_LOOP void ToSteps(std::span<const float> probabilities, uint8_t* __restrict out) {
  const size_t count = probabilities.size();
  for (size_t i = 0; i < count; ++i) {
    float p = probabilities[i] > 0 ? probabilities[i] : 0;
    p = p < 1 ? p : 1;
    // Exact up to the cut: 24 bits times 8 bits, and a half
    out[i] = static_cast<uint8_t>(static_cast<int>(static_cast<double>(p) * 255 + 0.5));
  }
}

RADSERVE_HOT_LOOP void ToMask(std::span<const float> values, double threshold,
                              uint8_t* __restrict out) {
  const auto least = static_cast<float>(threshold);
  const size_t count = values.size();
  for (size_t i = 0; i < count; ++i) out[i] = values[i] >= least ? 1 : 0;
}

RADSERVE_HOT_LOOP void TakeHigher(std::span<const float> values, uint8_t label,
                                  float* __restrict best, uint8_t* __restrict labels) {
  const size_t count = values.size();
  for (size_t i = 0; i < count; ++i) labels[i] = values[i] > best[i] ? label : labels[i];
  for (size_t i = 0; i < count; ++i) best[i] = values[i] > best[i] ? values[i] : best[i];
}

}  // namespace radserve
