#include "postprocess/projection.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/simd.h"
#include "postprocess/activation.h"
#include "resample/column_filter.h"

namespace radserve {
namespace {

/// Of a sample, or of pixels, that only computing can tell.
constexpr uint16_t kOpen = 0xffff;
/// Knowing labels pays where so many pixels come from one sample.
constexpr size_t kLeastPixels = 4;
/// Probabilities are at most so great (CheckProbabilities).
constexpr float kMostProbable = 1.01F;
/// Sums of greater numbers could overflow.
constexpr float kMostPrecise = 1e30F;
/// For thresholds so far from 0 and 1 rounding moves a sigmoid by less than logits that differ by
/// kSigmoidRounding.
constexpr double kLeastLogit = 1e-3;
constexpr double kSigmoidRounding = 1e-2;
/// Cells between open ones that are cheaper computed with them.
constexpr size_t kBridge = 4;
/// The labels of what is below a threshold, and of the rest.
constexpr std::array<uint8_t, 2> kBelowOrOver = {0, 1};

/// Pixels of a row that are known to be the same (see Decider), or are open, as cells [begin, end)
/// of the column filter.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  uint16_t known = kOpen;
};

/// How far rounding can take an interpolated value from the mean of its samples that the exact
/// weights give. Weights of up to n samples are positive, sum to 1, and each is rounded once;
/// products and sums add a rounding each: at most n + 1 relative errors of 2^-24 along an axis
/// (Higham 2002, section 3.1), here taken double. The last summand is for numbers too small to be
/// precise.
double RoundingBound(const PlaneSampler& sampler, float magnitude) {
  int most = 1;
  for (const int count : sampler.rows().count) most = std::max(most, count);
  int widest = 1;
  for (const ColumnFilter::Cell& cell : sampler.columns().cells())
    widest = std::max(widest, cell.count);
  return std::ldexp(static_cast<double>(magnitude) * (most + widest + 2), -23) + 1e-30;
}

/// The least float that is at or above `value`: floats compare with it as they do with `value`. NaN
/// for NaN.
float CeilToFloat(double value) {
  const auto nearest = static_cast<float>(value);
  const bool below = static_cast<double>(nearest) < value;
  return below ? std::nextafterf(nearest, std::numeric_limits<float>::infinity()) : nearest;
}

RADSERVE_HOT_LOOP void LabelByThreshold(const float* __restrict values, size_t count, float low,
                                        float high, uint16_t* __restrict labels) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t open = values[i] >= low ? kOpen : 0;
    labels[i] = values[i] >= high ? 1 : open;
  }
}

/// Where both are known to be the same, that; else open.
RADSERVE_HOT_LOOP void Agree(const uint16_t* __restrict known, size_t count,
                             uint16_t* __restrict common) {
  for (size_t i = 0; i < count; ++i) common[i] = common[i] == known[i] ? common[i] : kOpen;
}

/// Decides the rows of one plane of labels, from what is known of the map's samples: which of
/// several each of them is, and `labels` has the label of each. Between samples of two channels a
/// third may be the highest, also where those two have one label.
class Decider {
 public:
  /// `known` is empty where nothing is known.
  Decider(const PlaneSampler& sampler, size_t map_columns, std::vector<uint16_t> known,
          std::span<const uint8_t> labels)
      : sampler_(sampler),
        map_columns_(map_columns),
        known_(std::move(known)),
        labels_(labels),
        line_(sampler.columns().outputs()) {}

  /// Calls `compute(y, span, line)` for what is open, and appends the plane's rows.
  template <typename Compute>
  void Decide(const Compute& compute, std::vector<uint8_t>& mask) {
    const Taps& rows = sampler_.rows();
    for (size_t y = 0; y < rows.size(); ++y) {
      const bool same =
          y > 0 && rows.first[y] == rows.first[y - 1] && rows.count[y] == rows.count[y - 1];
      if (!same) FindSpans(rows.first[y], rows.count[y]);
      for (const Span& span : spans_) {
        if (span.known == kOpen) {
          compute(static_cast<int>(y), span, line_.data());
        } else if (!same) {
          Fill(span);
        }
      }
      mask.insert(mask.end(), line_.begin(), line_.end());
    }
  }

 private:
  void Fill(const Span& span) {
    const auto& cells = sampler_.columns().cells();
    std::fill(line_.begin() + cells[span.begin].begin, line_.begin() + cells[span.end - 1].end,
              labels_[span.known]);
  }

  /// What the samples of a cell agree on.
  uint16_t KnownOf(const ColumnFilter::Cell& cell) const {
    const uint16_t* known = common_.data() + cell.first;
    for (int k = 1; k < cell.count; ++k) {
      if (known[k] != known[0]) return kOpen;
    }
    return known[0];
  }

