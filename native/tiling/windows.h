#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/tensor.h"
#include "tiling/tiling.h"

namespace radserve {

/// depth, height, width; an image has the depth 1.
using Sides = std::array<int, 3>;

Sides SidesOf(const std::vector<int>& given);
size_t Voxels(const Sides& sides);

/// How a tensor [n, C, sides] or [n, sides, C] lies in memory.
struct Grid {
  Sides sides;
  /// Channels before the sides.
  int64_t planes = 1;
  /// Channels behind the sides: elements of one voxel.
  int64_t per_voxel = 1;
  bool channels_last = false;

  int64_t ElementsOfRow() const { return sides[2] * per_voxel; }
  int64_t Elements() const { return planes * static_cast<int64_t>(Voxels(sides)) * per_voxel; }
  /// The first element of a row of voxels in one batch row.
  int64_t At(int64_t plane, int64_t z, int64_t y) const {
    return ((plane * sides[0] + z) * sides[1] + y) * ElementsOfRow();
  }
  std::vector<int64_t> Shape(int64_t rows, size_t spatial) const {
    std::vector<int64_t> shape = {rows};
    if (!channels_last) shape.push_back(planes);
    for (size_t axis = 3 - spatial; axis < 3; ++axis) shape.push_back(sides[axis]);
    if (channels_last) shape.push_back(per_voxel);
    return shape;
  }
};

Grid GridOf(const Tensor& tensor, size_t spatial, bool channels_last);

/// One window: where it begins in the tensor (below 0 where padding comes first), and along which
/// axes it is mirrored.
struct Tile {
  Sides start;
  std::array<bool, 3> mirrored;
};

/// Where a stretch of `length` voxels begins if they are counted in the direction of the lead axis.
int Counted(const LeadAxis& lead, int side, int start, int length);

/// All windows over a tensor, in the direction of the lead axis and then in the order of the axes.
std::vector<Tile> WindowsOf(const Sides& whole, const TilingSpec& spec, const LeadAxis& lead);

/// How many slices across the lead axis are open at once: those from the first that a batch of
/// windows reaches to the last. Slices before it are final when the batch begins.
int OpenSlices(const std::vector<Tile>& windows, const Sides& whole, int length,
               const LeadAxis& lead, int64_t batch);

/// Cuts one window out of the tensor, as one row of a batch.
class Cutter {
 public:
  Cutter(const Tensor& whole, const Grid& from, const Grid& to, const TilingSpec& spec);
  void Cut(const Tile& window, std::byte* out) const;

 private:
  void CutRow(const Tile& window, const std::byte* source, std::byte* row) const;
  /// The nearest index of the tensor, where that one counts beyond its sides.
  int Within(int index, int side) const { return edge_ ? std::clamp(index, 0, side - 1) : index; }

  Grid from_;
  Grid to_;
  const std::byte* data_;
  size_t size_;
  bool edge_;
  std::vector<std::byte> padding_;
};

}  // namespace radserve
