#include "tiling/windows.h"

#include <cmath>
#include <cstring>

namespace radserve {
namespace {

/// The index in the tensor of a window's voxel along one axis.
int Along(const Tile& window, const Sides& sides, size_t axis, int i) {
  return window.start[axis] + (window.mirrored[axis] ? sides[axis] - 1 - i : i);
}

}  // namespace

TilingSpec ReadTilingSpec(const Description& o) {
  TilingSpec tiling;
  tiling.window = o.Ints("window");
  tiling.overlap = o.Number("overlap");
  tiling.steps = o.OneOf<TilingSpec::Steps>(
      "steps", {{"even", TilingSpec::Steps::kEven}, {"stride", TilingSpec::Steps::kStride}});
  const Description& weights = o.Child("weights");
  if (weights.Text("kind") == "gaussian") {
    tiling.gaussian = {weights.Number("sigma"), weights.Text("centre") == "middle",
                       weights.Number("least")};
  }
  if (o.Has("mirror")) {
    const int first = 3 - static_cast<int>(tiling.window.size());
    tiling.mirrored = o.List("mirror", [&](const Description& axis) {
      return axis.Choice<int>("mirror", {{"depth", 0}, {"height", 1}, {"width", 2}}) - first;
    });
  }
  tiling.pad_edge = o.Child("padding").IsText();
  if (!tiling.pad_edge) tiling.padding = static_cast<float>(o.Number("padding"));
  return tiling;
}

Sides SidesOf(const std::vector<int>& given) {
  Sides sides = {1, 1, 1};
  std::ranges::copy(given, sides.end() - static_cast<ptrdiff_t>(given.size()));
  return sides;
}

size_t Voxels(const Sides& sides) {
  return static_cast<size_t>(sides[0]) * static_cast<size_t>(sides[1]) *
         static_cast<size_t>(sides[2]);
}

Grid GridOf(const Tensor& tensor, size_t spatial, bool channels_last) {
  Grid grid{{1, 1, 1}, 1, 1, channels_last};
  const size_t first = channels_last ? 1 : 2;
  for (size_t axis = 0; axis < spatial; ++axis) {
    grid.sides[3 - spatial + axis] = static_cast<int>(tensor.shape.at(first + axis));
  }
  (channels_last ? grid.per_voxel : grid.planes) = tensor.shape.at(channels_last ? 1 + spatial : 1);
  return grid;
}

int Counted(const LeadAxis& lead, int side, int start, int length) {
  return lead.reversed ? side - start - length : start;
}

std::vector<Tile> WindowsOf(const Sides& whole, const TilingSpec& spec, const LeadAxis& lead) {
  const Sides window = SidesOf(spec.window);
  // Along them each slice is by itself.
  const size_t unused = 3 - spec.window.size();
  std::array<std::vector<int>, 3> starts;
  for (size_t axis = 0; axis < 3; ++axis) {
    const int missing = std::max(0, window[axis] - whole[axis]);
    if (axis < unused) {
      for (int slice = 0; slice < whole[axis]; ++slice) starts[axis].push_back(slice);
      continue;
    }
    starts[axis] = WindowStarts(whole[axis] + missing, window[axis], spec.overlap, spec.steps);
    for (int& start : starts[axis]) start -= missing / 2;
  }
  std::vector<Tile> windows;
  for (const int z : starts[0]) {
    for (const int y : starts[1]) {
      for (const int x : starts[2]) {
        for (uint32_t run = 0; run < 1U << spec.mirrored.size(); ++run) {
          Tile& made = windows.emplace_back(Tile{{z, y, x}, {}});
          for (size_t bit = 0; bit < spec.mirrored.size(); ++bit) {
            if ((run >> bit & 1U) != 0)
              made.mirrored[unused + static_cast<size_t>(spec.mirrored[bit])] = true;
          }
        }
      }
    }
  }
  std::ranges::stable_sort(windows, {}, [&](const Tile& tile) {
    return Counted(lead, whole[lead.axis], tile.start[lead.axis], window[lead.axis]);
  });
  return windows;
}

int OpenSlices(const std::vector<Tile>& windows, const Sides& whole, int length,
               const LeadAxis& lead, int64_t batch) {
  const int side = whole[lead.axis];
  const auto counted = [&](const Tile& tile) {
    return Counted(lead, side, tile.start[lead.axis], length);
  };
  int most = 1;
  const auto step = static_cast<size_t>(batch);
  for (size_t at = 0; at < windows.size(); at += step) {
    const size_t last = std::min(windows.size(), at + step) - 1;
    most = std::max(
        most, std::min(side, counted(windows[last]) + length) - std::max(0, counted(windows[at])));
  }
  return most;
}

std::vector<int> WindowStarts(int side, int window, double overlap, TilingSpec::Steps steps) {
  const int most = side - window;
  if (most <= 0) return {0};
  std::vector<int> starts;
  if (steps == TilingSpec::Steps::kStride) {
    const int stride = std::max(1, static_cast<int>(window * (1 - overlap)));
    for (int start = 0;; start += stride) {
      starts.push_back(std::min(start, most));
      if (start >= most) return starts;
    }
  }
  const int count = static_cast<int>(std::ceil(most / (window * (1 - overlap)))) + 1;
  for (int i = 0; i < count; ++i) {
    starts.push_back(static_cast<int>(std::nearbyint(static_cast<double>(most) / (count - 1) * i)));
  }
  return starts;
}

std::vector<float> WindowWeights(const TilingSpec& spec) {
  const Sides sides = SidesOf(spec.window);
  if (!spec.gaussian) return std::vector<float>(Voxels(sides), 1);
  std::array<std::vector<double>, 3> along;
  for (size_t axis = 0; axis < 3; ++axis) {
    const int half = sides[axis] / 2;
    const double centre = spec.gaussian->middle ? (sides[axis] - 1) / 2.0 : half;
    const double sigma = spec.gaussian->sigma * sides[axis];
    for (int i = 0; i < sides[axis]; ++i) {
      along[axis].push_back(
          sides[axis] == 1 ? 1 : std::exp(-(i - centre) * (i - centre) / (2 * sigma * sigma)));
    }
  }
  std::vector<float> weights;
  weights.reserve(Voxels(sides));
  for (const double z : along[0]) {
    for (const double y : along[1]) {
      for (const double x : along[2])
        weights.push_back(static_cast<float>(std::max(z * y * x, spec.gaussian->least)));
    }
  }
  return weights;
}

Cutter::Cutter(const Tensor& whole, const Grid& from, const Grid& to, const TilingSpec& spec)
    : from_(from), to_(to), data_(whole.data), size_(DtypeSize(whole.dtype)), edge_(spec.pad_edge) {
  const std::vector<float> row(static_cast<size_t>(to.ElementsOfRow()), spec.padding);
  padding_.resize(row.size() * size_);
  StoreRow(whole.dtype, row.data(), row.size(), padding_.data(), 1);
}

void Cutter::Cut(const Tile& window, std::byte* out) const {
  for (int64_t plane = 0; plane < to_.planes; ++plane) {
    for (int z = 0; z < to_.sides[0]; ++z) {
      const int source_z = Within(Along(window, to_.sides, 0, z), from_.sides[0]);
      for (int y = 0; y < to_.sides[1]; ++y) {
        const int source_y = Within(Along(window, to_.sides, 1, y), from_.sides[1]);
        std::byte* row = out + static_cast<size_t>(to_.At(plane, z, y)) * size_;
        std::memcpy(row, padding_.data(), padding_.size());
        if (source_z < 0 || source_z >= from_.sides[0] || source_y < 0 ||
            source_y >= from_.sides[1])
          continue;
        CutRow(window, data_ + static_cast<size_t>(from_.At(plane, source_z, source_y)) * size_,
               row);
      }
    }
  }
}

void Cutter::CutRow(const Tile& window, const std::byte* source, std::byte* row) const {
  const size_t voxel = size_ * static_cast<size_t>(to_.per_voxel);
  if (!window.mirrored[2] && !edge_) {
    const int first = std::max(0, -window.start[2]);
    const int last = std::min(to_.sides[2], from_.sides[2] - window.start[2]);
    if (last <= first) return;
    std::memcpy(row + static_cast<size_t>(first) * voxel,
                source + static_cast<size_t>(window.start[2] + first) * voxel,
                static_cast<size_t>(last - first) * voxel);
    return;
  }
  for (int x = 0; x < to_.sides[2]; ++x) {
    const int source_x = Within(Along(window, to_.sides, 2, x), from_.sides[2]);
    if (source_x < 0 || source_x >= from_.sides[2]) continue;
    std::memcpy(row + static_cast<size_t>(x) * voxel,
                source + static_cast<size_t>(source_x) * voxel, voxel);
  }
}

}  // namespace radserve
