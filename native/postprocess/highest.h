#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "base/thread_team.h"
#include "resample/resample.h"

namespace radserve {

/// Fills the maps of one slice of the model's grid, as the source sees it: every channel [rows,
/// columns], one after the other.
using LoadSlice = std::function<void(int slice, float* channels)>;

/// Gives each voxel of the source the label of that of many channels which is the highest there,
/// the first of equal ones, once they are resampled: to the bit what ResampleVolume and then a
/// comparison give. Channels that cannot be the highest in a block of voxels are not resampled
/// there: linear resampling leaves no value outside the range of what it is made of, so that a
/// channel whose greatest value in reach of the block is below another's least has lost.
class HighestResampled {
 public:
  /// @param taps to slices, rows and columns of the source
  /// @param sides rows and columns of the model's grid
  /// @param labels that of each channel
  HighestResampled(const VolumeTaps& taps, std::array<int, 2> sides, std::vector<uint8_t> labels,
                   ThreadTeam& team);

  /// Source slices in order: `take(slice, labels)` gives each [rows, columns], until the next.
  /// Slices of the model's grid are loaded in order, each at most once. Throws `cancelled` once
  /// `stop` is requested.
  void Run(const std::stop_token& stop, const LoadSlice& load,
           const std::function<void(int slice, std::span<const uint8_t> labels)>& take);

 private:
  /// Outputs [begin, end) along an axis, and the inputs [first, last) that they are made of.
  struct Block {
    int begin;
    int end;
    int first;
    int last;
  };
  class Contest;

  static std::vector<Block> BlocksOf(const Taps& taps);
  float* Slot(int slice) { return values_.data() + static_cast<size_t>(slice % ring_) * slot_; }
  size_t BoundsAt(int slice, size_t row, size_t column) const {
    return ((static_cast<size_t>(slice % ring_) * rows_.size() + row) * columns_.size() + column) *
           channels_;
  }
  void Bound(int slice, size_t row);
  /// Channels that may be the highest somewhere in a block, in order.
  void Candidates(int slice, size_t row, size_t column, std::vector<size_t>& candidates) const;

  const VolumeTaps& taps_;
  std::array<int, 2> sides_;
  std::vector<uint8_t> labels_;
  size_t channels_;
  ThreadTeam& team_;
  std::vector<Block> rows_;
  std::vector<Block> columns_;
  /// Slices of the model's grid that are in memory.
  int ring_;
  size_t slot_;
  std::vector<float> values_;
  /// The least and the greatest value of each channel in reach of each block.
  std::vector<float> low_;
  std::vector<float> high_;
  /// The error that rounding adds to a value at most, as a part of the largest.
  double rounding_;
  bool bounded_;
};

/// Slices of the model's grid that HighestResampled keeps.
int SlicesInReach(const Taps& slices);

}  // namespace radserve
