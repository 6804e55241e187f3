#include "tiling/blend.h"

#include <algorithm>
#include <utility>

#include "base/simd.h"

namespace radserve {
namespace {

RADSERVE_HOT_LOOP void AddWeighted(const float* __restrict values, const float* __restrict weights,
                                   size_t count, float* __restrict sums) {
  for (size_t x = 0; x < count; ++x) sums[x] += weights[x] * values[x];
}

RADSERVE_HOT_LOOP void TakeMeans(const float* __restrict sums, const float* __restrict weights,
                                 size_t count, float* __restrict out) {
  for (size_t x = 0; x < count; ++x) out[x] = sums[x] / weights[x];
}

}  // namespace

Blend::Blend(const Tensor& first, const Grid& window, const Sides& whole, const LeadAxis& lead,
             int open, size_t spatial)
    : window_(window), whole_(whole), lead_(lead.axis), open_(window) {
  open_.sides = whole;
  open_.sides[lead_] = open;
  sums_ = MakeTensor(first.name, Dtype::kFloat32, open_.Shape(1, spatial));
  Grid slice = open_;
  slice.sides[lead_] = 1;
  slice_ = MakeTensor(first.name, Dtype::kFloat32, slice.Shape(1, spatial));
}

void Blend::Add(const Tensor& output, int64_t row, const Tile& window,
                const std::vector<float>& weights, ThreadTeam& team) {
  auto* sums = reinterpret_cast<float*>(sums_.data);
  const int begin = std::max(0, -window.start[2]);
  const int end = std::min(window_.sides[2], whole_[2] - window.start[2]);
  const auto depth = static_cast<size_t>(window_.sides[0]);
  team.For(static_cast<size_t>(window_.planes) * depth, [&](size_t step) {
    const auto plane = static_cast<int64_t>(step / depth);
    const int z = static_cast<int>(step % depth);
    for (int first = begin; first < end;) {
      // Where the slices lie across the rows, a row goes on at the slices' beginning.
      const int at = Slot(2, window.start[2] + first);
      const int last = std::min(end, first + open_.sides[2] - at);
      AddColumns(output, row, plane, z, window, weights, sums + at * window_.per_voxel, first,
                 last);
      first = last;
    }
  });
}

Tensor Blend::TakeAll(const float* weights) {
  auto* sums = reinterpret_cast<float*>(sums_.data);
  const auto voxels = Voxels(open_.sides);
  for (int64_t plane = 0; plane < open_.planes; ++plane) {
    for (size_t voxel = 0; voxel < voxels; ++voxel) {
      for (int64_t channel = 0; channel < open_.per_voxel; ++channel) *sums++ /= weights[voxel];
    }
  }
  return std::move(sums_);
}

template <typename Visit>
void Blend::ForRows(int slice, int64_t plane, const Visit& visit) {
  auto* sums = reinterpret_cast<float*>(sums_.data);
  Sides from = {0, 0, 0};
  Sides to = open_.sides;
  from[lead_] = Slot(lead_, slice);
  to[lead_] = from[lead_] + 1;
  for (int z = from[0]; z < to[0]; ++z) {
    for (int y = from[1]; y < to[1]; ++y) {
      float* row = sums + open_.At(plane, z, y);
      const int64_t voxel = (static_cast<int64_t>(z) * open_.sides[1] + y) * open_.sides[2];
      visit(row + from[2] * open_.per_voxel, voxel + from[2], static_cast<size_t>(to[2] - from[2]));
    }
  }
}

const Tensor& Blend::TakeSlice(int slice, const float* weights, ThreadTeam& team) {
  auto* const all = reinterpret_cast<float*>(slice_.data);
  const size_t each = slice_.Elements() / static_cast<size_t>(open_.planes);
  const auto channels = static_cast<size_t>(open_.per_voxel);
  team.For(static_cast<size_t>(open_.planes), [&](size_t plane) {
    float* out = all + plane * each;
    ForRows(slice, static_cast<int64_t>(plane), [&](float* sums, int64_t voxel, size_t count) {
      if (channels == 1) {
        TakeMeans(sums, weights + voxel, count, out);
      } else {
        for (size_t i = 0; i < count * channels; ++i) {
          out[i] = sums[i] / weights[voxel + static_cast<int64_t>(i / channels)];
        }
      }
      std::fill_n(sums, count * channels, 0.0F);
      out += count * channels;
    });
  });
  return slice_;
}

void Blend::Clear(int slice) {
  for (int64_t plane = 0; plane < open_.planes; ++plane) {
    ForRows(slice, plane, [&](float* sums, int64_t, size_t count) {
      std::fill_n(sums, count * static_cast<size_t>(open_.per_voxel), 0.0F);
    });
  }
}

void Blend::AddColumns(const Tensor& output, int64_t row, int64_t plane, int z, const Tile& window,
                       const std::vector<float>& weights, float* sums, int first, int last) {
  const int to_z = window.start[0] + z;
  if (to_z < 0 || to_z >= whole_[0]) return;
  const int width = window_.sides[2];
  const auto count = static_cast<size_t>(last - first);
  const bool as_it_lies =
      output.dtype == Dtype::kFloat32 && window_.per_voxel == 1 && !window.mirrored[2];
  std::vector<float> values(as_it_lies ? 0 : count);
  const int from_z = window.mirrored[0] ? window_.sides[0] - 1 - z : z;
  const int from_x = window.mirrored[2] ? width - 1 - first : first;
  for (int y = 0; y < window_.sides[1]; ++y) {
    const int to_y = window.start[1] + y;
    if (to_y < 0 || to_y >= whole_[1]) continue;
    const int from_y = window.mirrored[1] ? window_.sides[1] - 1 - y : y;
    const float* weight =
        weights.data() +
        (static_cast<size_t>(z) * static_cast<size_t>(window_.sides[1]) + static_cast<size_t>(y)) *
            static_cast<size_t>(width) +
        first;
    const int64_t from =
        row * window_.Elements() + window_.At(plane, from_z, from_y) + from_x * window_.per_voxel;
    float* sum = sums + open_.At(plane, Slot(0, to_z), Slot(1, to_y));
    if (as_it_lies) {
      AddWeighted(reinterpret_cast<const float*>(output.data) + from, weight, count, sum);
      continue;
    }
    for (int64_t channel = 0; channel < window_.per_voxel; ++channel) {
      LoadRow(output, from + channel, window.mirrored[2] ? -window_.per_voxel : window_.per_voxel,
              count, values.data());
      if (window_.per_voxel == 1) {
        AddWeighted(values.data(), weight, count, sum);
        continue;
      }
      for (size_t x = 0; x < count; ++x) {
        sum[x * static_cast<size_t>(window_.per_voxel) + static_cast<size_t>(channel)] +=
            weight[x] * values[x];
      }
    }
  }
}

}  // namespace radserve
