#include "masks.h"

#include <algorithm>

namespace radserve {
namespace {

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
