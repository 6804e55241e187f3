#include "engine/ensemble.h"

#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <string>

#include "postprocess/activation.h"
#include "postprocess/kind.h"
#include "postprocess/maps.h"

namespace radserve {
namespace {

constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

/// What one tensor goes through.
struct Step {
  Activation activation = Activation::kNone;
  /// For softmax: of a map its channels, else how many scores an image has.
  size_t channels = 1;
  /// Sides of a map, as one run of the graph gives it; 0 for what is no map.
  size_t sides = 0;
  /// Prefer channels behind the sides where a shape fits both readings.
  bool channels_last = false;
};

/// Softmax over the channels of a map, wherever its own shape has them.
void SoftmaxOfMaps(const Step& step, Tensor& tensor, std::span<float> values) {
  // Windows that ran together are rows of one tensor
  Tensor row = tensor;
  if (row.shape.size() == step.sides + 2) row.shape[0] = 1;
  const bool planar = ReadMapShape(row, step.sides, step.channels, step.channels_last).planar;
  const size_t pixels = planar ? row.Elements() / step.channels : 1;
  const size_t group = pixels * step.channels;
  for (size_t at = 0; at < values.size(); at += group) {
    if (planar) {
      SoftmaxPlanes(values.subspan(at, group), pixels);
    } else {
      Softmax(values.subspan(at, group));
    }
  }
}

void Activate(const Step& step, Tensor& tensor) {
  const std::span<float> values(reinterpret_cast<float*>(tensor.data), tensor.Elements());
  // A sigmoid makes 1 of an infinity. Nothing is refused here, where images of other requests may
  // be in the batch: what is no number stays none, and the output that takes the mean refuses it.
  for (float& value : values) value = std::isfinite(value) ? value : kNoNumber;
  if (step.activation == Activation::kSigmoid) Sigmoid(values);
  if (step.activation != Activation::kSoftmax || values.empty()) return;
  if (step.sides == 0) return SoftmaxOfScores(values, tensor.shape, step.channels);
  SoftmaxOfMaps(step, tensor, values);
}

Step StepOf(const OutputSpec& spec, const ImageModel& model) {
  if (!spec.kind->masks) return {spec.activation, spec.Columns()};
  const InputSpec& input = model.inputs.at(spec.input);
  // Windows of two sides go over the slices of a volume one by one
  const size_t sides = model.tiling ? model.tiling->window.size() : input.volume ? 3 : 2;
  return {spec.activation, ChannelsOf(spec), sides, input.channels_last};
}

}  // namespace

BeforeMean TakeActivations(ImageModel& model) {
  std::map<std::string, Step> steps;
  for (OutputSpec& spec : model.outputs) {
    if (spec.activation != Activation::kSigmoid && spec.activation != Activation::kSoftmax)
      continue;
    steps[spec.tensor] = StepOf(spec, model);
    const bool labels = spec.kind->masks && !MayOverlap(spec.activation);
    spec.activation = labels ? Activation::kArgmax : Activation::kNone;
  }
  return [steps](Tensor& tensor) {
    const auto step = steps.find(tensor.name);
    if (step != steps.end()) Activate(step->second, tensor);
  };
}

}  // namespace radserve
