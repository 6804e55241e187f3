#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace radserve {

/// Members side by side in one line: columns [begin, end).
struct Run {
  int begin = 0;
  int end = 0;
};

/// A set of pixels (voxels) as runs along the columns, in raster order, joined to connected
/// regions. A few bytes a run instead of a number a pixel.
struct Regions {
  std::vector<Run> runs;
  /// The index of the first run of each line (the rows of all slices), or of a later line if a line
  /// has no run; a last entry is the number of runs.
  std::vector<size_t> first_of_line;
  /// For each run the number of its region from 0, in raster order of their first pixels.
  std::vector<uint32_t> region;
  /// Regions there are.
  size_t count = 0;

  /// Calls `visit(line, run)` with the numbers of every run and its line.
  template <typename Visit>
  void ForRuns(const Visit& visit) const {
    for (size_t line = 0; line + 1 < first_of_line.size(); ++line) {
      for (size_t run = first_of_line[line]; run < first_of_line[line + 1]; ++run) visit(line, run);
    }
  }
};

enum class Neighbours {
  /// By edges: 4 in an image, 6 in a volume.
  kEdges,
  /// By corners too: 8 in an image, 26 in a volume.
  kCorners,
};

enum class Members { kEqual, kOthers };

/// The regions of the pixels that equal `value`, or of all others. `pixels` are whole slices of
/// `rows` lines of `columns`. Union-find with the earlier run as root (Rosenfeld and Pfaltz 1966,
/// by runs).
Regions FindRegions(std::span<const uint8_t> pixels, int rows, int columns, uint8_t value,
                    Members members, Neighbours neighbours);

}  // namespace radserve
