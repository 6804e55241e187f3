#ifndef RADSERVE_MASKS_H_
#define RADSERVE_MASKS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace radserve {

/// Connected regions of equal membership in a plane of rows x columns.
struct Components {
  /// For each pixel 0, or the number of its region from 1, in raster order of their first pixels.
  std::vector<int32_t> labels;
  struct Region {
    int64_t pixels = 0;
    int top = 0, left = 0, bottom = 0, right = 0;  ///< Inclusive.
    bool touches_border = false;
  };
  /// regions[0] stands for region number 1.
  std::vector<Region> regions;
};

/// `member` says by pixel index whether a pixel belongs to the set; `neighbours` is 4 or 8.
template <typename Member>
Components FindComponents(int rows, int columns, int neighbours, const Member& member);

/// A mask on the source grid that the steps below change in place: 0 is background, `label` the pixels in
/// question.
struct MaskView {
  std::span<uint8_t> pixels;
  int rows = 0;
  int columns = 0;
  /// One byte a pixel, or empty.
  std::span<const uint8_t> padding;
};

/// Regions (4-connected) of `label` that touch the image border, or a Pixel Padding pixel, become background.
void DropBorderConnected(const MaskView& mask, uint8_t label);

/// Of the regions (4-connected) of `label` the largest stays; of equal ones the first in raster order.
void KeepLargestComponent(const MaskView& mask, uint8_t label);

/// Regions (4-connected) of `label` with fewer pixels become background.
void DropSmallComponents(const MaskView& mask, uint8_t label, int64_t pixels);

/// Background that `label` shuts off from the image border (4-connected) becomes `label`; pixels of other
/// labels and Pixel Padding stay what they are.
void FillHoles(const MaskView& mask, uint8_t label);

/// Members side by side in one row: pixels [begin, end) by index.
struct Run {
  size_t begin = 0;
  size_t end = 0;
};

/// Regions of runs in raster order. `first_of_row[y]` is the first run of row y or, where it has none, of a
/// later one; a last entry is the number of runs. Union-find with the earlier run as root (Rosenfeld and
/// Pfaltz 1966, by runs).
Components JoinRuns(const std::vector<Run>& runs, const std::vector<size_t>& first_of_row, int columns,
                    int neighbours);

template <typename Member>
Components FindComponents(int rows, int columns, int neighbours, const Member& member) {
  const auto width = static_cast<size_t>(columns);
  std::vector<Run> runs;
  std::vector<size_t> first_of_row;
  for (size_t y = 0; y < static_cast<size_t>(rows); ++y) {
    first_of_row.push_back(runs.size());
    const size_t end = (y + 1) * width;
    for (size_t at = y * width; at < end;) {
      while (at < end && !member(at)) ++at;
      if (at == end) break;
      const size_t begin = at;
      while (at < end && member(at)) ++at;
      runs.push_back({begin, at});
    }
  }
  first_of_row.push_back(runs.size());
  return JoinRuns(runs, first_of_row, columns, neighbours);
}

}  // namespace radserve

#endif  // RADSERVE_MASKS_H_
