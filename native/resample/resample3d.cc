#include "resample/resample3d.h"

#include <algorithm>

namespace radserve {
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

}  // namespace

void ResampleVolume(const VolumeTaps& taps, int input_columns, int channels, const SliceSource& source,
                    const RowSink& sink) {
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
                     std::copy_n(values[c], columns, planes[c] + static_cast<size_t>(row) * columns);
                   }
                 });
      },
      sink);
}

}  // namespace radserve
