#include "tiling/blend.h"

#include <algorithm>
#include <utility>

namespace radserve {

Blend::Blend(const Tensor& first, const Grid& window, const Sides& whole, const LeadAxis& lead, int open,
             size_t spatial)
    : window_(window), whole_(whole), lead_(lead.axis), open_(window) {
  open_.sides = whole;
  open_.sides[lead_] = open;
  sums_ = MakeTensor(first.name, Dtype::kFloat32, open_.Shape(1, spatial));
  Grid slice = open_;
  slice.sides[lead_] = 1;
  slice_ = MakeTensor(first.name, Dtype::kFloat32, slice.Shape(1, spatial));
}

void Blend::Add(const Tensor& output, int64_t row, const Tile& window, const std::vector<float>& weights) {
  auto* sums = reinterpret_cast<float*>(sums_.data);
  const int width = window_.sides[2];
  const int begin = std::max(0, -window.start[2]);
  const int end = std::min(width, whole_[2] - window.start[2]);
  for (int first = begin; first < end;) {
    // Where the slices lie across the rows, a row goes on at the slices' beginning.
    const int at = Slot(2, window.start[2] + first);
    const int last = std::min(end, first + open_.sides[2] - at);
    AddColumns(output, row, window, weights, sums + at * window_.per_voxel, first, last);
    first = last;
  }
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
void Blend::ForSlice(int slice, const Visit& visit) {
  auto* sums = reinterpret_cast<float*>(sums_.data);
  Sides from = {0, 0, 0};
  Sides to = open_.sides;
  from[lead_] = Slot(lead_, slice);
  to[lead_] = from[lead_] + 1;
  for (int64_t plane = 0; plane < open_.planes; ++plane) {
    for (int z = from[0]; z < to[0]; ++z) {
      for (int y = from[1]; y < to[1]; ++y) {
        float* row = sums + open_.At(plane, z, y);
        const int64_t voxel = (static_cast<int64_t>(z) * open_.sides[1] + y) * open_.sides[2];
        for (int x = from[2]; x < to[2]; ++x) visit(row + x * open_.per_voxel, voxel + x);
      }
    }
  }
}

const Tensor& Blend::TakeSlice(int slice, const float* weights) {
  auto* out = reinterpret_cast<float*>(slice_.data);
  ForSlice(slice, [&](const float* sum, int64_t voxel) {
    for (int64_t channel = 0; channel < open_.per_voxel; ++channel) *out++ = sum[channel] / weights[voxel];
  });
  return slice_;
}

void Blend::Clear(int slice) {
  ForSlice(slice, [&](float* sum, int64_t) { std::fill_n(sum, open_.per_voxel, 0.0F); });
}

void Blend::AddColumns(const Tensor& output, int64_t row, const Tile& window,
                       const std::vector<float>& weights, float* sums, int first, int last) {
  const int width = window_.sides[2];
  const auto count = static_cast<size_t>(last - first);
  std::vector<float> values(count);
  for (int64_t plane = 0; plane < window_.planes; ++plane) {
    for (int z = 0; z < window_.sides[0]; ++z) {
      const int to_z = window.start[0] + z;
      if (to_z < 0 || to_z >= whole_[0]) continue;
      for (int y = 0; y < window_.sides[1]; ++y) {
        const int to_y = window.start[1] + y;
        if (to_y < 0 || to_y >= whole_[1]) continue;
        const int from_z = window.mirrored[0] ? window_.sides[0] - 1 - z : z;
        const int from_y = window.mirrored[1] ? window_.sides[1] - 1 - y : y;
        const int from_x = window.mirrored[2] ? width - 1 - first : first;
        const float* weight =
            weights.data() +
            (static_cast<size_t>(z) * static_cast<size_t>(window_.sides[1]) + static_cast<size_t>(y)) *
                static_cast<size_t>(width);
        for (int64_t channel = 0; channel < window_.per_voxel; ++channel) {
          const int64_t from = row * window_.Elements() + window_.At(plane, from_z, from_y) +
                               from_x * window_.per_voxel + channel;
          LoadRow(output, from, window.mirrored[2] ? -window_.per_voxel : window_.per_voxel, count,
                  values.data());
          float* sum = sums + open_.At(plane, Slot(0, to_z), Slot(1, to_y)) + channel;
          for (size_t x = 0; x < count; ++x) {
            sum[x * static_cast<size_t>(window_.per_voxel)] +=
                weight[static_cast<size_t>(first) + x] * values[x];
          }
        }
      }
    }
  }
}

}  // namespace radserve
