#include "prepare/regrid.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/error.h"
#include "prepare/channels.h"
#include "prepare/input.h"

namespace radserve {
namespace {

using Vector = std::array<double, 3>;

/// Where a voxel lies in the patient; `index` in the order slice, row, column.
Vector PlaceOf(const VolumeGeometry& geometry, const Vector& index) {
  Vector place = geometry.origin;
  for (size_t axis = 0; axis < 3; ++axis) {
    for (size_t i = 0; i < 3; ++i)
      place[i] += index[axis] * geometry.spacing[axis] * geometry.direction[axis][i];
  }
  return place;
}

/// The index, not rounded, of a place in the patient.
Vector IndexOf(const VolumeGeometry& geometry, const Vector& place) {
  Vector from{};
  for (size_t i = 0; i < 3; ++i) from[i] = place[i] - geometry.origin[i];
  Vector index{};
  for (size_t axis = 0; axis < 3; ++axis) {
    index[axis] = Dot(from, geometry.direction[axis]) / geometry.spacing[axis];
  }
  return index;
}

/// Modality values of all voxels; what is padding is no number.
std::vector<float> ModalityValues(std::span<const Plane> slices, const std::stop_token& stop) {
  InputSpec spec;
  spec.values.kind = ValuesSpec::Kind::kModality;
  spec.monochrome1 = InputSpec::Monochrome1::kAsStored;
  spec.channels = ChannelOrder::kGrayscale;
  spec.background = std::numeric_limits<double>::quiet_NaN();
  const PixelFormat& format = slices.front().format;
  const size_t columns = static_cast<size_t>(format.columns);
  const size_t rows = static_cast<size_t>(format.rows);
  std::vector<float> values(slices.size() * rows * columns);
  float* row = values.data();
  for (const Plane& plane : slices) {
    CheckStop(stop);
    if (plane.format.rows != format.rows || plane.format.columns != format.columns) {
      throw EngineError("series_invalid",
                        "Expected all slices of a volume with the sides of the first.");
    }
    const ChannelSource source(std::span(&plane, 1), 0, spec);
    for (int y = 0; y < format.rows; ++y, row += columns) source.Row(y, &row);
  }
  return values;
}

/// The two voxels along an axis between which a place lies, and how much the second counts.
struct Between {
  int64_t low = 0;
  int64_t high = 0;
  double share = 0;
};

/// False outside.
bool Locate(double index, int side, Between& between) {
  if (!(index >= -0.5 && index <= side - 0.5)) return false;
  const double floor = std::floor(index);
  between.share = index - floor;
  between.low = std::clamp<int64_t>(static_cast<int64_t>(floor), 0, side - 1);
  between.high = std::clamp<int64_t>(static_cast<int64_t>(floor) + 1, 0, side - 1);
  return true;
}

class Interpolated {
 public:
  Interpolated(const std::vector<float>& values, const std::array<int, 3>& sides)
      : values_(values), sides_(sides) {}

  float At(const Vector& index) const {
    std::array<Between, 3> axes;
    for (size_t axis = 0; axis < 3; ++axis) {
      if (!Locate(index[axis], sides_[axis], axes[axis])) return kNothing;
    }
    double sum = 0;
    double weights = 0;
    double most = -1;
    bool nearest_holds = false;
    for (unsigned corner = 0; corner < 8; ++corner) {
      double weight = 1;
      int64_t at = 0;
      for (size_t axis = 0; axis < 3; ++axis) {
        const bool high = (corner >> axis & 1u) != 0;
        weight *= high ? axes[axis].share : 1 - axes[axis].share;
        at = at * sides_[axis] + (high ? axes[axis].high : axes[axis].low);
      }
      if (weight <= 0) continue;
      const float value = values_[static_cast<size_t>(at)];
      const bool holds = !std::isnan(value);
      if (weight > most) {
        most = weight;
        nearest_holds = holds;
      }
      if (!holds) continue;
      sum += weight * static_cast<double>(value);
      weights += weight;
    }
    return nearest_holds ? static_cast<float>(sum / weights) : kNothing;
  }

 private:
  static constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float>& values_;
  const std::array<int, 3>& sides_;
};

/// A plane of modality values in place of one of stored values.
Plane FloatPlane(const Plane& like, const VolumeGrid& grid, std::span<const float> values) {
  Plane plane;
  plane.format.rows = grid.sides[1];
  plane.format.columns = grid.sides[2];
  plane.format.bits_allocated = plane.format.bits_stored = 32;
  plane.format.high_bit = 31;
  plane.format.is_float = true;
  plane.format.photometric = like.format.photometric;
  plane.interpretation.hounsfield = like.interpretation.hounsfield;
  plane.pixel_aspect = grid.geometry.spacing[1] / grid.geometry.spacing[2];
  plane.data = {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()};
  return plane;
}

}  // namespace

RegriddedSlices RegridSlices(std::span<const Plane> slices, const VolumeGrid& own,
                             const VolumeGrid& grid, const std::stop_token& stop) {
  if (!slices.front().format.Monochrome()) {
    throw EngineError("no_model_accepts",
                      "Expected grayscale series where one is taken to another's grid.");
  }
  const std::vector<float> values = ModalityValues(slices, stop);
  const Interpolated interpolated(values, own.sides);
  const size_t columns = static_cast<size_t>(grid.sides[2]);
  const size_t pixels = static_cast<size_t>(grid.sides[1]) * columns;
  RegriddedSlices made;
  made.values.resize(static_cast<size_t>(grid.sides[0]) * pixels);
  float* out = made.values.data();
  for (int z = 0; z < grid.sides[0]; ++z) {
    CheckStop(stop);
    for (int y = 0; y < grid.sides[1]; ++y) {
      for (int x = 0; x < grid.sides[2]; ++x) {
        const Vector place = PlaceOf(grid.geometry, {static_cast<double>(z), static_cast<double>(y),
                                                     static_cast<double>(x)});
        *out++ = interpolated.At(IndexOf(own.geometry, place));
      }
    }
    const std::span<const float> slice =
        std::span(made.values).subspan(static_cast<size_t>(z) * pixels, pixels);
    made.planes.push_back(FloatPlane(slices.front(), grid, slice));
  }
  return made;
}

}  // namespace radserve
