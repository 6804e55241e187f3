#include "postprocess/highest.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/simd.h"
#include "postprocess/activation.h"

namespace radserve {
namespace {

/// Rows and columns of a block of the source.
constexpr size_t kSide = 16;
/// Elements behind the maps that may be read and do not count.
constexpr size_t kSlack = 16;

RADSERVE_HOT_LOOP void Widen(const float* __restrict row, size_t count, float* __restrict low,
                             float* __restrict high) {
  for (size_t x = 0; x < count; ++x) low[x] = row[x] < low[x] ? row[x] : low[x];
  for (size_t x = 0; x < count; ++x) high[x] = row[x] > high[x] ? row[x] : high[x];
}

/// Rows of the block, mixed from rows of inputs, which lie `stride` apart: `width` inputs each,
/// whole vectors of 8. They come out turned: the rows of one column lie side by side.
RADSERVE_HOT_LOOP void MixRows(const float* __restrict inputs, size_t stride, const Taps& down,
                               size_t begin, size_t end, size_t width, float* __restrict turned) {
  float mixed[kSide][8];
  for (size_t x = 0; x < width; x += 8) {
    for (size_t y = begin; y < end; ++y) {
      float* own = mixed[y - begin];
      const float* row = inputs + static_cast<size_t>(down.first[y]) * stride + x;
      const float* weights = down.weights.data() + down.start[y];
      for (size_t i = 0; i < 8; ++i) own[i] = row[i] * weights[0];
      for (int tap = 1; tap < down.count[y]; ++tap) {
        row += stride;
        for (size_t i = 0; i < 8; ++i) own[i] += row[i] * weights[tap];
      }
    }
    for (size_t i = 0; i < 8; ++i) {
      for (size_t y = 0; y < end - begin; ++y) turned[(x + i) * kSide + y] = mixed[y][i];
    }
  }
}

/// Columns [begin, end) of the block from columns of inputs, of which `turned` has those from
/// number `from` on, and their part of the voxels' values.
RADSERVE_HOT_LOOP void MixColumns(const float* __restrict turned, int from, const Taps& across,
                                  size_t begin, size_t end, float slice, bool first,
                                  float* __restrict values) {
  for (size_t x = begin; x < end; ++x) {
    float sum[kSide];
    const float* input = turned + static_cast<size_t>(across.first[x] - from) * kSide;
    const float* weights = across.weights.data() + across.start[x];
    for (size_t y = 0; y < kSide; ++y) sum[y] = 0.0F + input[y] * weights[0];
    for (int tap = 1; tap < across.count[x]; ++tap) {
      input += kSide;
      for (size_t y = 0; y < kSide; ++y) sum[y] += input[y] * weights[tap];
    }
    float* value = values + (x - begin) * kSide;
    if (first) {
      for (size_t y = 0; y < kSide; ++y) value[y] = sum[y] * slice;
    } else {
      for (size_t y = 0; y < kSide; ++y) value[y] += sum[y] * slice;
    }
  }
}

int MostTaps(const Taps& taps) {
  return taps.size() == 0 ? 1 : *std::ranges::max_element(taps.count);
}

}  // namespace

int SlicesInReach(const Taps& slices) { return MostTaps(slices); }

std::vector<HighestResampled::Block> HighestResampled::BlocksOf(const Taps& taps) {
  std::vector<Block> blocks;
  for (size_t begin = 0; begin < taps.size(); begin += kSide) {
    const size_t end = std::min(taps.size(), begin + kSide);
    Block block{static_cast<int>(begin), static_cast<int>(end), taps.first[begin], 0};
    for (size_t i = begin; i < end; ++i) {
      block.first = std::min(block.first, taps.first[i]);
      block.last = std::max(block.last, taps.first[i] + taps.count[i]);
    }
    blocks.push_back(block);
  }
  return blocks;
}

HighestResampled::HighestResampled(const VolumeTaps& taps, std::array<int, 2> sides,
                                   std::vector<uint8_t> labels, ThreadTeam& team)
    : taps_(taps),
      sides_(sides),
      labels_(std::move(labels)),
      channels_(labels_.size()),
      team_(team),
      rows_(BlocksOf(taps[1])),
      columns_(BlocksOf(taps[2])),
      ring_(SlicesInReach(taps[0])),
      slot_(channels_ * static_cast<size_t>(sides[0]) * static_cast<size_t>(sides[1])),
      values_(static_cast<size_t>(ring_) * slot_ + kSlack),
      low_(static_cast<size_t>(ring_) * rows_.size() * columns_.size() * channels_),
      high_(low_.size()) {
  // Each value is a sum of products whose weights are not negative and add up to 1, and each step
  // rounds by 2^-24.
  const int steps = MostTaps(taps[0]) + MostTaps(taps[1]) + MostTaps(taps[2]);
  rounding_ = (4 * steps + 16) * static_cast<double>(std::numeric_limits<float>::epsilon());
  bounded_ = std::ranges::all_of(taps, [](const Taps& axis) {
    return std::ranges::all_of(axis.weights, [](float weight) { return weight >= 0; });
  });
}

void HighestResampled::Bound(int slice, size_t row) {
  const Block& rows = rows_[row];
  const auto width = static_cast<size_t>(sides_[1]);
  const size_t plane = static_cast<size_t>(sides_[0]) * width;
  std::vector<float> low(width);
  std::vector<float> high(width);
  for (size_t c = 0; c < channels_; ++c) {
    const float* at = Slot(slice) + c * plane + static_cast<size_t>(rows.first) * width;
    std::copy_n(at, width, low.data());
    std::copy_n(at, width, high.data());
    for (int y = rows.first + 1; y < rows.last; ++y)
      Widen(at += width, width, low.data(), high.data());
    for (size_t column = 0; column < columns_.size(); ++column) {
      const Block& block = columns_[column];
      const size_t bounds = BoundsAt(slice, row, column) + c;
      low_[bounds] = *std::min_element(low.begin() + block.first, low.begin() + block.last);
      high_[bounds] = *std::max_element(high.begin() + block.first, high.begin() + block.last);
    }
  }
}

void HighestResampled::Candidates(int slice, size_t row, size_t column,
                                  std::vector<size_t>& candidates) const {
  const auto at = static_cast<size_t>(slice);
  const int first = taps_[0].first[at];
  const int last = first + taps_[0].count[at];
  const auto over_slices = [&](const std::vector<float>& bounds, size_t c, auto&& better) {
    float found = bounds[BoundsAt(first, row, column) + c];
    for (int s = first + 1; s < last; ++s)
      found = better(found, bounds[BoundsAt(s, row, column) + c]);
    return static_cast<double>(found);
  };
  const auto less = [](float a, float b) { return std::min(a, b); };
  const auto greater = [](float a, float b) { return std::max(a, b); };
  double least = -std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t c = 0; c < channels_; ++c) {
    const double low = over_slices(low_, c, less);
    const double high = over_slices(high_, c, greater);
    least = std::max(least, low);
    largest = std::max({largest, std::abs(low), std::abs(high)});
  }
  const double enough = least - 2 * rounding_ * largest;
  candidates.clear();
  for (size_t c = 0; c < channels_; ++c) {
    if (!bounded_ || over_slices(high_, c, greater) >= enough) candidates.push_back(c);
  }
}

