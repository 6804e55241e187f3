#include "postprocess/activation.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

std::vector<float> Regression(const OutputSpec& spec, const Tensor& tensor) {
  if (tensor.Elements() != spec.multiply.size()) {
    InvalidOutput(tensor, std::to_string(spec.multiply.size()) + " values");
  }
  std::vector<float> values = AsFloats(tensor);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<double>(values[i]) * spec.multiply[i] + spec.add[i]);
  }
  CheckFinite(values, tensor.name);
  return values;
}

}  // namespace

const OutputKind kRegression = {
    .name = "regression",
    .gives = "regression",
    .values = "values",
    .read =
        [](const Description& own, OutputSpec& spec) {
          spec.multiply = own.Numbers("multiply");
          spec.add = own.Numbers("add");
        },
    .decode = [](const OutputSpec& spec, const TensorByName& tensors, const SourceGrid&,
                 std::span<const double>,
                 OutputResult& out) { out.values = Regression(spec, tensors(spec.tensor)); },
};

}  // namespace radserve
