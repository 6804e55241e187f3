#ifndef RADSERVE_RESAMPLE3D_H_
#define RADSERVE_RESAMPLE3D_H_

#include <array>
#include <functional>

#include "resample/resample.h"

namespace radserve {

/// In the order slices, rows, columns.
using VolumeTaps = std::array<Taps, 3>;
/// Opens input slice `slice`; its rows are read before the next one is opened.
using SliceSource = std::function<RowSource(int slice)>;

/// Separable resampling of a volume whose rows have `input_columns` voxels: within each slice, then along the
/// slices. Slices are opened in order, each at most once; `sink` takes output slice by slice, a whole plane
/// for each channel.
void ResampleVolume(const VolumeTaps& taps, int input_columns, int channels, const SliceSource& source,
                    const RowSink& sink);

}  // namespace radserve

#endif  // RADSERVE_RESAMPLE3D_H_
