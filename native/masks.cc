#include "masks.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace radserve {
namespace {

size_t RootOf(std::vector<size_t>& parents, size_t run) {
  while (parents[run] != run) {
    parents[run] = parents[parents[run]];
    run = parents[run];
  }
  return run;
}

/// For each run the earliest run of its region.
std::vector<size_t> Roots(const std::vector<Run>& runs, const std::vector<size_t>& first_of_row,
                          size_t columns, size_t reach) {
  std::vector<size_t> parents(runs.size());
  std::iota(parents.begin(), parents.end(), size_t{0});
  for (size_t y = 1; y + 1 < first_of_row.size(); ++y) {
    size_t above = first_of_row[y - 1];
    for (size_t run = first_of_row[y]; run < first_of_row[y + 1];) {
      if (above == first_of_row[y]) break;
      const size_t above_begin = runs[above].begin + columns;
      const size_t above_end = runs[above].end + columns;
      if (above_begin < runs[run].end + reach && runs[run].begin < above_end + reach) {
        const size_t a = RootOf(parents, above);
        const size_t b = RootOf(parents, run);
        parents[std::max(a, b)] = std::min(a, b);
      }
      // What ends first touches nothing further on
      if (above_end < runs[run].end) {
        ++above;
      } else {
        ++run;
      }
    }
  }
  for (size_t run = 0; run < runs.size(); ++run) parents[run] = parents[parents[run]];
  return parents;
}

Components OfLabel(const MaskView& mask, uint8_t label) {
  return FindComponents(mask.rows, mask.columns, 4, [&](size_t i) { return mask.pixels[i] == label; });
}

/// `drop` has one entry for each region.
void Erase(const MaskView& mask, const Components& found, const std::vector<bool>& drop) {
  for (size_t i = 0; i < mask.pixels.size(); ++i) {
    const int32_t number = found.labels[i];
    if (number != 0 && drop[static_cast<size_t>(number - 1)]) mask.pixels[i] = 0;
  }
}

/// Marks the regions with a pixel beside (4-neighbour) padding.
void MarkBesidePadding(const MaskView& mask, const Components& found, std::vector<bool>& marked) {
  const auto columns = static_cast<size_t>(mask.columns);
  const auto mark = [&](size_t i) {
    if (found.labels[i] != 0) marked[static_cast<size_t>(found.labels[i] - 1)] = true;
  };
  for (size_t i = 0; i < mask.padding.size(); ++i) {
    if (mask.padding[i] == 0) continue;
    mark(i);
    if (i % columns > 0) mark(i - 1);
    if (i % columns + 1 < columns) mark(i + 1);
    if (i >= columns) mark(i - columns);
    if (i + columns < mask.padding.size()) mark(i + columns);
  }
}

}  // namespace

Components JoinRuns(const std::vector<Run>& runs, const std::vector<size_t>& first_of_row, int columns,
                    int neighbours) {
  const auto width = static_cast<size_t>(columns);
  const int rows = static_cast<int>(first_of_row.size()) - 1;
  const std::vector<size_t> roots = Roots(runs, first_of_row, width, neighbours == 8 ? 1 : 0);
  Components found;
  found.labels.assign(static_cast<size_t>(rows) * width, 0);
  std::vector<int32_t> numbers(runs.size(), 0);
  for (size_t run = 0; run < runs.size(); ++run) {
    const auto [begin, end] = runs[run];
    if (roots[run] == run) {
      found.regions.push_back({0, rows, columns, -1, -1, false});
      numbers[run] = static_cast<int32_t>(found.regions.size());
    }
    const int32_t number = numbers[roots[run]];
    std::fill(found.labels.begin() + static_cast<ptrdiff_t>(begin),
              found.labels.begin() + static_cast<ptrdiff_t>(end), number);
    Components::Region& region = found.regions[static_cast<size_t>(number - 1)];
    const int y = static_cast<int>(begin / width);
    region.pixels += static_cast<int64_t>(end - begin);
    region.top = std::min(region.top, y);
    region.bottom = std::max(region.bottom, y);
    region.left = std::min(region.left, static_cast<int>(begin % width));
    region.right = std::max(region.right, static_cast<int>((end - 1) % width));
  }
  for (Components::Region& region : found.regions) {
    region.touches_border =
        region.top == 0 || region.left == 0 || region.bottom == rows - 1 || region.right == columns - 1;
  }
  return found;
}

void DropBorderConnected(const MaskView& mask, uint8_t label) {
  const Components found = OfLabel(mask, label);
  std::vector<bool> drop(found.regions.size());
  std::transform(found.regions.begin(), found.regions.end(), drop.begin(),
                 [](const Components::Region& r) { return r.touches_border; });
  MarkBesidePadding(mask, found, drop);
  Erase(mask, found, drop);
}

void KeepLargestComponent(const MaskView& mask, uint8_t label) {
  const Components found = OfLabel(mask, label);
  if (found.regions.empty()) return;
  const auto largest = std::max_element(
      found.regions.begin(), found.regions.end(),
      [](const Components::Region& a, const Components::Region& b) { return a.pixels < b.pixels; });
  std::vector<bool> drop(found.regions.size(), true);
  drop[static_cast<size_t>(largest - found.regions.begin())] = false;
  Erase(mask, found, drop);
}

void DropSmallComponents(const MaskView& mask, uint8_t label, int64_t pixels) {
  const Components found = OfLabel(mask, label);
  std::vector<bool> drop(found.regions.size());
  std::transform(found.regions.begin(), found.regions.end(), drop.begin(),
                 [&](const Components::Region& r) { return r.pixels < pixels; });
  Erase(mask, found, drop);
}

void FillHoles(const MaskView& mask, uint8_t label) {
  const Components outside =
      FindComponents(mask.rows, mask.columns, 4, [&](size_t i) { return mask.pixels[i] != label; });
  for (size_t i = 0; i < mask.pixels.size(); ++i) {
    const int32_t number = outside.labels[i];
    if (number == 0 || outside.regions[static_cast<size_t>(number - 1)].touches_border) continue;
    const bool padding = !mask.padding.empty() && mask.padding[i] != 0;
    if (mask.pixels[i] == 0 && !padding) mask.pixels[i] = label;
  }
}

}  // namespace radserve
