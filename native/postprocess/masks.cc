#include "postprocess/masks.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/word.h"
#include "postprocess/regions.h"

namespace radserve {
namespace {

Regions Find(const MaskView& mask, uint8_t label, Members members,
             Neighbours neighbours = Neighbours::kEdges) {
  return FindRegions(mask.pixels, mask.rows, mask.columns, label, members, neighbours);
}

/// Pixels of each region.
std::vector<int64_t> Sizes(const Regions& found) {
  std::vector<int64_t> sizes(found.count);
  for (size_t run = 0; run < found.runs.size(); ++run) {
    sizes[found.region[run]] += found.runs[run].end - found.runs[run].begin;
  }
  return sizes;
}

/// `drop` has one entry for each region.
void Erase(const MaskView& mask, const Regions& found, const std::vector<bool>& drop) {
  found.ForRuns([&](size_t line, size_t run) {
    if (!drop[found.region[run]]) return;
    const auto [begin, end] = found.runs[run];
    uint8_t* first = mask.pixels.data() + line * static_cast<size_t>(mask.columns);
    std::fill(first + begin, first + end, uint8_t{0});
  });
}

bool AnySet(std::span<const uint8_t> bytes, size_t begin, size_t end) {
  uint8_t any = 0;
  for (size_t i = begin; i < end; ++i) any |= bytes[i];
  return any != 0;
}

/// Whether a run has a pixel that is padding or shares an edge with one.
bool BesidePadding(const MaskView& mask, size_t line, const Run& run) {
  const auto columns = static_cast<size_t>(mask.columns);
  const auto rows = static_cast<size_t>(mask.rows);
  const size_t first = line * columns;
  const size_t begin = first + static_cast<size_t>(run.begin);
  const size_t end = first + static_cast<size_t>(run.end);
  const size_t plane = rows * columns;
  const size_t row = line % rows;
  const std::span<const uint8_t>& padding = mask.padding;
  return AnySet(padding, std::max(begin, first + 1) - 1, std::min(end + 1, first + columns)) ||
         (row > 0 && AnySet(padding, begin - columns, end - columns)) ||
         (row + 1 < rows && AnySet(padding, begin + columns, end + columns)) ||
         (line >= rows && AnySet(padding, begin - plane, end - plane)) ||
         (begin + plane < padding.size() && AnySet(padding, begin + plane, end + plane));
}

bool TouchesBorder(const MaskView& mask, size_t line, const Run& run) {
  const size_t row = line % static_cast<size_t>(mask.rows);
  return run.begin == 0 || run.end == mask.columns || row == 0 ||
         row + 1 == static_cast<size_t>(mask.rows);
}

}  // namespace

void DropBorderConnected(const MaskView& mask, uint8_t label) {
  const Regions found = Find(mask, label, Members::kEqual);
  std::vector<bool> drop(found.count);
  found.ForRuns([&](size_t line, size_t run) {
    const Run& at = found.runs[run];
    if (drop[found.region[run]]) return;
    if (TouchesBorder(mask, line, at) || (!mask.padding.empty() && BesidePadding(mask, line, at))) {
      drop[found.region[run]] = true;
    }
  });
  Erase(mask, found, drop);
}

void KeepLargestComponent(const MaskView& mask, uint8_t label, bool corners) {
  const Regions found =
      Find(mask, label, Members::kEqual, corners ? Neighbours::kCorners : Neighbours::kEdges);
  if (found.count == 0) return;
  const std::vector<int64_t> sizes = Sizes(found);
  std::vector<bool> drop(found.count, true);
  drop[static_cast<size_t>(std::max_element(sizes.begin(), sizes.end()) - sizes.begin())] = false;
  Erase(mask, found, drop);
}

void DropSmallComponents(const MaskView& mask, uint8_t label, int64_t pixels) {
  const Regions found = Find(mask, label, Members::kEqual);
  const std::vector<int64_t> sizes = Sizes(found);
  std::vector<bool> drop(found.count);
  std::transform(sizes.begin(), sizes.end(), drop.begin(),
                 [&](int64_t size) { return size < pixels; });
  Erase(mask, found, drop);
}

void FillHoles(const MaskView& mask, uint8_t label) {
  const Regions outside = Find(mask, label, Members::kOthers);
  const auto rows = static_cast<size_t>(mask.rows);
  const auto columns = static_cast<size_t>(mask.columns);
  const size_t lines = mask.pixels.size() / columns;
  std::vector<bool> open(outside.count);
  outside.ForRuns([&](size_t line, size_t run) {
    const bool end_slice = mask.slices > 1 && (line < rows || line + rows >= lines);
    if (end_slice || TouchesBorder(mask, line, outside.runs[run])) open[outside.region[run]] = true;
  });
  outside.ForRuns([&](size_t line, size_t run) {
    if (open[outside.region[run]]) return;
    for (int x = outside.runs[run].begin; x < outside.runs[run].end; ++x) {
      const size_t pixel = line * columns + static_cast<size_t>(x);
      const bool padding = !mask.padding.empty() && mask.padding[pixel] != 0;
      if (mask.pixels[pixel] == 0 && !padding) mask.pixels[pixel] = label;
    }
  });
}

std::vector<uint8_t> LabelsOfChannels(const OutputSpec& spec) {
  std::vector<uint8_t> labels(spec.Columns() + 1);
  for (size_t c = 0; c < labels.size(); ++c)
    labels[c] = static_cast<uint8_t>(std::max(0, spec.PlaceOf(static_cast<int>(c))));
  return labels;
}

void CountLabels(std::span<const uint8_t> pixels, std::span<int64_t> counts) {
  constexpr size_t kWord = sizeof(uint64_t);
  constexpr uint64_t kOnes = 0x0101010101010101;
  std::array<int64_t, 256> found{};
  size_t i = 0;
  for (; i + kWord <= pixels.size(); i += kWord) {
    // Neighbours are the same more often than not
    if (WordAt(pixels.data() + i) == pixels[i] * kOnes) {
      found[pixels[i]] += kWord;
    } else {
      for (size_t k = 0; k < kWord; ++k) ++found[pixels[i + k]];
    }
  }
  for (; i < pixels.size(); ++i) ++found[pixels[i]];
  for (size_t v = 0; v < counts.size(); ++v) counts[v] += found[v + 1];
}

}  // namespace radserve
