#ifndef RADSERVE_RESAMPLE_H_
#define RADSERVE_RESAMPLE_H_

#include <functional>
#include <vector>

#include "spec.h"

namespace radserve {

/// One axis: the centre of output i lies at offset + (i + 0.5) * scale, in input pixels counted from edges.
struct Axis {
  int input = 0;
  int output = 0;
  double offset = 0;
  double scale = 1;
};

/// For each output the weights of a run of inputs; they sum to 1. Inputs outside the image are left out and
/// the others share their weight.
struct Taps {
  std::vector<int> first;
  std::vector<int> count;
  std::vector<size_t> start;
  std::vector<float> weights;

  size_t size() const { return first.size(); }
};

/// area: mean of the pixels covered. linear: triangle, cubic: Catmull-Rom (Keys 1981, a = -0.5); both widened
/// by the scale where it shrinks, against aliasing. nearest: the pixel under the centre.
Taps MakeTaps(const Axis& axis, Interpolation interpolation);

/// Gives input row `row`: fills `channels` arrays of the input's width.
using RowSource = std::function<void(int row, float* const* channels)>;
/// Takes output row `row`: `channels` arrays of the output's width.
using RowSink = std::function<void(int row, const float* const* channels)>;

/// Separable resampling. Every input row that counts is asked for once, in order; output rows come in order.
/// `input_columns` is the width of the rows that `source` fills.
void Resample(const Taps& rows, const Taps& columns, int input_columns, int channels, const RowSource& source,
              const RowSink& sink);

/// A whole plane, for maps that go back to the source grid.
std::vector<float> ResamplePlane(const float* plane, const Axis& rows, const Axis& columns,
                                 Interpolation interpolation);

}  // namespace radserve

#endif  // RADSERVE_RESAMPLE_H_
