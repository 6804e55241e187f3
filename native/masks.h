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

template <typename Member>
Components FindComponents(int rows, int columns, int neighbours, const Member& member) {
  Components found;
  found.labels.assign(static_cast<size_t>(rows) * static_cast<size_t>(columns), 0);
  std::vector<size_t> open;
  for (size_t seed = 0; seed < found.labels.size(); ++seed) {
    if (found.labels[seed] != 0 || !member(seed)) continue;
    const auto number = static_cast<int32_t>(found.regions.size() + 1);
    Components::Region region{0, rows, columns, -1, -1, false};
    found.labels[seed] = number;
    open.push_back(seed);
    while (!open.empty()) {
      const size_t at = open.back();
      open.pop_back();
      const int y = static_cast<int>(at / static_cast<size_t>(columns));
      const int x = static_cast<int>(at % static_cast<size_t>(columns));
      ++region.pixels;
      region.top = y < region.top ? y : region.top;
      region.bottom = y > region.bottom ? y : region.bottom;
      region.left = x < region.left ? x : region.left;
      region.right = x > region.right ? x : region.right;
      for (int dy = -1; dy <= 1; ++dy) {
        for (int dx = -1; dx <= 1; ++dx) {
          if ((dy == 0 && dx == 0) || (neighbours == 4 && dy != 0 && dx != 0)) continue;
          if (y + dy < 0 || y + dy >= rows || x + dx < 0 || x + dx >= columns) continue;
          const size_t next =
              static_cast<size_t>(y + dy) * static_cast<size_t>(columns) + static_cast<size_t>(x + dx);
          if (found.labels[next] != 0 || !member(next)) continue;
          found.labels[next] = number;
          open.push_back(next);
        }
      }
    }
    region.touches_border =
        region.top == 0 || region.left == 0 || region.bottom == rows - 1 || region.right == columns - 1;
    found.regions.push_back(region);
  }
  return found;
}

}  // namespace radserve

#endif  // RADSERVE_MASKS_H_
