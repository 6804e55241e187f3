#pragma once

#include <cstdint>
#include <vector>

#include "base/tensor.h"
#include "base/thread_team.h"
#include "tiling/windows.h"

namespace radserve {

/// The weighted sums of one output over the slices that are open: slice i of the lead axis lies at
/// i modulo their number, so that all of them together are the tensor itself.
class Blend {
 public:
  Blend(const Tensor& first, const Grid& window, const Sides& whole, const LeadAxis& lead, int open,
        size_t spatial);

  void Add(const Tensor& output, int64_t row, const Tile& window, const std::vector<float>& weights,
           ThreadTeam& team);

  /// Divides by the sums of weights, one for each voxel of the open slices. All slices are open.
  Tensor TakeAll(const float* weights);

  /// One slice as a tensor with the side 1 across the lead axis, divided by the sums of weights,
  /// and its place is free for another then. Until the next call.
  const Tensor& TakeSlice(int slice, const float* weights, ThreadTeam& team);

  /// Makes the place of a slice free for another.
  void Clear(int slice);

  bool Fits(const Tensor& output, int64_t rows, size_t spatial) const {
    return output.shape == window_.Shape(rows, spatial);
  }

  int64_t planes() const { return open_.planes; }
  const float* sums() const { return reinterpret_cast<const float*>(sums_.data); }

 private:
  int Slot(size_t axis, int i) const { return axis == lead_ ? i % open_.sides[axis] : i; }

  /// Calls `visit(sums, voxel, count)` for the stretches of voxels of a slice that lie side by side
  /// in a channel before the sides: `sums` are their elements, and `voxel` counts those of the open
  /// slices.
  template <typename Visit>
  void ForRows(int slice, int64_t plane, const Visit& visit);

  /// Columns [first, last) of the window's rows at one depth and channel; `sums` is where the first
  /// row of the first channel has them.
  void AddColumns(const Tensor& output, int64_t row, int64_t plane, int z, const Tile& window,
                  const std::vector<float>& weights, float* sums, int first, int last);

  Grid window_;
  Sides whole_;
  size_t lead_;
  Grid open_;
  Tensor sums_;
  /// The slice taken last.
  Tensor slice_;
};

}  // namespace radserve
