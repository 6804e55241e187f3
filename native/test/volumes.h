#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/image.h"
#include "base/tensor.h"
#include "prepare/volume_geometry.h"

namespace radserve::test {

using PatientPoint = std::array<double, 3>;

/// A model of windows with three channels, which differ and lie on both sides of 0.
inline std::vector<Tensor> ThreeWaves(const Tensor& windows) {
  std::vector<int64_t> shape = windows.shape;
  shape[1] = 3;
  Tensor y = MakeTensor("y", Dtype::kFloat32, shape);
  const std::vector<float> in = AsFloats(windows);
  for (size_t i = 0; i < y.Elements(); ++i) {
    reinterpret_cast<float*>(y.data)[i] =
        std::sin(in[i % in.size()] * static_cast<float>(1 + i / in.size()));
  }
  return {y};
}

/// One of the 48 ways in which slices, rows and columns can run along the patient's axes.
struct Acquisition {
  /// By source axis: the patient's axis (0: left, 1: back, 2: head), and whether the index grows
  /// against it.
  std::array<int, 3> axis = {2, 1, 0};
  std::array<bool, 3> against = {false, false, false};
};

inline std::vector<Acquisition> AllAcquisitions() {
  std::vector<Acquisition> all;
  std::array<int, 3> order = {0, 1, 2};
  do {
    for (int bits = 0; bits < 8; ++bits) {
      all.push_back({order, {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0}});
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return all;
}

/// The letters of an acquisition's own axes: slices, rows, columns.
inline std::string Letters(const Acquisition& a) {
  std::string letters;
  for (size_t s = 0; s < 3; ++s) letters += (a.against[s] ? "RAI" : "LPS")[a.axis[s]];
  return letters;
}

/// A volume scanned on a grid over a box in the patient, whose corner is the origin of its
/// coordinates in mm.
class Scan {
 public:
  /// `sides` and `spacing` are by patient axis; `value` is asked at voxel centres.
  Scan(const Acquisition& a, const std::array<int, 3>& sides, const PatientPoint& spacing,
       const std::function<float(const PatientPoint&)>& value)
      : acquisition_(a), box_sides_(sides), box_spacing_(spacing) {
    for (size_t s = 0; s < 3; ++s) {
      const auto axis = static_cast<size_t>(a.axis[s]);
      this->sides[s] = sides[axis];
      geometry.spacing[s] = spacing[axis];
      geometry.direction[s] = {0, 0, 0};
      geometry.direction[s][axis] = a.against[s] ? -1 : 1;
    }
    const size_t plane = static_cast<size_t>(this->sides[1]) * static_cast<size_t>(this->sides[2]);
    voxels.resize(static_cast<size_t>(this->sides[0]) * plane);
    ForVoxels([&](size_t i, const PatientPoint& at) { voxels[i] = value(at); });
    for (int k = 0; k < this->sides[0]; ++k) {
      Plane p;
      p.format.rows = this->sides[1];
      p.format.columns = this->sides[2];
      p.format.bits_allocated = p.format.bits_stored = 32;
      p.format.high_bit = 31;
      p.format.is_float = true;
      p.data = {reinterpret_cast<const uint8_t*>(voxels.data() + static_cast<size_t>(k) * plane),
                plane * sizeof(float)};
      planes.push_back(p);
    }
  }
  Scan(const Scan&) = delete;
  Scan& operator=(const Scan&) = delete;

  /// Index of a voxel in the order of the slices, and its centre in the patient.
  void ForVoxels(const std::function<void(size_t, const PatientPoint&)>& take) const {
    size_t i = 0;
    for (int k = 0; k < sides[0]; ++k) {
      for (int r = 0; r < sides[1]; ++r) {
        for (int c = 0; c < sides[2]; ++c) take(i++, Where({k + 0.5, r + 0.5, c + 0.5}));
      }
    }
  }

  /// The patient's point of continuous slice, row and column coordinates.
  PatientPoint Where(const PatientPoint& source) const {
    PatientPoint at{};
    for (size_t s = 0; s < 3; ++s) {
      const auto axis = static_cast<size_t>(acquisition_.axis[s]);
      const double along = source[s] * box_spacing_[axis];
      at[axis] = acquisition_.against[s] ? box_sides_[axis] * box_spacing_[axis] - along : along;
    }
    return at;
  }

  std::vector<float> voxels;
  std::vector<Plane> planes;
  VolumeGeometry geometry;
  /// Slices, rows, columns.
  std::array<int, 3> sides{};

 private:
  Acquisition acquisition_;
  std::array<int, 3> box_sides_;
  PatientPoint box_spacing_;
};

/// The patient axis of a letter, and whether it points against the axis.
inline std::pair<size_t, bool> AxisOf(char letter) {
  const size_t at = std::string("LPSRAI").find(letter);
  return {at % 3, at >= 3};
}

}  // namespace radserve::test
