#pragma once

#include <cstddef>
#include <vector>

#include "resample/resample.h"

namespace radserve {

/// The number of inputs of every output where the outputs follow each other without gap or overlap;
/// else 0.
int WholeStride(const Taps& taps);

/// The way along the columns of a separable resampling. Every output is the sum of its inputs times
/// their weights, added up in order from zero, whichever loop computes it.
class ColumnFilter {
 public:
  /// Rows of outputs have room for so many more, which Apply may write to.
  static constexpr size_t kSlack = 8;

  /// Outputs side by side that the same inputs make: [begin, end) of inputs [first, first + count).
  struct Cell {
    int begin = 0;
    int end = 0;
    int first = 0;
    int count = 0;
  };

  explicit ColumnFilter(Taps taps);

  size_t outputs() const { return taps_.size(); }
  const std::vector<Cell>& cells() const { return cells_; }
  /// The outputs of all cells.
  void Apply(const float* row, float* out) const;
  /// Those of cells [begin, end), each at its place in `out`.
  void Apply(const float* row, size_t begin, size_t end, float* out) const;

 private:
  enum class Kind { kEach, kCopies, kStrides, kCells };

  Kind KindOf() const;
  void SpreadWeights();

  Taps taps_;
  std::vector<Cell> cells_;
  Kind kind_;
  /// kCells: weight k of output x at [k * stride + x].
  std::vector<float> spread_;
  size_t stride_ = 0;
};

}  // namespace radserve
