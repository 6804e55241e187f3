#include <array>

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
  if (spec.kind == nullptr) throw EngineError("internal", "No output is of the kind \"" + name + "\".");
  spec.tensor = output.Text("tensor");
  spec.activation = output.OneOf<Activation>("activation", {{"none", Activation::kNone},
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

}  // namespace radserve
