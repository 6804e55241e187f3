#include "engine/canary.h"

#include <cmath>
#include <cstring>
#include <string>

#include "base/error.h"

namespace radserve {
namespace {

/// Two that are no numbers are equal, one alone never is.
bool Near(float expected, float found, const Canary& canary) {
  if (expected == found || (std::isnan(expected) && std::isnan(found))) return true;
  return std::fabs(double{expected} - double{found}) <=
         canary.absolute + canary.relative * std::fabs(double{expected});
}

size_t CountOutside(const Tensor& expected, const Tensor& found, const Canary& canary) {
  if (std::memcmp(expected.data, found.data, expected.Bytes()) == 0) return 0;
  const std::vector<float> wanted = AsFloats(expected);
  const std::vector<float> values = AsFloats(found);
  size_t outside = 0;
  for (size_t i = 0; i < wanted.size(); ++i) outside += Near(wanted[i], values[i], canary) ? 0 : 1;
  return outside;
}

}  // namespace

void CheckCanary(const Session& session, const Canary& canary) {
  std::vector<std::string> names;
  for (const Tensor& expected : canary.expected) names.push_back(expected.name);
  const std::vector<Tensor> outputs = session.Run(canary.feeds, names, true, {});
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& expected = canary.expected[i];
    const bool alike = expected.dtype == outputs[i].dtype && expected.shape == outputs[i].shape;
    const size_t outside = alike ? CountOutside(expected, outputs[i], canary) : expected.Elements();
    if (outside == 0) continue;
    throw EngineError(
        "model_unavailable",
        "The canary's output \"" + expected.name + "\" is wrong now that the model came back: " +
            std::to_string(outside) + " of " + std::to_string(expected.Elements()) +
            " elements are outside of its tolerance. Look at the driver and the machine, then run "
            "radserve models reload or restart the server.");
  }
}

}  // namespace radserve
