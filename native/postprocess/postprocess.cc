#include "postprocess/postprocess.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

constexpr std::array kKinds = {
#define RADSERVE_KIND(name) &kinds::name,
#include "postprocess_kinds.inc"
#undef RADSERVE_KIND
};

/// The input that the output names, or the only one of pixels.
size_t InputOf(const Description& output, std::span<const InputSpec> inputs) {
  const auto found = std::ranges::find_if(inputs, [&](const InputSpec& input) {
    return input.numbers == 0 && (!output.Has("input") || input.tensor == output.Text("input"));
  });
  return found == inputs.end() ? 0 : static_cast<size_t>(found - inputs.begin());
}

double ThresholdOf(const Description& label) {
  return label.Has("threshold") ? label.Number("threshold")
                                : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

Activation ReadActivation(const Description& o) {
  return o.OneOf<Activation>("activation", {{"none", Activation::kNone},
                                            {"sigmoid", Activation::kSigmoid},
                                            {"softmax", Activation::kSoftmax},
                                            {"argmax", Activation::kArgmax},
                                            {"label_map", Activation::kLabelMap},
                                            {"prototypes", Activation::kPrototypes}});
}

OutputSpec ReadOutputSpec(const Description& output, std::span<const InputSpec> inputs) {
  const std::string& name = output.Text("kind");
  OutputSpec spec;
  for (const OutputKind* const kind : kKinds) {
    if (kind->name == name) spec.kind = kind;
  }
  if (spec.kind == nullptr)
    throw EngineError("internal", "No output is of the kind \"" + name + "\".");
  if (output.Has("tensor")) spec.tensor = output.Text("tensor");
  if (output.Has("activation")) spec.activation = ReadActivation(output);
  if (output.Has("label")) spec.thresholds = {ThresholdOf(output.Child("label"))};
  if (output.Has("labels")) spec.thresholds = output.List("labels", ThresholdOf);
  spec.labels = static_cast<int>(spec.thresholds.size());
  spec.input = InputOf(output, inputs);
  spec.cover = ReadMapCover(output);
  spec.activate_last = output.Has("activated") && output.Text("activated") == "after";
  if (output.Has("ignored")) spec.ignored = output.Ints("ignored");
  std::ranges::sort(spec.ignored);
  spec.kind->read(output, spec);
  return spec;
}

bool InPixelsOfSource(const Description& output) {
  return output.Has("pixels_of") && output.Text("pixels_of") == "source";
}

void DropIgnored(const OutputSpec& spec, std::vector<float>& row) {
  for (auto column = spec.ignored.rbegin(); column != spec.ignored.rend(); ++column)
    row.erase(row.begin() + *column);
}

void InvalidOutput(const Tensor& tensor, const std::string& expected) {
  throw EngineError("output_invalid", "Expected " + expected + " from the output \"" + tensor.name +
                                          "\", found shape " + ShapeText(tensor.shape) + ".");
}

OutputResult Postprocess(const OutputSpec& spec, const TensorByName& tensors,
                         const SourceGrid& grid, std::span<const double> thresholds) {
  OutputResult out = ResultOf(spec);
  out.rows = grid.geometry.rows.source;
  out.columns = grid.geometry.columns.source;
  spec.kind->decode(spec, tensors, grid, thresholds, out);
  return out;
}

}  // namespace radserve
