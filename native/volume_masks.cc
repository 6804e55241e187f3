#include "volume_masks.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace radserve {
namespace {

/// Regions as runs along the columns, joined by union and find: a few bytes a run instead of a number a
/// voxel.
class Regions {
 public:
  struct Run {
    int begin;
    int end;
    size_t line;
  };

  template <typename Member>
  Regions(const std::array<int, 3>& sides, const Member& member)
      : rows_(static_cast<size_t>(sides[1])), lines_(static_cast<size_t>(sides[0]) * rows_) {
    const auto columns = static_cast<size_t>(sides[2]);
    start_.push_back(0);
    for (size_t line = 0; line < lines_; ++line) {
      for (size_t x = 0; x < columns; ++x) {
        if (!member(line * columns + x)) continue;
        const size_t begin = x;
        while (x < columns && member(line * columns + x)) ++x;
        runs_.push_back({static_cast<int>(begin), static_cast<int>(x), line});
      }
      start_.push_back(runs_.size());
    }
    parent_.resize(runs_.size());
    std::iota(parent_.begin(), parent_.end(), size_t{0});
    for (size_t line = 0; line < lines_; ++line) {
      if (line % rows_ != 0) Join(line - 1, line);
      if (line >= rows_) Join(line - rows_, line);
    }
  }

  const std::vector<Run>& runs() const { return runs_; }
  size_t slice(const Run& run) const { return run.line / rows_; }
  size_t row(const Run& run) const { return run.line % rows_; }
  /// The number of a run's region: that of its first run in raster order.
  size_t Root(size_t run) {
    while (parent_[run] != run) {
      parent_[run] = parent_[parent_[run]];
      run = parent_[run];
    }
    return run;
  }
  /// Voxels of each region, by its number.
  std::vector<int64_t> Voxels() {
    std::vector<int64_t> voxels(runs_.size());
    for (size_t i = 0; i < runs_.size(); ++i) voxels[Root(i)] += runs_[i].end - runs_[i].begin;
    return voxels;
  }

 private:
  /// Runs of two neighbouring lines that share a column.
  void Join(size_t a, size_t b) {
    size_t i = start_[a];
    size_t j = start_[b];
    while (i < start_[a + 1] && j < start_[b + 1]) {
      if (runs_[i].begin < runs_[j].end && runs_[j].begin < runs_[i].end) {
        const size_t p = Root(i);
        const size_t q = Root(j);
        parent_[std::max(p, q)] = std::min(p, q);
      }
      ++(runs_[i].end < runs_[j].end ? i : j);
    }
  }

