#include <algorithm>
#include <cmath>
#include <vector>

#include "postprocess/activation.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

struct CalibrationSpec {
  enum class Kind { kNone, kTemperature, kPlatt, kIsotonic } kind = Kind::kNone;
  double temperature = 1;
  double a = 0;
  double b = 0;
  std::vector<double> x, y;
};

CalibrationSpec ReadCalibration(const Description& o) {
  using Kind = CalibrationSpec::Kind;
  CalibrationSpec c;
  c.kind = o.OneOf<Kind>("kind", {{"none", Kind::kNone},
                                  {"temperature", Kind::kTemperature},
                                  {"platt", Kind::kPlatt},
                                  {"isotonic", Kind::kIsotonic}});
  if (c.kind == Kind::kTemperature) c.temperature = o.Number("temperature");
  if (c.kind == Kind::kPlatt) o.Into("a", c.a, "b", c.b);
  if (c.kind == Kind::kIsotonic) o.Into("x", c.x, "y", c.y);
  return c;
}

struct ClassificationSpec {
  CalibrationSpec calibration;
  /// The label with the highest score is present, instead of each that reaches its threshold.
  bool highest = false;
};

double Isotonic(const CalibrationSpec& c, double score) {
  if (score <= c.x.front()) return c.y.front();
  if (score >= c.x.back()) return c.y.back();
  const auto above =
      static_cast<size_t>(std::upper_bound(c.x.begin(), c.x.end(), score) - c.x.begin());
  const double span = c.x[above] - c.x[above - 1];
  const double part = span > 0 ? (score - c.x[above - 1]) / span : 1;
  return c.y[above - 1] + (c.y[above] - c.y[above - 1]) * part;
}

float Calibrated(const CalibrationSpec& c, float score) {
  switch (c.kind) {
    case CalibrationSpec::Kind::kPlatt:
      return static_cast<float>(1 / (1 + std::exp(c.a * static_cast<double>(score) + c.b)));
    case CalibrationSpec::Kind::kIsotonic:
      return static_cast<float>(Isotonic(c, static_cast<double>(score)));
    default:
      return score;
  }
}

std::vector<float> Scores(const OutputSpec& spec, const Tensor& tensor) {
  const auto& [calibration, highest] = spec.Own<ClassificationSpec>();
  if (tensor.Elements() != spec.Columns()) {
    InvalidOutput(tensor, std::to_string(spec.Columns()) + " scores, one for each label,");
  }
  if (highest && ClassesOf(tensor.shape) != spec.Columns()) {
    InvalidOutput(tensor, "one group of " + std::to_string(spec.Columns()) +
                              " scores, of which the highest decides,");
  }
  std::vector<float> scores = AsFloats(tensor);
  CheckFinite(scores, tensor.name);
  if (calibration.kind == CalibrationSpec::Kind::kTemperature) {
    for (float& s : scores)
      s = static_cast<float>(static_cast<double>(s) / calibration.temperature);
  }
  if (spec.activation == Activation::kSigmoid) Sigmoid(scores);
  if (spec.activation == Activation::kSoftmax) SoftmaxOfScores(scores, tensor.shape, scores.size());
  // What is no number has no place among those of a calibration, which would make one of it.
  CheckFinite(scores, tensor.name);
  for (float& s : scores) s = Calibrated(calibration, s);
  DropIgnored(spec, scores);
  return scores;
}

}  // namespace

const OutputKind kinds::classification = {
    .name = "classification",
    .gives = "classification",
    .values = "scores",
    .read =
        [](const Description& own, OutputSpec& spec) {
          spec.Set<ClassificationSpec>() = {
              ReadCalibration(own.Child("calibration")),
              own.Has("decision") && own.Text("decision") == "highest"};
        },
    .decode = [](const OutputSpec& spec, const TensorByName& tensors, const SourceGrid&,
                 std::span<const double>,
                 OutputResult& out) { out.values = Scores(spec, tensors(spec.tensor)); },
};

}  // namespace radserve
