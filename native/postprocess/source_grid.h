#pragma once

#include <algorithm>
#include <span>
#include <utility>

#include "postprocess/postprocess.h"

namespace radserve {

/// The pixels [begin, end) of `count` whose centres lie in `length` from `first` on.
inline std::pair<size_t, size_t> Seen(int count, double first, double length) {
  const auto sees = [&](int i) { return i + 0.5 >= first && i + 0.5 <= first + length; };
  int begin = 0;
  while (begin < count && !sees(begin)) ++begin;
  int end = count;
  while (end > begin && !sees(end - 1)) --end;
  return {static_cast<size_t>(begin), static_cast<size_t>(end)};
}

/// Zero for every source pixel that the model did not see or that is padding.
template <typename T>
void ClearHidden(const SourceGrid& grid, std::span<T> plane) {
  const Geometry& g = grid.geometry;
  const auto width = static_cast<size_t>(g.source_columns);
  const auto [top, bottom] = Seen(g.source_rows, g.source_top, g.source_height);
  const auto [left, right] = Seen(g.source_columns, g.source_left, g.source_width);
  for (size_t y = 0; y < static_cast<size_t>(g.source_rows); ++y) {
    const std::span<T> row = plane.subspan(y * width, width);
    const bool seen = y >= top && y < bottom;
    std::fill(row.begin(), row.begin() + static_cast<ptrdiff_t>(seen ? left : width), T{0});
    std::fill(row.begin() + static_cast<ptrdiff_t>(right), row.end(), T{0});
  }
  for (size_t i = 0; i < grid.padding.size(); ++i) plane[i] = grid.padding[i] != 0 ? T{0} : plane[i];
}

}  // namespace radserve