  size_t rows_;
  size_t lines_;
  std::vector<Run> runs_;
  /// First run of each line.
  std::vector<size_t> start_;
  std::vector<size_t> parent_;
};

Regions OfLabel(const VolumeMask& mask, uint8_t label) {
  return Regions(mask.sides, [&](size_t i) { return mask.voxels[i] == label; });
}

std::span<uint8_t> Voxels(const VolumeMask& mask, const Regions::Run& run) {
  const size_t first = run.line * static_cast<size_t>(mask.sides[2]);
  return mask.voxels.subspan(first + static_cast<size_t>(run.begin),
                             static_cast<size_t>(run.end - run.begin));
}

/// `drop` has one entry for each region, by its number.
void Erase(const VolumeMask& mask, Regions& regions, const std::vector<bool>& drop) {
  for (size_t i = 0; i < regions.runs().size(); ++i) {
    if (!drop[regions.Root(i)]) continue;
    const std::span<uint8_t> voxels = Voxels(mask, regions.runs()[i]);
    std::fill(voxels.begin(), voxels.end(), uint8_t{0});
  }
}

bool BesidePadding(const VolumeMask& mask, const Regions& regions, const Regions::Run& run) {
  if (mask.padding.empty()) return false;
  const auto columns = static_cast<size_t>(mask.sides[2]);
  const auto plane = static_cast<size_t>(mask.sides[1]) * columns;
  const size_t begin = run.line * columns + static_cast<size_t>(run.begin);
  const size_t end = run.line * columns + static_cast<size_t>(run.end);
  const auto any = [&](size_t from, size_t to) {
    return std::any_of(mask.padding.begin() + static_cast<ptrdiff_t>(from),
                       mask.padding.begin() + static_cast<ptrdiff_t>(to), [](uint8_t p) { return p != 0; });
  };
  if (any(begin, end)) return true;
  if (run.begin > 0 && mask.padding[begin - 1] != 0) return true;
  if (run.end < mask.sides[2] && mask.padding[end] != 0) return true;
  const size_t row = regions.row(run);
  const size_t slice = regions.slice(run);
  return (row > 0 && any(begin - columns, end - columns)) ||
         (row + 1 < static_cast<size_t>(mask.sides[1]) && any(begin + columns, end + columns)) ||
         (slice > 0 && any(begin - plane, end - plane)) ||
         (slice + 1 < static_cast<size_t>(mask.sides[0]) && any(begin + plane, end + plane));
}

bool TouchesSliceBorder(const VolumeMask& mask, const Regions& regions, const Regions::Run& run) {
  const size_t row = regions.row(run);
  return run.begin == 0 || run.end == mask.sides[2] || row == 0 ||
         row + 1 == static_cast<size_t>(mask.sides[1]);
}

}  // namespace

void DropBorderConnected(const VolumeMask& mask, uint8_t label) {
  Regions regions = OfLabel(mask, label);
  std::vector<bool> drop(regions.runs().size());
  for (size_t i = 0; i < drop.size(); ++i) {
    const Regions::Run& run = regions.runs()[i];
    if (TouchesSliceBorder(mask, regions, run) || BesidePadding(mask, regions, run))
      drop[regions.Root(i)] = true;
  }
  Erase(mask, regions, drop);
}

void KeepLargestComponent(const VolumeMask& mask, uint8_t label) {
  Regions regions = OfLabel(mask, label);
  if (regions.runs().empty()) return;
  const std::vector<int64_t> voxels = regions.Voxels();
  std::vector<bool> drop(voxels.size(), true);
  drop[static_cast<size_t>(std::max_element(voxels.begin(), voxels.end()) - voxels.begin())] = false;
  Erase(mask, regions, drop);
}

void DropSmallComponents(const VolumeMask& mask, uint8_t label, int64_t least) {
  Regions regions = OfLabel(mask, label);
  const std::vector<int64_t> voxels = regions.Voxels();
  std::vector<bool> drop(voxels.size());
  std::transform(voxels.begin(), voxels.end(), drop.begin(), [&](int64_t count) { return count < least; });
  Erase(mask, regions, drop);
}

void FillHoles(const VolumeMask& mask, uint8_t label) {
  Regions outside(mask.sides, [&](size_t i) { return mask.voxels[i] != label; });
  std::vector<bool> open(outside.runs().size());
  for (size_t i = 0; i < open.size(); ++i) {
    const Regions::Run& run = outside.runs()[i];
    const size_t slice = outside.slice(run);
    const bool end_slice = slice == 0 || slice + 1 == static_cast<size_t>(mask.sides[0]);
    if (end_slice || TouchesSliceBorder(mask, outside, run)) open[outside.Root(i)] = true;
  }
  for (size_t i = 0; i < open.size(); ++i) {
    if (open[outside.Root(i)]) continue;
    const Regions::Run& run = outside.runs()[i];
    const size_t first = run.line * static_cast<size_t>(mask.sides[2]);
    for (int x = run.begin; x < run.end; ++x) {
      const size_t voxel = first + static_cast<size_t>(x);
      const bool padding = !mask.padding.empty() && mask.padding[voxel] != 0;
      if (mask.voxels[voxel] == 0 && !padding) mask.voxels[voxel] = label;
    }
  }
}

}  // namespace radserve
