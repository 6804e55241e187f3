#include "resample/resample.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ranges>
#include <utility>

#include "base/simd.h"
#include "resample/column_filter.h"

namespace radserve {
namespace {

double Triangle(double x) { return std::max(0.0, 1 - std::fabs(x)); }

double Keys(double x, double a) {
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

/// Weight of input pixel j for the output whose centre lies at `centre`.
double Weight(Interpolation interpolation, double scale, double centre, int j) {
  const double stretch = std::max(1.0, scale);
  switch (interpolation) {
    case Interpolation::kArea:
      return std::max(
          0.0, std::min(centre + scale / 2, j + 1.0) - std::max(centre - scale / 2, j + 0.0));
    case Interpolation::kAdaptiveArea:
      return 1;
    case Interpolation::kCubic:
      return Keys((j + 0.5 - centre) / stretch, -0.5);
    default:
      return Triangle((j + 0.5 - centre) / stretch);
  }
}

/// The run of input pixels [first, second) that can have weight. Both ends only grow with the
/// centre, whatever the weights are, because Resample gives up a row once the next one begins.
std::pair<int, int> Reach(Interpolation interpolation, double scale, double centre) {
  if (interpolation == Interpolation::kNearest) {
    const int under = static_cast<int>(std::floor(centre));
    return {under, under + 1};
  }
  if (interpolation == Interpolation::kAdaptiveArea) {
    // Rounding must not touch one more.
    constexpr double kEdge = 1e-9;
    return {static_cast<int>(std::floor(centre - scale / 2 + kEdge)),
            static_cast<int>(std::ceil(centre + scale / 2 - kEdge))};
  }
  if (interpolation == Interpolation::kArea) {
    return {static_cast<int>(std::floor(centre - scale / 2)),
            static_cast<int>(std::ceil(centre + scale / 2))};
  }
  const double support = std::max(1.0, scale) * (interpolation == Interpolation::kCubic ? 2 : 1);
  return {static_cast<int>(std::ceil(centre - support - 0.5)),
          static_cast<int>(std::floor(centre + support - 0.5)) + 1};
}

RADSERVE_HOT_LOOP void AddScaled(float* __restrict accumulator, const float* __restrict row,
                                 float weight, int count) {
  for (int i = 0; i < count; ++i) accumulator[i] += row[i] * weight;
}

RADSERVE_HOT_LOOP void SetScaled(float* __restrict accumulator, const float* __restrict row,
                                 float weight, int count) {
  for (int i = 0; i < count; ++i) accumulator[i] = row[i] * weight;
}

/// Returns true if every output is the mean of its own two inputs: halving by area.
bool IsHalving(const Taps& taps) {
  return WholeStride(taps) == 2 &&
         std::ranges::all_of(taps.weights, [](float weight) { return weight == 0.5F; });
}

/// The result of SetScaled, AddScaled and ColumnFilter for halving, to the bit: a half and a
/// quarter are exact.
RADSERVE_HOT_LOOP void MeanOfFour(const float* __restrict above, const float* __restrict below,
                                  size_t count, float* __restrict out) {
  for (size_t x = 0; x < count; ++x) {
    const float left = above[2 * x] + below[2 * x];
    const float right = above[2 * x + 1] + below[2 * x + 1];
    out[x] = (left + right) * 0.25F;
  }
}

/// The most output rows that one input row takes part in.
size_t MostOpen(const Taps& rows) {
  size_t most = 1;
  for (size_t first = 0, last = 0; last < rows.size(); ++last) {
    while (rows.first[first] + rows.count[first] <= rows.first[last]) ++first;
    most = std::max(most, last - first + 1);
  }
  return most;
}

/// Rows of floats, one block of memory.
class RowBlock {
 public:
  RowBlock(size_t rows, size_t width) : data_(rows * width), rows_(rows) {
    for (size_t i = 0; i < rows; ++i) rows_[i] = data_.data() + i * width;
  }
  float* const* Rows() const { return rows_.data(); }

 private:
  std::vector<float> data_;
  std::vector<float*> rows_;
};

/// The weights of two or four inputs from `first` on; the border counts for what is beyond it.
std::vector<double> SampledWeights(const Axis& axis, Interpolation interpolation, double centre,
                                   int& first) {
  const bool cubic = interpolation == Interpolation::kCubic;
  const double at = cubic ? centre - 0.5 : std::clamp(centre - 0.5, 0.0, axis.input - 1.0);
  const int low = static_cast<int>(std::floor(at)) - (cubic ? 1 : 0);
  const int high = low + (cubic ? 3 : 1);
  first = std::clamp(low, 0, axis.input - 1);
  std::vector<double> weights(static_cast<size_t>(std::clamp(high, 0, axis.input - 1) - first + 1));
  for (int j = low; j <= high; ++j) {
    weights[static_cast<size_t>(std::clamp(j, 0, axis.input - 1) - first)] +=
        cubic ? Keys(j - at, -0.75) : Triangle(j - at);
  }
  return weights;
}

/// The input under the first edge of output `i`. Where the outputs are those of a whole image (or
/// some of them), the steps are OpenCV's, whose rounding decides where an edge lies on an edge.
int UnderFirstEdge(const Axis& axis, int i) {
  constexpr double kWhole = 1e-6;
  const double outputs = axis.input / axis.scale;
  const double before = axis.offset / axis.scale;
  const auto whole = [](double value) { return std::fabs(value - std::round(value)) < kWhole; };
  const double at = whole(outputs) && whole(before)
                        ? (std::round(before) + i) * (1 / (std::round(outputs) / axis.input))
                        : axis.offset + i * axis.scale;
  return std::clamp(static_cast<int>(std::floor(at)), 0, axis.input - 1);
}

void AddScaledToOne(Taps& taps, int first, const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto part = [sum](double weight) { return static_cast<float>(weight / sum); };
  taps.Add(first, weights | std::views::transform(part));
}

}  // namespace

Taps Taps::Part(size_t begin, size_t end) const {
  Taps part;
  for (size_t i = begin; i < end; ++i) part.Add(first[i], WeightsOf(i));
  return part;
}

Taps MakeTaps(const Axis& axis, Interpolation interpolation) {
  if (interpolation == Interpolation::kDisplay) {
    interpolation = axis.scale > 1 ? Interpolation::kArea : Interpolation::kLinear;
  }
  const bool sampled = !axis.antialias && (interpolation == Interpolation::kLinear ||
                                           interpolation == Interpolation::kCubic);
  Taps taps;
  std::vector<double> weights;
  for (int i = 0; i < axis.output; ++i) {
    if (interpolation == Interpolation::kNearestFloor) {
      AddScaledToOne(taps, UnderFirstEdge(axis, i), {1});
      continue;
    }
    // An output outside the input (outside a crop, on the way back) repeats the border.
    const double centre = std::clamp(axis.offset + (i + 0.5) * axis.scale, 0.0, 0.0 + axis.input);
    const auto [low, high] = Reach(interpolation, axis.scale, centre);
    int first = std::clamp(low, 0, axis.input - 1);
    const int end = std::clamp(high, first + 1, axis.input);
    weights.assign(1, 1.0);
    if (sampled) {
      weights = SampledWeights(axis, interpolation, axis.offset + (i + 0.5) * axis.scale, first);
    } else if (interpolation != Interpolation::kNearest) {
      weights.clear();
      for (int j = first; j < end; ++j)
        weights.push_back(Weight(interpolation, axis.scale, centre, j));
    }
    AddScaledToOne(taps, first, weights);
  }
  return taps;
}

namespace {

/// Samples beyond each edge that carry the outermost one on before the cubic spline is fitted.
constexpr int kSplinePadding = 12;
/// Inputs to each side that have weight: 0.268^15 is less than 1e-8.
constexpr int kSplineReach = 15;

/// The weights of padded samples [low, low + size) on the spline at `at`, of which sample number
/// `under` is the last one that is not beyond it: the inverse of the matrix that makes samples of
/// coefficients (1/6, 4/6, 1/6; mirrored at both ends of `padded` samples), times the four basis
/// functions. The matrix is symmetric, so one system is solved.
std::vector<double> CubicWeights(double at, int under, int low, int size, int padded) {
  const double t = at - under;
  const std::array<double, 4> basis = {(1 - t) * (1 - t) * (1 - t) / 6,
                                       (4 - 6 * t * t + 3 * t * t * t) / 6,
                                       (1 + 3 * t + 3 * t * t - 3 * t * t * t) / 6, t * t * t / 6};
  const auto count = static_cast<size_t>(size);
  std::vector<double> right(count);
  for (int k = 0; k < 4; ++k) {
    const int sample = std::clamp(under - 1 + k, 0, padded - 1) - low;
    right[static_cast<size_t>(std::clamp(sample, 0, size - 1))] += basis[static_cast<size_t>(k)];
  }
  std::vector<double> above(count);
  for (size_t i = 0; i < count; ++i) {
    const int sample = low + static_cast<int>(i);
    const double diagonal = (4.0 + (sample == 0 ? 1 : 0) + (sample == padded - 1 ? 1 : 0)) / 6;
    const double pivot = diagonal - (i == 0 ? 0 : above[i - 1] / 6);
    above[i] = 1.0 / 6 / pivot;
    right[i] = (right[i] - (i == 0 ? 0 : right[i - 1] / 6)) / pivot;
  }
  for (size_t i = count - 1; i-- > 0;) right[i] -= above[i] * right[i + 1];
  return right;
}

/// Weights of the inputs [first, first + size of the answer).
std::vector<double> CubicTaps(double at, int input, int& first) {
  const int padded = input + 2 * kSplinePadding;
  const double along = at + kSplinePadding;
  const int under = static_cast<int>(std::floor(along));
  // Twice the reach is solved, so that where the system is cut off does not show.
  const int low = std::max(0, under - 2 * kSplineReach);
  const int high = std::min(padded, under + 2 * kSplineReach + 2);
  const std::vector<double> all = CubicWeights(along, under, low, high - low, padded);
  const int from = std::clamp(under - kSplineReach - kSplinePadding, 0, input - 1);
  const int end = std::clamp(under + kSplineReach + 2 - kSplinePadding, from + 1, input);
  std::vector<double> weights(static_cast<size_t>(end - from));
  for (int sample = low; sample < high; ++sample) {
    const int of = std::clamp(sample - kSplinePadding, 0, input - 1);
    if (of >= from && of < end)
      weights[static_cast<size_t>(of - from)] += all[static_cast<size_t>(sample - low)];
  }
  first = from;
  return weights;
}

}  // namespace

Taps MakeSplineTaps(const Axis& axis, int order, int before) {
  Taps taps;
  const bool same = axis.scale == 1 && axis.offset == 0;
  for (int i = 0; i < axis.output; ++i) {
    const double at =
        std::clamp(axis.offset + (i - before + 0.5) * axis.scale - 0.5, 0.0, axis.input - 1.0);
    int first = static_cast<int>(std::floor(order == 0 || same ? at + 0.5 : at));
    std::vector<double> weights = {1};
    if (order == 3 && !same)
      weights = CubicTaps(axis.offset + (i - before + 0.5) * axis.scale - 0.5, axis.input, first);
    if (order == 1 && !same && first + 1 < axis.input) weights = {1 - (at - first), at - first};
    AddScaledToOne(taps, first, weights);
  }
  return taps;
}

int CopiesFrom(const Taps& taps) {
  int from = -1;
  for (size_t x = 0; x < taps.size(); ++x) {
    int only = -1;
    for (int k = 0; k < taps.count[x]; ++k) {
      const float weight = taps.weights[taps.start[x] + static_cast<size_t>(k)];
      if (weight == 0) continue;
      if (weight != 1) return -1;
      only = taps.first[x] + k;
    }
    if (x == 0) from = only;
    if (only < 0 || only != from + static_cast<int>(x)) return -1;
  }
  return from;
}

namespace {

Taps Copies(size_t count) {
  Taps taps;
  for (size_t i = 0; i < count; ++i) {
    taps.first.push_back(static_cast<int>(i));
    taps.start.push_back(i);
  }
  taps.count.assign(count, 1);
  taps.weights.assign(count, 1);
  return taps;
}

void Copy(int rows, int first_row, int first_column, int input_columns, int channels,
          const RowSource& source, const RowSink& sink) {
  const size_t planes = static_cast<size_t>(channels);
  const RowBlock input(planes, static_cast<size_t>(input_columns));
  std::vector<const float*> shown(planes);
  for (size_t c = 0; c < planes; ++c) shown[c] = input.Rows()[c] + first_column;
  for (int y = 0; y < rows; ++y) {
    source(first_row + y, input.Rows());
    sink(y, shown.data());
  }
}

void Halve(const Taps& rows, const Taps& columns, int input_columns, int channels,
           const RowSource& source, const RowSink& sink) {
  const size_t planes = static_cast<size_t>(channels);
  const RowBlock above(planes, static_cast<size_t>(input_columns));
  const RowBlock below(planes, static_cast<size_t>(input_columns));
  const RowBlock output(planes, columns.size());
  for (size_t y = 0; y < rows.size(); ++y) {
    source(rows.first[y], above.Rows());
    source(rows.first[y] + 1, below.Rows());
    for (size_t c = 0; c < planes; ++c) {
      const int left = columns.first[0];
      MeanOfFour(above.Rows()[c] + left, below.Rows()[c] + left, columns.size(), output.Rows()[c]);
    }
    sink(static_cast<int>(y), output.Rows());
  }
}

}  // namespace

void Resample(const Taps& rows, const Taps& columns, int input_columns, int channels,
              const RowSource& source, const RowSink& sink) {
  const int first_row = CopiesFrom(rows);
  const int first_column = CopiesFrom(columns);
  if (first_row >= 0 && first_column >= 0) {
    return Copy(static_cast<int>(rows.size()), first_row, first_column, input_columns, channels,
                source, sink);
  }
  if (IsHalving(rows) && IsHalving(columns)) {
    return Halve(rows, columns, input_columns, channels, source, sink);
  }
  const ColumnFilter filter(columns);
  const size_t width = static_cast<size_t>(input_columns);
  const size_t planes = static_cast<size_t>(channels);
  const size_t ring = MostOpen(rows);
  const RowBlock input(planes, width);
  const RowBlock accumulators(ring * planes, width);
  const RowBlock output(planes, columns.size() + ColumnFilter::kSlack);
  size_t done = 0;
  for (int row = rows.size() == 0 ? 0 : rows.first[0]; done < rows.size(); ++row) {
    if (rows.first[done] > row) continue;
    source(row, input.Rows());
    for (size_t y = done; y < rows.size() && rows.first[y] <= row; ++y) {
      const int tap = row - rows.first[y];
      if (tap >= rows.count[y]) continue;
      const float weight = rows.weights[rows.start[y] + static_cast<size_t>(tap)];
      for (size_t c = 0; c < planes; ++c) {
        float* accumulator = accumulators.Rows()[(y % ring) * planes + c];
        (tap == 0 ? SetScaled : AddScaled)(accumulator, input.Rows()[c], weight, input_columns);
      }
    }
    for (; done < rows.size() && rows.first[done] + rows.count[done] <= row + 1; ++done) {
      for (size_t c = 0; c < planes; ++c) {
        filter.Apply(accumulators.Rows()[(done % ring) * planes + c], output.Rows()[c]);
      }
      sink(static_cast<int>(done), output.Rows());
    }
  }
}

void ResampleVolume(const VolumeTaps& taps, int input_columns, int channels,
                    const SliceSource& source, const RowSink& sink) {
  const size_t rows = taps[1].size();
  const size_t columns = taps[2].size();
  const Taps copies = Copies(rows * columns);
  // A plane that has its final rows and columns is one row to the filter along the slices.
  Resample(
      taps[0], copies, static_cast<int>(rows * columns), channels,
      [&](int slice, float* const* planes) {
        const RowSource rows_of_slice = source(slice);
        Resample(taps[1], taps[2], input_columns, channels, rows_of_slice,
                 [&](int row, const float* const* values) {
                   for (int c = 0; c < channels; ++c) {
                     std::copy_n(values[c], columns,
                                 planes[c] + static_cast<size_t>(row) * columns);
                   }
                 });
      },
      sink);
}

std::vector<float> ResamplePlane(const float* plane, const Axis& rows, const Axis& columns,
                                 Interpolation interpolation) {
  std::vector<float> out;
  out.reserve(static_cast<size_t>(rows.output) * static_cast<size_t>(columns.output));
  Resample(
      MakeTaps(rows, interpolation), MakeTaps(columns, interpolation), columns.input, 1,
      [&](int row, float* const* channels) {
        std::copy_n(plane + static_cast<ptrdiff_t>(row) * columns.input, columns.input,
                    channels[0]);
      },
      [&](int, const float* const* channels) {
        out.insert(out.end(), channels[0], channels[0] + columns.output);
      });
  return out;
}

PlaneSampler::PlaneSampler(const Axis& rows, const Axis& columns)
    : rows_(MakeTaps(rows, Interpolation::kLinear)),
      input_columns_(static_cast<size_t>(columns.input)),
      mixed_(input_columns_),
      row_(static_cast<size_t>(columns.output) + ColumnFilter::kSlack) {
  Taps taps = MakeTaps(columns, Interpolation::kLinear);
  copied_row_ = CopiesFrom(rows_);
  copied_column_ = CopiesFrom(taps);
  filter_ = std::make_unique<ColumnFilter>(std::move(taps));
}

PlaneSampler::~PlaneSampler() = default;

const float* PlaneSampler::Row(const float* plane, int y, size_t begin, size_t end) {
  if (copied_row_ >= 0 && copied_column_ >= 0) {
    return plane + static_cast<size_t>(copied_row_ + y) * input_columns_ + copied_column_;
  }
  const auto& cells = filter_->cells();
  const int first = cells[begin].first;
  const int count = cells[end - 1].first + cells[end - 1].count - first;
  const size_t at = static_cast<size_t>(y);
  for (int tap = 0; tap < rows_.count[at]; ++tap) {
    const float weight = rows_.weights[rows_.start[at] + static_cast<size_t>(tap)];
    const float* in = plane + static_cast<size_t>(rows_.first[at] + tap) * input_columns_ + first;
    (tap == 0 ? SetScaled : AddScaled)(mixed_.data() + first, in, weight, count);
  }
  filter_->Apply(mixed_.data(), begin, end, row_.data());
  return row_.data();
}

}  // namespace radserve
