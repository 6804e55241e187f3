#pragma once

#include <algorithm>
#include <span>

#include "postprocess/cover.h"
#include "postprocess/postprocess.h"

namespace radserve {

/// Zero for every source pixel that the model did not see, that its map does not cover, or that is
/// padding.
template <typename T>
void ClearHidden(const SourceGrid& grid, const MapGrid& map, std::span<T> plane) {
  const auto width = static_cast<size_t>(map.columns.image.source);
  const auto [top, bottom] = map.rows.Seen();
  const auto [left, right] = map.columns.Seen();
  for (size_t y = 0; y < static_cast<size_t>(map.rows.image.source); ++y) {
    const std::span<T> row = plane.subspan(y * width, width);
    const bool seen = y >= top && y < bottom;
    std::fill(row.begin(), row.begin() + static_cast<ptrdiff_t>(seen ? left : width), T{0});
    std::fill(row.begin() + static_cast<ptrdiff_t>(right), row.end(), T{0});
  }
  for (size_t i = 0; i < grid.padding.size(); ++i)
    plane[i] = grid.padding[i] != 0 ? T{0} : plane[i];
}

}  // namespace radserve