/// One block of the source.
class HighestResampled::Contest {
 public:
  explicit Contest(HighestResampled& all) : all_(all) {
    size_t most = 0;
    for (const Block& block : all.columns_)
      most = std::max(most, static_cast<size_t>(block.last - block.first));
    // Widths are whole vectors.
    turned_.resize((most + 7) / 8 * 8 * kSide);
  }

  void Decide(int slice, size_t row, size_t column, std::span<uint8_t> out) {
    const Block& rows = all_.rows_[row];
    const Block& columns = all_.columns_[column];
    const auto stride = all_.taps_[2].size();
    all_.Candidates(slice, row, column, candidates_);
    uint8_t* const corner =
        out.data() + static_cast<size_t>(rows.begin) * stride + static_cast<size_t>(columns.begin);
    const auto width = static_cast<size_t>(columns.end - columns.begin);
    if (candidates_.size() == 1) {
      for (int y = 0; y < rows.end - rows.begin; ++y) {
        std::fill_n(corner + static_cast<size_t>(y) * stride, width,
                    all_.labels_[candidates_.front()]);
      }
      return;
    }
    const size_t voxels = width * kSide;
    for (const size_t c : candidates_) {
      const uint8_t label = all_.labels_[c];
      Resample(slice, c, rows, columns);
      if (c == candidates_.front()) {
        std::copy_n(values_.data(), voxels, best_.data());
        std::fill_n(labels_.data(), voxels, label);
      } else {
        TakeHigher({values_.data(), voxels}, label, best_.data(), labels_.data());
      }
    }
    for (size_t y = 0; y < static_cast<size_t>(rows.end - rows.begin); ++y) {
      for (size_t x = 0; x < width; ++x) corner[y * stride + x] = labels_[x * kSide + y];
    }
  }

 private:
  /// The values of one channel, column by column: within each slice first, then along the slices,
  /// as ResampleVolume.
  void Resample(int slice, size_t channel, const Block& rows, const Block& columns) {
    const auto& [slices, down, across] = all_.taps_;
    const auto at = static_cast<size_t>(slice);
    const auto stride = static_cast<size_t>(all_.sides_[1]);
    const auto width = static_cast<size_t>(columns.last - columns.first);
    const size_t vectors = (width + 7) / 8 * 8;
    for (int tap = 0; tap < slices.count[at]; ++tap) {
      const float* plane = all_.Slot(slices.first[at] + tap) +
                           channel * static_cast<size_t>(all_.sides_[0]) * stride +
                           static_cast<size_t>(columns.first);
      MixRows(plane, stride, down, static_cast<size_t>(rows.begin), static_cast<size_t>(rows.end),
              vectors, turned_.data());
      MixColumns(turned_.data(), columns.first, across, static_cast<size_t>(columns.begin),
                 static_cast<size_t>(columns.end),
                 slices.weights[slices.start[at] + static_cast<size_t>(tap)], tap == 0,
                 values_.data());
    }
  }

  HighestResampled& all_;
  std::vector<size_t> candidates_;
  /// Mixed rows of inputs, column by column.
  std::vector<float> turned_;
  std::array<float, kSide * kSide> values_{};
  std::array<float, kSide * kSide> best_{};
  std::array<uint8_t, kSide * kSide> labels_{};
};

void HighestResampled::Run(const std::stop_token& stop, const LoadSlice& load,
                           const std::function<void(int, std::span<const uint8_t>)>& take) {
  std::vector<uint8_t> labels(taps_[1].size() * taps_[2].size());
  int next = 0;
  for (size_t slice = 0; slice < taps_[0].size(); ++slice) {
    const int last = taps_[0].first[slice] + taps_[0].count[slice];
    for (next = std::max(next, taps_[0].first[slice]); next < last; ++next) {
      CheckStop(stop);
      load(next, Slot(next));
      if (bounded_) team_.For(rows_.size(), [&](size_t row) { Bound(next, row); });
    }
    team_.For(rows_.size(), [&](size_t row) {
      Contest contest(*this);
      for (size_t column = 0; column < columns_.size(); ++column) {
        contest.Decide(static_cast<int>(slice), row, column, labels);
      }
    });
    take(static_cast<int>(slice), labels);
  }
}

}  // namespace radserve
