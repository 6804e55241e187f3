#include "resample/column_filter.h"

#include <algorithm>
#include <utility>

#include "base/simd.h"

namespace radserve {
namespace {

/// Cells of more inputs than a cubic filter has, or hardly wider than one output, are computed
/// output by output.
constexpr int kMostInputs = 5;
constexpr size_t kLeastWidth = 3;
/// Outputs that are computed at once; what is beyond the cell is overwritten by the next one.
constexpr int kBlock = ColumnFilter::kSlack;

/// Outputs side by side that each take the next `kCount` inputs: what a whole scale by area comes
/// to.
template <int kCount>
[[gnu::always_inline]] inline void FilterStride(const float* __restrict row,
                                                const float* __restrict weights, size_t count,
                                                float* __restrict out) {
  for (size_t x = 0; x < count; ++x) {
    float sum = 0;
    for (size_t k = 0; k < kCount; ++k) sum += row[x * kCount + k] * weights[x * kCount + k];
    out[x] = sum;
  }
}

/// Strides of 2 or 4.
RADSERVE_HOT_LOOP void FilterStrides(int stride, const float* row, const float* weights,
                                     size_t count, float* out) {
  if (stride == 2) return FilterStride<2>(row, weights, count, out);
  FilterStride<4>(row, weights, count, out);
}

/// Added to zero, as every sum is: no zero is negative.
RADSERVE_HOT_LOOP void Copy(const float* __restrict row, size_t count, float* __restrict out) {
  for (size_t x = 0; x < count; ++x) out[x] = 0.0F + row[x];
}

template <int kCount>
[[gnu::always_inline]] inline void FilterCell(const ColumnFilter::Cell& cell,
                                              const float* __restrict row,
                                              const float* __restrict weights, size_t stride,
                                              float* __restrict out) {
  float input[kCount];
  for (int k = 0; k < kCount; ++k) input[k] = row[cell.first + k];
  for (int begin = cell.begin; begin < cell.end; begin += kBlock) {
    for (int x = begin; x < begin + kBlock; ++x) {
      float sum = 0;
      for (int k = 0; k < kCount; ++k)
        sum += input[k] * weights[static_cast<size_t>(k) * stride + static_cast<size_t>(x)];
      out[x] = sum;
    }
  }
}

RADSERVE_HOT_LOOP void FilterCells(const ColumnFilter::Cell* cells, size_t count, const float* row,
                                   const float* weights, size_t stride, float* out) {
  for (size_t i = 0; i < count; ++i) {
    switch (cells[i].count) {
      case 1:
        FilterCell<1>(cells[i], row, weights, stride, out);
        break;
      case 2:
        FilterCell<2>(cells[i], row, weights, stride, out);
        break;
      case 3:
        FilterCell<3>(cells[i], row, weights, stride, out);
        break;
      case 4:
        FilterCell<4>(cells[i], row, weights, stride, out);
        break;
      default:
        FilterCell<kMostInputs>(cells[i], row, weights, stride, out);
    }
  }
}

std::vector<ColumnFilter::Cell> CellsOf(const Taps& taps) {
  std::vector<ColumnFilter::Cell> cells;
  for (size_t i = 0; i < taps.size(); ++i) {
    const int x = static_cast<int>(i);
    if (!cells.empty() && cells.back().first == taps.first[i] &&
        cells.back().count == taps.count[i]) {
      cells.back().end = x + 1;
    } else {
      cells.push_back({x, x + 1, taps.first[i], taps.count[i]});
    }
  }
  return cells;
}

}  // namespace

int WholeStride(const Taps& taps) {
  if (taps.size() == 0) return 0;
  const int stride = taps.count[0];
  for (size_t x = 0; x < taps.size(); ++x) {
    if (taps.count[x] != stride || taps.first[x] != taps.first[0] + static_cast<int>(x) * stride)
      return 0;
  }
  return stride;
}

ColumnFilter::ColumnFilter(Taps taps)
    : taps_(std::move(taps)), cells_(CellsOf(taps_)), kind_(KindOf()) {
  if (kind_ == Kind::kCells) SpreadWeights();
}

ColumnFilter::Kind ColumnFilter::KindOf() const {
  const int stride = WholeStride(taps_);
  const auto is_one = [](float weight) { return weight == 1; };
  if (stride == 1 && std::all_of(taps_.weights.begin(), taps_.weights.end(), is_one))
    return Kind::kCopies;
  if (stride == 2 || stride == 4) return Kind::kStrides;
  const bool few = std::all_of(cells_.begin(), cells_.end(),
                               [](const Cell& cell) { return cell.count <= kMostInputs; });
  return few && taps_.size() >= kLeastWidth * cells_.size() ? Kind::kCells : Kind::kEach;
}

void ColumnFilter::SpreadWeights() {
  stride_ = taps_.size() + kSlack;
  spread_.resize(stride_ * kMostInputs);
  for (size_t x = 0; x < taps_.size(); ++x) {
    for (size_t k = 0; k < static_cast<size_t>(taps_.count[x]); ++k) {
      spread_[k * stride_ + x] = taps_.weights[taps_.start[x] + k];
    }
  }
}

void ColumnFilter::Apply(const float* row, float* out) const {
  if (kind_ == Kind::kCopies) return Copy(row + taps_.first[0], outputs(), out);
  if (kind_ == Kind::kStrides)
    return FilterStrides(taps_.count[0], row + taps_.first[0], taps_.weights.data(), outputs(),
                         out);
  Apply(row, 0, cells_.size(), out);
}

void ColumnFilter::Apply(const float* row, size_t begin, size_t end, float* out) const {
  if (begin == end) return;
  if (kind_ == Kind::kCells) {
    return FilterCells(cells_.data() + begin, end - begin, row, spread_.data(), stride_, out);
  }
  const auto last = static_cast<size_t>(cells_[end - 1].end);
  for (auto x = static_cast<size_t>(cells_[begin].begin); x < last; ++x) {
    const float* in = row + taps_.first[x];
    const float* weights = taps_.weights.data() + taps_.start[x];
    float sum = 0;
    for (int k = 0; k < taps_.count[x]; ++k) sum += in[k] * weights[k];
    out[x] = sum;
  }
}

}  // namespace radserve
