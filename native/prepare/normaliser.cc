#include "prepare/normaliser.h"

namespace radserve {
namespace {

double Inverse(double span) { return span > 0 ? 1 / span : 0; }

void Set(Normaliser& n, size_t channels, double subtract, double multiply, double add) {
  n.subtract.assign(channels, subtract);
  n.multiply.assign(channels, multiply);
  n.add.assign(channels, add);
}

}  // namespace

Normaliser MakeNormaliser(const NormalisationSpec& spec, int channel_count,
                          const std::function<Statistics(double low, double high)>& measure) {
  using Kind = NormalisationSpec::Kind;
  Normaliser n;
  const auto channels = static_cast<size_t>(channel_count);
  Set(n, channels, 0, 1, 0);
  switch (spec.kind) {
    case Kind::kNone:
      break;
    case Kind::kScale:
      Set(n, channels, 0, spec.multiply, spec.add);
      break;
    case Kind::kMeanStd:
      for (size_t c = 0; c < channels; ++c) {
        n.subtract[c] = spec.mean[spec.mean.size() == 1 ? 0 : c];
        n.multiply[c] = 1 / spec.std[spec.std.size() == 1 ? 0 : c];
      }
      break;
    case Kind::kMinMax: {
      const Statistics s = measure(0, 100);
      n.found = s;
      Set(n, channels, s.min, (spec.to[1] - spec.to[0]) * Inverse(s.max - s.min), spec.to[0]);
      break;
    }
    case Kind::kZScore: {
      const Statistics s = measure(0, 100);
      n.found = s;
      Set(n, channels, s.mean, Inverse(s.std), 0);
      break;
    }
    case Kind::kPercentile: {
      const Statistics s = measure(spec.low, spec.high);
      n.found = s;
      Set(n, channels, s.low, (spec.to[1] - spec.to[0]) * Inverse(s.high - s.low), spec.to[0]);
      break;
    }
  }
  return n;
}

}  // namespace radserve
