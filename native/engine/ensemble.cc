#include "engine/ensemble.h"

#include <map>
#include <numeric>
#include <span>
#include <string>

#include "base/error.h"
#include "postprocess/activation.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

/// The steps that one tensor goes through.
struct Step {
  Activation activation = Activation::kNone;
  /// For softmax: of a map its channels, else how many scores an image has.
  size_t channels = 1;
  /// Sides of a map behind the channels: 2 for images, 3 for volumes, 0 where channels come last.
  size_t sides = 0;
  bool map = false;
};

void Activate(const Step& step, Tensor& tensor) {
  const std::span<float> values(reinterpret_cast<float*>(tensor.data), tensor.Elements());
  if (step.activation == Activation::kSigmoid) Sigmoid(values);
  if (step.activation != Activation::kSoftmax || values.empty()) return;
  if (!step.map) return SoftmaxOfScores(values, tensor.shape, step.channels);
  size_t pixels = 1;
  if (tensor.shape.size() > step.sides) {
    pixels = std::accumulate(
        tensor.shape.end() - static_cast<ptrdiff_t>(step.sides), tensor.shape.end(), size_t{1},
        [](size_t product, int64_t side) { return product * static_cast<size_t>(side); });
  }
  const size_t group = pixels * step.channels;
  if (values.size() % group != 0) {
    throw EngineError("output_invalid", "Expected " + std::to_string(step.channels) +
                                            " channels in the output \"" + tensor.name +
                                            "\", found " + ShapeText(tensor.shape) + ".");
  }
  for (size_t at = 0; at < values.size(); at += group)
    SoftmaxPlanes(values.subspan(at, group), pixels);
}

Step StepOf(const OutputSpec& spec, const InputSpec& input) {
  const size_t labels = spec.Columns();
  if (!spec.kind->masks) return {spec.activation, labels, 0, false};
  const size_t sides = input.channels_last ? 0 : input.volume ? 3 : 2;
  // Channel 0 is background.
  return {spec.activation, labels + 1, sides, true};
}

}  // namespace

BeforeMean TakeActivations(std::vector<OutputSpec>& outputs, const std::vector<InputSpec>& inputs) {
  std::map<std::string, Step> steps;
  for (OutputSpec& spec : outputs) {
    if (spec.activation != Activation::kSigmoid && spec.activation != Activation::kSoftmax)
      continue;
    steps[spec.tensor] = StepOf(spec, inputs.at(spec.input));
    const bool labels = spec.kind->masks && !MayOverlap(spec.activation);
    spec.activation = labels ? Activation::kArgmax : Activation::kNone;
  }
  return [steps](Tensor& tensor) {
    const auto step = steps.find(tensor.name);
    if (step != steps.end()) Activate(step->second, tensor);
  };
}

}  // namespace radserve
