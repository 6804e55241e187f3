#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace radserve {

/// In place.
void Sigmoid(std::span<float> values);

/// In place, over all values.
void Softmax(std::span<float> values);

/// How many classes exclude each other in a tensor of scores: the last side of its shape that is
/// longer than one. 25 x 3 scores are 25 times three classes.
size_t ClassesOf(std::span<const int64_t> shape);

/// Softmax of scores over their classes, in place. `labels` is how many scores one image has.
void SoftmaxOfScores(std::span<float> scores, std::span<const int64_t> shape, size_t labels);

/// Softmax over the channels of each of the pixels [first, last), or of all, in place; channel c of
/// pixel i is planes[c * pixels + i].
void SoftmaxPlanes(std::span<float> planes, size_t pixels, size_t first = 0,
                   size_t last = SIZE_MAX);

/// Throws output_invalid for values that are no finite numbers; `tensor` is the output's name.
void CheckFinite(std::span<const float> values, const std::string& tensor);

/// Throws output_invalid for values outside 0 to 1, beyond what rounding explains: logits, most
/// likely.
void CheckProbabilities(std::span<const float> values, const std::string& tensor);

/// Label indices as bytes. Throws output_invalid for values that are not label indices.
void ToLabels(std::span<const float> values, int labels, const std::string& tensor, uint8_t* out);

/// Probabilities in steps of 1/255, to the nearest.
void ToSteps(std::span<const float> probabilities, uint8_t* out);

/// Whether a score is at or above a threshold (NaN: none), in float32 on both sides: a score of 0.7
/// arrives as 0.69999999.
inline bool Reaches(float score, double threshold) {
  return !(score < static_cast<float>(threshold));
}

/// 1 for each value at or above the threshold (NaN: for none), compared as Reaches does.
void ToMask(std::span<const float> values, double threshold, uint8_t* out);

/// `label` and its value where the value is greater than the best so far.
void TakeHigher(std::span<const float> values, uint8_t label, float* best, uint8_t* labels);

}  // namespace radserve