  /// Finds the spans of the output rows that take the map's rows [first, first + count).
  void FindSpans(int first, int count) {
    const auto& cells = sampler_.columns().cells();
    spans_.clear();
    if (known_.empty()) {
      spans_.push_back({0, cells.size(), kOpen});
      return;
    }
    const auto row = [&](int y) { return known_.data() + static_cast<size_t>(y) * map_columns_; };
    common_.assign(row(first), row(first) + map_columns_);
    for (int k = 1; k < count; ++k) Agree(row(first + k), map_columns_, common_.data());
    for (size_t i = 0; i < cells.size(); ++i) Append(i, KnownOf(cells[i]));
  }

  void Append(size_t cell, uint16_t known) {
    if (!spans_.empty() && spans_.back().known == known) {
      spans_.back().end = cell + 1;
      return;
    }
    const size_t count = spans_.size();
    const bool bridge = known == kOpen && count >= 2 && spans_[count - 2].known == kOpen &&
                        spans_[count - 1].end - spans_[count - 1].begin <= kBridge;
    if (bridge) {
      spans_.pop_back();
      spans_.back().end = cell + 1;
    } else {
      spans_.push_back({cell, cell + 1, known});
    }
  }

  const PlaneSampler& sampler_;
  size_t map_columns_;
  /// For each sample of the map which it is, or kOpen.
  std::vector<uint16_t> known_;
  std::span<const uint8_t> labels_;
  std::vector<uint16_t> common_;
  std::vector<Span> spans_;
  /// The row last decided; known labels stay in it while the spans do.
  std::vector<uint8_t> line_;
};

/// The pixels of a span: [begin, end).
struct Pixels {
  size_t begin;
  size_t end;
};

Pixels PixelsOf(const PlaneSampler& sampler, const Span& span) {
  const auto& cells = sampler.columns().cells();
  return {static_cast<size_t>(cells[span.begin].begin),
          static_cast<size_t>(cells[span.end - 1].end)};
}

bool IsLarger(const PlaneSampler& sampler, const Maps& maps) {
  return sampler.rows().size() * sampler.columns().outputs() >= kLeastPixels * maps.pixels();
}

/// The greatest magnitude. Floats without their sign are in the order of their bits.
RADSERVE_HOT_LOOP float Magnitude(const float* values, size_t count) {
  uint32_t most = 0;
  for (size_t i = 0; i < count; ++i)
    most = std::max(most, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
  return std::bit_cast<float>(most);
}

/// Which samples are 1, of those that are no nearer to the threshold than rounding can take what is
/// interpolated from them; empty where that cannot be told.
std::vector<uint16_t> KnownByThreshold(const PlaneSampler& sampler, const Maps& maps,
                                       size_t channel, Activation last, double given) {
  // The threshold that ToMask compares with
  double threshold = static_cast<float>(given);
  double bound = RoundingBound(sampler, kMostProbable);
  if (last == Activation::kSigmoid) {
    const float magnitude = Magnitude(maps.Channel(channel), maps.pixels());
    if (magnitude > kMostPrecise || threshold < kLeastLogit || threshold > 1 - kLeastLogit)
      return {};
    bound = RoundingBound(sampler, magnitude) + kSigmoidRounding;
    threshold = std::log(threshold / (1 - threshold));
  }
  std::vector<uint16_t> known(maps.pixels());
  LabelByThreshold(maps.Channel(channel), known.size(), CeilToFloat(threshold - bound),
                   CeilToFloat(threshold + bound), known.data());
  return known;
}

RADSERVE_HOT_LOOP void TakeHighest(const float* __restrict values, size_t count, uint16_t channel,
                                   float* __restrict best, float* __restrict second,
                                   uint16_t* __restrict channels) {
  for (size_t i = 0; i < count; ++i) {
    const float lower = values[i] < best[i] ? values[i] : best[i];
    channels[i] = values[i] > best[i] ? channel : channels[i];
    best[i] = values[i] > best[i] ? values[i] : best[i];
    second[i] = lower > second[i] ? lower : second[i];
  }
}

/// The highest channel of each sample, where it is higher than any other by more than rounding can
/// undo; empty where that cannot be told.
std::vector<uint16_t> KnownHighest(const PlaneSampler& sampler, const Maps& maps) {
  const float magnitude = Magnitude(maps.values().data(), maps.values().size());
  if (magnitude > kMostPrecise || maps.channels() > kOpen) return {};
  const double bound = 2 * RoundingBound(sampler, magnitude);
  std::vector<uint16_t> known(maps.pixels(), 0);
  std::vector<float> best(maps.Channel(0), maps.Channel(0) + maps.pixels());
  std::vector<float> second(maps.pixels(), -2 * kMostPrecise);
  for (size_t c = 1; c < maps.channels(); ++c) {
    TakeHighest(maps.Channel(c), known.size(), static_cast<uint16_t>(c), best.data(), second.data(),
                known.data());
  }
  for (size_t i = 0; i < known.size(); ++i) {
    if (static_cast<double>(best[i]) - static_cast<double>(second[i]) <= bound) known[i] = kOpen;
  }
  return known;
}

}  // namespace

