#include "prepare/ends.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/error.h"
#include "prepare/channels.h"
#include "resample/ends.h"

namespace radserve {
namespace {

/// Outputs along the source's slices that one thread makes, so that most slices are read once.
constexpr size_t kRun = 16;

/// Taps along an axis of the tensor, whose inputs are numbered as the source's.
std::vector<EndsTap> TapsOf(const VolumeAxis& axis) {
  std::vector<EndsTap> taps = MakeEndsTaps(axis.source, axis.tensor);
  if (!axis.flipped) return taps;
  for (EndsTap& tap : taps) {
    tap.low = axis.source - 1 - tap.low;
    tap.high = axis.source - 1 - tap.high;
  }
  return taps;
}

/// The slices that one output lies between, as floats. They are neighbours, of which one is even.
class SlicePair {
 public:
  SlicePair(std::span<const Plane> slices, const InputSpec& spec) : slices_(slices), spec_(spec) {}

  /// Valid until another even, or another odd, slice is asked for.
  const float* Get(int slice) {
    Held& held = held_[static_cast<size_t>(slice % 2)];
    if (held.slice == slice) return held.values.data();
    const PixelFormat& format = slices_.front().format;
    const auto width = static_cast<size_t>(format.columns);
    held.values.resize(width * static_cast<size_t>(format.rows));
    held.slice = slice;
    const ChannelSource source(slices_.subspan(static_cast<size_t>(slice), 1), 0, spec_);
    for (int y = 0; y < format.rows; ++y) {
      float* const row = held.values.data() + static_cast<size_t>(y) * width;
      source.Row(y, &row);
    }
    return held.values.data();
  }

 private:
  struct Held {
    int slice = -1;
    std::vector<float> values;
  };
  std::span<const Plane> slices_;
  const InputSpec& spec_;
  std::array<Held, 2> held_;
};

/// The tensor's axes that run along slices, rows and columns of the source are kSlice, kRow and
/// kColumn.
template <size_t kSlice, size_t kRow, size_t kColumn>
void ResampleTurned(std::span<const Plane> slices, const InputSpec& spec,
                    const VolumePlacement& placement, const std::stop_token& stop, ThreadTeam& team,
                    float* out) {
  const std::array<std::vector<EndsTap>, 3> taps = {
      TapsOf(placement.axes[0]), TapsOf(placement.axes[1]), TapsOf(placement.axes[2])};
  const auto width = static_cast<size_t>(slices.front().format.columns);
  const std::array<size_t, 3> strides = {taps[1].size() * taps[2].size(), taps[2].size(), 1};
  const size_t count = taps[kSlice].size();
  team.For((count + kRun - 1) / kRun, [&](size_t run) {
    SlicePair pair(slices, spec);
    for (size_t s = run * kRun; s < std::min(count, (run + 1) * kRun); ++s) {
      CheckStop(stop);
      const EndsTap& of_slice = taps[kSlice][s];
      const std::array<const float*, 2> planes = {pair.Get(of_slice.low), pair.Get(of_slice.high)};
      for (size_t r = 0; r < taps[kRow].size(); ++r) {
        const EndsTap& of_row = taps[kRow][r];
        const std::array<size_t, 2> rows = {static_cast<size_t>(of_row.low) * width,
                                            static_cast<size_t>(of_row.high) * width};
        float* to = out + s * strides[kSlice] + r * strides[kRow];
        for (const EndsTap& of_column : taps[kColumn]) {
          std::array<const EndsTap*, 3> along{};
          along[kSlice] = &of_slice;
          along[kRow] = &of_row;
          along[kColumn] = &of_column;
          const std::array<int, 2> columns = {of_column.low, of_column.high};
          double sum = 0;
          for (size_t corner = 0; corner < 8; ++corner) {
            // Of depth, height and width; depth is the fastest.
            const std::array<size_t, 3> high = {corner & 1, corner >> 1 & 1, corner >> 2};
            double value = planes[high[kSlice]]
                                 [rows[high[kRow]] + static_cast<size_t>(columns[high[kColumn]])];
            for (size_t a = 3; a-- > 0;)
              value *= high[a] == 0 ? along[a]->low_weight : along[a]->high_weight;
            sum += value;
          }
          *to = static_cast<float>(placement.whole_numbers ? std::trunc(sum) : sum);
          to += strides[kColumn];
        }
      }
    }
  });
}

}  // namespace

void ResampleByEnds(std::span<const Plane> slices, const InputSpec& spec,
                    const VolumePlacement& placement, const std::stop_token& stop, ThreadTeam& team,
                    float* out) {
  const size_t slice = placement.TensorAxis(0);
  const bool ascending = placement.TensorAxis(1) == (slice + 1) % 3;
  const auto resample =
      slice == 0   ? (ascending ? &ResampleTurned<0, 1, 2> : &ResampleTurned<0, 2, 1>)
      : slice == 1 ? (ascending ? &ResampleTurned<1, 2, 0> : &ResampleTurned<1, 0, 2>)
                   : (ascending ? &ResampleTurned<2, 0, 1> : &ResampleTurned<2, 1, 0>);
  resample(slices, spec, placement, stop, team, out);
}

}  // namespace radserve
