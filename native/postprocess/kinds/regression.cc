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

void ReadScales(const Description& output, OutputSpec& spec) {
  auto& [multiply, add] = spec.Set<Scales>();
  for (const Description& value : output.Child("values").Get<Description::Items>("values")) {
    // The scores of bins come as they are; what is made of their mean is the value.
    const size_t bins = value.Has("bins") ? value.Count("bins") : 0;
    multiply.insert(multiply.end(), bins > 0 ? bins : 1, bins > 0 ? 1 : value.Number("multiply"));
    add.insert(add.end(), bins > 0 ? bins : 1, bins > 0 ? 0 : value.Number("add"));
  }
}

std::vector<float> Regression(const OutputSpec& spec, const Tensor& tensor) {
  const auto& [multiply, add] = spec.Own<Scales>();
  const size_t count = multiply.size() + spec.ignored.size();
  if (tensor.Elements() != count) InvalidOutput(tensor, std::to_string(count) + " values");
  std::vector<float> values = AsFloats(tensor);
  DropIgnored(spec, values);
  CheckFinite(values, tensor.name);
  if (spec.activation == Activation::kSoftmax) SoftmaxOfScores(values, tensor.shape, values.size());
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
    .read = ReadScales,
    .decode = [](const OutputSpec& spec, const TensorByName& tensors, const SourceGrid&,
                 std::span<const double>,
                 OutputResult& out) { out.values = Regression(spec, tensors(spec.tensor)); },
};

}  // namespace radserve
