#include "postprocess/postprocess.h"

#include "base/error.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

constexpr std::array kKinds = {
#define RADSERVE_KIND(name) &kinds::name,
#include "postprocess_kinds.inc"
#undef RADSERVE_KIND
};

}  // namespace

OutputSpec ReadOutputSpec(const Description& output) {
  const std::string& name = output.Text("kind");
  OutputSpec spec;
  for (const OutputKind* const kind : kKinds) {
    if (kind->name == name) spec.kind = kind;
  }
  if (spec.kind == nullptr)
    throw EngineError("internal", "No output is of the kind \"" + name + "\".");
  spec.tensor = output.Text("tensor");
  spec.activation =
      output.OneOf<Activation>("activation", {{"none", Activation::kNone},
                                              {"sigmoid", Activation::kSigmoid},
                                              {"softmax", Activation::kSoftmax},
                                              {"argmax", Activation::kArgmax},
                                              {"label_map", Activation::kLabelMap},
                                              {"prototypes", Activation::kPrototypes}});
  spec.labels = output.Int("labels");
  spec.thresholds = output.Numbers("thresholds");
  spec.input = static_cast<size_t>(output.Int("input"));
  spec.kind->read(output, spec);
  return spec;
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
