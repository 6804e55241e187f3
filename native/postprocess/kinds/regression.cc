#include <any>
#include <string>
#include <vector>

#include "postprocess/activation.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

/// value * multiply + add
struct Scales {
  std::vector<double> multiply, add;
};

std::vector<float> Regression(const OutputSpec& spec, const Tensor& tensor) {
  const auto& [multiply, add] = std::any_cast<const Scales&>(spec.own);
  if (tensor.Elements() != multiply.size())
    InvalidOutput(tensor, std::to_string(multiply.size()) + " values");
  std::vector<float> values = AsFloats(tensor);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<double>(values[i]) * multiply[i] + add[i]);
  }
  CheckFinite(values, tensor.name);
  return values;
}

}  // namespace

const OutputKind kinds::regression = {
    .name = "regression",
    .gives = "regression",
    .values = "values",
    .read =
        [](const Description& own, OutputSpec& spec) {
          spec.own = Scales{own.Numbers("multiply"), own.Numbers("add")};
        },
    .decode = [](const OutputSpec& spec, const TensorByName& tensors, const SourceGrid&,
                 std::span<const double>,
                 OutputResult& out) { out.values = Regression(spec, tensors(spec.tensor)); },
};

}  // namespace radserve
