#include "resample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "simd.h"

namespace radserve {
namespace {

double Triangle(double x) { return std::max(0.0, 1 - std::fabs(x)); }

double CatmullRom(double x) {
  x = std::fabs(x);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  if (x < 2) return ((-0.5 * x + 2.5) * x - 4) * x + 2;
  return 0;
}

/// Weight of input pixel j for the output whose centre lies at `centre`.
double Weight(Interpolation interpolation, double scale, double centre, int j) {
  const double stretch = std::max(1.0, scale);
  switch (interpolation) {
    case Interpolation::kArea:
      return std::max(0.0, std::min(centre + scale / 2, j + 1.0) - std::max(centre - scale / 2, j + 0.0));
    case Interpolation::kCubic:
      return CatmullRom((j + 0.5 - centre) / stretch);
    default:
      return Triangle((j + 0.5 - centre) / stretch);
  }
}

double Support(Interpolation interpolation, double scale) {
  if (interpolation == Interpolation::kArea) return scale / 2;
  return std::max(1.0, scale) * (interpolation == Interpolation::kCubic ? 2 : 1);
}

RADSERVE_HOT_LOOP void AddScaled(float* __restrict accumulator, const float* __restrict row, float weight,
                                 int count) {
  for (int i = 0; i < count; ++i) accumulator[i] += row[i] * weight;
}

RADSERVE_HOT_LOOP void SetScaled(float* __restrict accumulator, const float* __restrict row, float weight,
                                 int count) {
  for (int i = 0; i < count; ++i) accumulator[i] = row[i] * weight;
}

void FilterColumns(const Taps& taps, const float* row, float* out) {
  for (size_t x = 0; x < taps.size(); ++x) {
    const float* in = row + taps.first[x];
    const float* weights = taps.weights.data() + taps.start[x];
    float sum = 0;
    for (int k = 0; k < taps.count[x]; ++k) sum += in[k] * weights[k];
    out[x] = sum;
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

}  // namespace

Taps MakeTaps(const Axis& axis, Interpolation interpolation) {
  if (interpolation == Interpolation::kDisplay) {
    interpolation = axis.scale > 1 ? Interpolation::kArea : Interpolation::kLinear;
  }
  Taps taps;
  std::vector<double> weights;
  for (int i = 0; i < axis.output; ++i) {
    const double centre = axis.offset + (i + 0.5) * axis.scale;
    const int nearest = std::clamp(static_cast<int>(std::floor(centre)), 0, axis.input - 1);
    weights.clear();
    int first = nearest;
    if (interpolation != Interpolation::kNearest) {
      const double support = Support(interpolation, axis.scale);
      const int low = std::max(0, static_cast<int>(std::floor(centre - support)));
      const int high = std::min(axis.input, static_cast<int>(std::ceil(centre + support)) + 1);
      first = low;
      for (int j = low; j < high; ++j) {
        const double weight = Weight(interpolation, axis.scale, centre, j);
        if (weights.empty() && std::fabs(weight) < 1e-9) {
          first = j + 1;
        } else {
          weights.push_back(weight);
        }
      }
      while (!weights.empty() && std::fabs(weights.back()) < 1e-9) weights.pop_back();
    }
    double sum = 0;
    for (const double weight : weights) sum += weight;
    if (weights.empty() || sum < 1e-9) {
      first = nearest;
      weights.assign(1, 1.0);
      sum = 1;
    }
    taps.first.push_back(first);
    taps.count.push_back(static_cast<int>(weights.size()));
    taps.start.push_back(taps.weights.size());
    for (const double weight : weights) taps.weights.push_back(static_cast<float>(weight / sum));
  }
  return taps;
}

void Resample(const Taps& rows, const Taps& columns, int input_columns, int channels, const RowSource& source,
              const RowSink& sink) {
  const size_t width = static_cast<size_t>(input_columns);
  const size_t planes = static_cast<size_t>(channels);
  const size_t ring = MostOpen(rows);
  const RowBlock input(planes, width);
  const RowBlock accumulators(ring * planes, width);
  const RowBlock output(planes, columns.size());
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
        FilterColumns(columns, accumulators.Rows()[(done % ring) * planes + c], output.Rows()[c]);
      }
      sink(static_cast<int>(done), output.Rows());
    }
  }
}

std::vector<float> ResamplePlane(const float* plane, const Axis& rows, const Axis& columns,
                                 Interpolation interpolation) {
  std::vector<float> out(static_cast<size_t>(rows.output) * static_cast<size_t>(columns.output));
  Resample(
      MakeTaps(rows, interpolation), MakeTaps(columns, interpolation), columns.input, 1,
      [&](int row, float* const* channels) {
        std::copy_n(plane + static_cast<ptrdiff_t>(row) * columns.input, columns.input, channels[0]);
      },
      [&](int row, const float* const* channels) {
        std::copy_n(channels[0], columns.output, out.begin() + static_cast<ptrdiff_t>(row) * columns.output);
      });
  return out;
}

}  // namespace radserve