void ProjectOverThresholds(const Maps& maps, const Axis& rows, const Axis& columns, Activation last,
                           std::span<const double> thresholds, std::vector<uint8_t>& mask,
                           std::vector<uint8_t>* fractions) {
  PlaneSampler sampler(rows, columns);
  const size_t pixels = maps.channels() * sampler.rows().size() * sampler.columns().outputs();
  mask.reserve(pixels);
  if (fractions != nullptr) fractions->reserve(pixels);
  const bool look = fractions == nullptr && IsLarger(sampler, maps);
  std::vector<uint8_t> steps(fractions == nullptr ? 0 : sampler.columns().outputs());
  std::vector<float> activated(last == Activation::kSigmoid ? sampler.columns().outputs() : 0);
  for (size_t c = 0; c < maps.channels(); ++c) {
    std::vector<uint16_t> known;
    if (look) known = KnownByThreshold(sampler, maps, c, last, thresholds[c]);
    Decider decider(sampler, static_cast<size_t>(maps.columns()), std::move(known), kBelowOrOver);
    const auto compute = [&](int y, const Span& span, uint8_t* line) {
      const auto [begin, end] = PixelsOf(sampler, span);
      const float* row = sampler.Row(maps.Channel(c), y, span.begin, span.end);
      if (!activated.empty()) {
        std::copy(row + begin, row + end, activated.begin() + static_cast<ptrdiff_t>(begin));
        Sigmoid(std::span(activated).subspan(begin, end - begin));
        row = activated.data();
      }
      ToMask({row + begin, row + end}, thresholds[c], line + begin);
      if (fractions == nullptr) return;
      ToSteps({row, steps.size()}, steps.data());
      fractions->insert(fractions->end(), steps.begin(), steps.end());
    };
    decider.Decide(compute, mask);
  }
}

void ProjectHighest(const Maps& maps, const Axis& rows, const Axis& columns, Activation last,
                    std::span<const uint8_t> labels, std::vector<uint8_t>& mask,
                    std::vector<uint8_t>* fractions) {
  PlaneSampler sampler(rows, columns);
  const size_t width = sampler.columns().outputs();
  const size_t plane = sampler.rows().size() * width;
  mask.reserve(plane);
  const bool look = fractions == nullptr && IsLarger(sampler, maps);
  if (fractions != nullptr) fractions->resize((maps.channels() - 1) * plane);
  std::vector<uint16_t> known;
  if (look) known = KnownHighest(sampler, maps);
  Decider decider(sampler, static_cast<size_t>(maps.columns()), std::move(known), labels);
  std::vector<float> best(width);
  // A row of all channels, whose softmax is shown.
  std::vector<float> row_of_all(
      fractions == nullptr || last != Activation::kSoftmax ? 0 : maps.channels() * width);
  const auto show = [&](size_t channel, int y, const float* row) {
    ToSteps({row, width},
            fractions->data() + (channel - 1) * plane + static_cast<size_t>(y) * width);
  };
  const auto compute = [&](int y, const Span& span, uint8_t* line) {
    const auto [begin, end] = PixelsOf(sampler, span);
    std::fill(line + begin, line + end, labels.front());
    for (size_t c = 0; c < maps.channels(); ++c) {
      const float* row = sampler.Row(maps.Channel(c), y, span.begin, span.end);
      if (!row_of_all.empty())
        std::copy_n(row, width, row_of_all.begin() + static_cast<ptrdiff_t>(c * width));
      if (c == 0) {
        std::copy(row + begin, row + end, best.begin() + static_cast<ptrdiff_t>(begin));
        continue;
      }
      TakeHigher({row + begin, row + end}, labels[c], best.data() + begin, line + begin);
      if (fractions != nullptr && row_of_all.empty()) show(c, y, row);
    }
    if (row_of_all.empty()) return;
    SoftmaxPlanes(row_of_all, width);
    for (size_t c = 1; c < maps.channels(); ++c) show(c, y, row_of_all.data() + c * width);
  };
  decider.Decide(compute, mask);
}

std::vector<uint8_t> ProjectNearest(std::vector<uint8_t> labels, const Axis& rows,
                                    const Axis& columns) {
  const Taps lines = MakeTaps(rows, Interpolation::kNearest);
  const Taps taps = MakeTaps(columns, Interpolation::kNearest);
  const auto all = [](const Taps& nearest, int inputs) {
    return nearest.size() == static_cast<size_t>(inputs) && CopiesFrom(nearest) == 0;
  };
  if (all(lines, rows.input) && all(taps, columns.input)) return labels;
  std::vector<uint8_t> mask;
  mask.reserve(lines.size() * taps.size());
  std::vector<uint8_t> line(taps.size());
  for (size_t y = 0; y < lines.size(); ++y) {
    if (y == 0 || lines.first[y] != lines.first[y - 1]) {
      const uint8_t* in = labels.data() + static_cast<ptrdiff_t>(lines.first[y]) * columns.input;
      for (size_t x = 0; x < line.size(); ++x) line[x] = in[taps.first[x]];
    }
    mask.insert(mask.end(), line.begin(), line.end());
  }
  return mask;
}

}  // namespace radserve
