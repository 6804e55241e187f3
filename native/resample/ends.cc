#include "resample/ends.h"

#include <algorithm>
#include <cmath>

namespace radserve {
namespace {

/// The input at which an output lies. A single output is the first input.
double InputOf(int i, int input, int output) {
  return std::min(i * EndsStep(input, output), input - 1.0);
}

}  // namespace

double EndsStep(int input, int output) {
  return output == 1 ? 1 : static_cast<double>(input - 1) / (output - 1);
}

std::vector<EndsTap> MakeEndsTaps(int input, int output) {
  std::vector<EndsTap> taps(static_cast<size_t>(output));
  for (int i = 0; i < output; ++i) {
    EndsTap& tap = taps[static_cast<size_t>(i)];
    const double at = InputOf(i, input, output);
    tap.low = static_cast<int>(std::floor(at));
    // Beside the last input the other weight is 0.
    tap.high = std::min(tap.low + 1, input - 1);
    tap.low_weight = 1 - (at - std::floor(at));
    // Not the same bits as at - floor(at); scipy has it so.
    tap.high_weight = 1 - tap.low_weight;
  }
  return taps;
}

int NearestByEnds(int i, int input, int output) {
  return static_cast<int>(std::floor(InputOf(i, input, output) + 0.5));
}

}  // namespace radserve
