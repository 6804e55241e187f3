#pragma once

#include <algorithm>
#include <span>
#include <utility>

#include "postprocess/postprocess.h"

namespace radserve {

/// The pixels [begin, end) of the source whose centres are seen.
inline std::pair<size_t, size_t> Seen(const ImageAxis& axis) {
  const auto sees = [&](int i) {
    return i + 0.5 >= axis.seen_from && i + 0.5 <= axis.seen_from + axis.seen;
  };
  int begin = 0;
  while (begin < axis.source && !sees(begin)) ++begin;
  int end = axis.source;
  while (end > begin && !sees(end - 1)) --end;
  return {static_cast<size_t>(begin), static_cast<size_t>(end)};
}

/// Zero for every source pixel that the model did not see or that is padding.
template <typename T>
void ClearHidden(const SourceGrid& grid, std::span<T> plane) {
  const Geometry& g = grid.geometry;
  const auto width = static_cast<size_t>(g.columns.source);
  const auto [top, bottom] = Seen(g.rows);
  const auto [left, right] = Seen(g.columns);
  for (size_t y = 0; y < static_cast<size_t>(g.rows.source); ++y) {
    const std::span<T> row = plane.subspan(y * width, width);
    const bool seen = y >= top && y < bottom;
    std::fill(row.begin(), row.begin() + static_cast<ptrdiff_t>(seen ? left : width), T{0});
    std::fill(row.begin() + static_cast<ptrdiff_t>(right), row.end(), T{0});
  }
  for (size_t i = 0; i < grid.padding.size(); ++i)
    plane[i] = grid.padding[i] != 0 ? T{0} : plane[i];
}

}  // namespace radserve
