#include "prepare/regrid.h"

#include <cmath>
#include <limits>
#include <list>
#include <random>

#include "base/tensor.h"
#include "check.h"
#include "planes.h"

using namespace radserve;
using namespace radserve::test;

namespace {

using Vector = std::array<double, 3>;

/// A volume of floats that a function of the place in the patient gives.
struct Made {
  VolumeGrid grid;
  std::list<OwnedPlane> owned;
  std::vector<Plane> planes;

  template <typename Value>
  Made(const VolumeGrid& lies, const Value& value) : grid(lies) {
    const auto [slices, rows, columns] = grid.sides;
    for (int z = 0; z < slices; ++z) {
      std::vector<float> samples;
      for (int y = 0; y < rows; ++y) {
        for (int x = 0; x < columns; ++x)
          samples.push_back(static_cast<float>(value(PlaceOf({z, y, x}))));
      }
      OwnedPlane& plane = owned.emplace_back(rows, columns, samples, 32);
      plane.plane.format.is_float = true;
      planes.push_back(plane.plane);
    }
  }

  Vector PlaceOf(const std::array<int, 3>& index) const {
    Vector place = grid.geometry.origin;
    for (size_t axis = 0; axis < 3; ++axis) {
      for (size_t i = 0; i < 3; ++i)
        place[i] += index[axis] * grid.geometry.spacing[axis] * grid.geometry.direction[axis][i];
    }
    return place;
  }
};

VolumeGrid Straight(const std::array<int, 3>& sides, const Vector& spacing, const Vector& origin) {
  VolumeGrid grid;
  grid.sides = sides;
  grid.geometry.spacing = spacing;
  grid.geometry.origin = origin;
  return grid;
}

VolumeGrid Turned(const std::array<int, 3>& sides, const Vector& spacing, const Vector& origin,
                  double angle) {
  VolumeGrid grid = Straight(sides, spacing, origin);
  const double c = std::cos(angle);
  const double s = std::sin(angle);
  grid.geometry.direction = {{{0, -s, c}, {0, c, s}, {1, 0, 0}}};
  return grid;
}

TEST("what is linear in the patient is the same on every grid") {
  const auto linear = [](const Vector& at) { return 3 + 0.5 * at[0] - 0.25 * at[1] + 2 * at[2]; };
  const Made moving(Turned({15, 30, 30}, {2, 1, 1.5}, {-22.5, -9.2, -16.8}, 0.3), linear);
  const VolumeGrid grid = Straight({4, 5, 6}, {2.5, 2, 1.75}, {-4, -3, -3});
  const RegriddedSlices made = RegridSlices(moving.planes, moving.grid, grid, {});
  EQUAL(made.planes.size(), 4u);
  const Made expected(grid, linear);
  int inside = 0;
  for (size_t z = 0; z < 4; ++z) {
    for (size_t i = 0; i < 30; ++i) {
      float found = 0;
      float wanted = 0;
      std::memcpy(&found, made.planes[z].data.data() + i * sizeof(float), sizeof(float));
      std::memcpy(&wanted, expected.planes[z].data.data() + i * sizeof(float), sizeof(float));
      if (std::isnan(found)) continue;
      ++inside;
      NEAR(found, wanted, 1e-4);
    }
  }
  EQUAL(inside, 120);
}
END;

TEST(
    "half a voxel beyond the outermost centres holds the outermost value, and farther out "
    "nothing") {
  const Made moving(Straight({1, 1, 2}, {1, 1, 1}, {0, 0, 0}),
                    [](const Vector& at) { return 10 + at[0]; });
  const VolumeGrid grid = Straight({1, 1, 9}, {1, 1, 0.25}, {-0.75, 0.5, -0.5});
  const RegriddedSlices made = RegridSlices(moving.planes, moving.grid, grid, {});
  const std::vector<double> expected = {NAN, 10, 10, 10, 10.25, 10.5, 10.75, 11, 11.25};
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i])) {
      EQUAL(std::isnan(made.values[i]), true);
    } else {
      NEAR(made.values[i], std::min(expected[i], 11.0), 1e-6);
    }
  }
  const VolumeGrid beside = Straight({1, 1, 2}, {1, 1, 1}, {0, 0, 0.51});
  EQUAL(std::isnan(RegridSlices(moving.planes, moving.grid, beside, {}).values[0]), true);
}
END;

TEST("Pixel Padding spreads to what is nearest to it and no farther; rescale comes first") {
  OwnedPlane plane(1, 3, std::vector<uint16_t>{7, 100, 200}, 12);
  plane.plane.interpretation.padding = PaddingRange{7, 7};
  plane.plane.interpretation.modality = {ModalityTransform::Kind::kRescale, 2, -50, {}};
  const VolumeGrid own = Straight({1, 1, 3}, {1, 1, 1}, {0, 0, 0});
  const VolumeGrid grid = Straight({1, 1, 5}, {1, 1, 0.4}, {0, 0, 0});
  const RegriddedSlices made = RegridSlices(std::span(&plane.plane, 1), own, grid, {});
  EQUAL(std::isnan(made.values[0]), true);
  EQUAL(std::isnan(made.values[1]), true);
  // Nearest is 100, and padding beside it does not count.
  NEAR(made.values[2], 150, 1e-4);
  NEAR(made.values[3], 190, 1e-3);
  NEAR(made.values[4], 270, 1e-3);
  EQUAL(made.planes[0].format.is_float, true);
}
END;

TEST("colour, and work that is stopped, are refused") {
  OwnedPlane colour(1, 1, std::vector<uint8_t>{1, 2, 3}, 8, false, Photometric::kRgb);
  const VolumeGrid one = Straight({1, 1, 1}, {1, 1, 1}, {0, 0, 0});
  EQUAL(CodeOf([&] { RegridSlices(std::span(&colour.plane, 1), one, one, {}); }),
        "no_model_accepts");
  std::stop_source source;
  source.request_stop();
  OwnedPlane gray(1, 1, std::vector<uint8_t>{1});
  EQUAL(CodeOf([&] { RegridSlices(std::span(&gray.plane, 1), one, one, source.get_token()); }),
        "cancelled");
}
END;

TEST("channels that are last follow each other in each pixel") {
  const auto filled = [](std::vector<int64_t> shape, float from) {
    Tensor tensor = MakeTensor("x", Dtype::kFloat32, std::move(shape));
    for (size_t i = 0; i < tensor.Elements(); ++i) {
      const float value = from + static_cast<float>(i);
      std::memcpy(tensor.data + i * sizeof(float), &value, sizeof(float));
    }
    return tensor;
  };
  const auto values = [](const Tensor& tensor) { return AsFloats(tensor); };
  const std::vector<Tensor> last = {filled({1, 2, 1, 1}, 0), filled({1, 2, 1, 2}, 10)};
  const Tensor mixed = JoinChannels(last, MakeTensorForOverwrite);
  EQUAL(ShapeText(mixed.shape), "[1,2,1,3]");
  EQUAL(values(mixed) == (std::vector<float>{0, 10, 11, 1, 12, 13}), true);
  const std::vector<Tensor> unlike = {filled({1, 2, 1, 1}, 0), filled({1, 3, 1, 1}, 0)};
  EQUAL(CodeOf([&] { JoinChannels(unlike, MakeTensorForOverwrite); }), "no_model_accepts");
}
END;

}  // namespace
