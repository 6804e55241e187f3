#include <cmath>

#include "check.h"
#include "planes.h"
#include "prepare/volume.h"
#include "volumes.h"

using namespace radserve;
using namespace radserve::test;

namespace {

constexpr std::array<int, 3> kSides = {7, 5, 6};
constexpr PatientPoint kSpacing = {0.75, 1.25, 2};

/// Linear in the patient.
float Ramp(const PatientPoint& at) {
  return static_cast<float>(-40.3 + 13 * at[0] - 7 * at[1] + 5 * at[2]);
}

InputSpec EndsSpec(const std::string& orientation, double spacing) {
  InputSpec spec = VolumeSpec(orientation);
  spec.resampling.emplace();
  spec.resampling->grid = ResamplingSpec::Grid::kEnds;
  spec.resampling->order = 1;
  spec.resampling->order_back = 0;
  spec.resampling->spacing_mm = {spacing, spacing, spacing};
  return spec;
}

TEST("a linear volume stays linear from end to end, cut toward zero, however it was scanned") {
  const std::string orientation = "SAR";
  const InputSpec spec = EndsSpec(orientation, 1);
  for (const Acquisition& acquisition : AllAcquisitions()) {
    const Scan scan(acquisition, kSides, kSpacing, Ramp);
    const PreparedVolume prepared = PrepareVolume(scan.planes, scan.geometry, spec, {});
    const std::vector<float> values = AsFloats(prepared.tensor);
    // 2 mm x 6, 1.25 mm x 5 and 0.75 mm x 7 at 1 mm.
    CHECK((prepared.tensor.shape == std::vector<int64_t>{1, 1, 12, 6, 5}));
    CHECK(prepared.placement.whole_numbers);
    size_t i = 0;
    size_t wrong = 0;
    std::array<int, 3> at{};
    for (at[0] = 0; at[0] < 12; ++at[0]) {
      for (at[1] = 0; at[1] < 6; ++at[1]) {
        for (at[2] = 0; at[2] < 5; ++at[2], ++i) {
          PatientPoint place{};
          for (size_t a = 0; a < 3; ++a) {
            const auto [axis, against] = AxisOf(orientation[a]);
            const int side = static_cast<int>(prepared.tensor.shape[a + 2]);
            const double voxel = at[a] * (kSides[axis] - 1.0) / (side - 1);
            const double along = (voxel + 0.5) * kSpacing[axis];
            place[axis] = against ? kSides[axis] * kSpacing[axis] - along : along;
          }
          const double expected = -40.3 + 13 * place[0] - 7 * place[1] + 5 * place[2];
          // Where rounding decides, either whole number is right.
          const bool near = std::fabs(expected - std::nearbyint(expected)) < 1e-4;
          wrong += !near && values[i] != static_cast<float>(std::trunc(expected)) ? 1 : 0;
        }
      }
    }
    EQUAL(wrong, size_t{0});
  }
}
END;

TEST("values are the same whatever the number of threads") {
  const Scan scan({}, kSides, kSpacing, [](const PatientPoint& at) {
    return static_cast<float>(500 * std::sin(3 * at[0] + at[1] * at[2]));
  });
  const InputSpec spec = EndsSpec("PLS", 0.4);
  const std::vector<float> alone =
      AsFloats(PrepareVolume(scan.planes, scan.geometry, spec, {}).tensor);
  ThreadTeam team(3, [] { return true; });
  const std::vector<float> together = AsFloats(
      PrepareVolume(scan.planes, scan.geometry, spec, {}, MakeTensorForOverwrite, nullptr, &team)
          .tensor);
  CHECK(alone == together);
}
END;

TEST("a volume at the wanted spacing is turned alone, and nothing is cut") {
  const Scan scan({}, kSides, {1, 1, 1}, Ramp);
  const PreparedVolume prepared =
      PrepareVolume(scan.planes, scan.geometry, EndsSpec(Letters({}), 1), {});
  CHECK(!prepared.placement.whole_numbers);
  CHECK(AsFloats(prepared.tensor) == scan.voxels);
}
END;

TEST("a box around what is not 0 is that of the resampled volume") {
  // One voxel in the middle; at half of the spacing there is something beside it, too.
  const Scan scan({}, {5, 5, 5}, {1, 1, 1}, [](const PatientPoint& at) {
    return at == PatientPoint{2.5, 2.5, 2.5} ? 100.0F : 0.0F;
  });
  InputSpec spec = EndsSpec(Letters({}), 0.5);
  spec.resampling->crop_nonzero = true;
  const PreparedVolume prepared = PrepareVolume(scan.planes, scan.geometry, spec, {});
  for (const VolumeAxis& axis : prepared.placement.axes) {
    // Of ten voxels, 4/9 of a voxel apart, those at 4/9 x 3 to 4/9 x 6 lie less than 1 from 2.
    EQUAL(axis.ends->count, 10);
    EQUAL(axis.ends->first, 3);
    EQUAL(axis.tensor, 4);
  }
  for (const float value : AsFloats(prepared.tensor)) EQUAL(value, std::trunc(value));
}
END;

TEST("a single voxel along an axis cannot become several, nor a thin volume none") {
  const Scan flat({}, {5, 5, 1}, {1, 1, 4}, Ramp);
  const auto prepare = [](const Scan& scan, double spacing) {
    return CodeOf([&] { PrepareVolume(scan.planes, scan.geometry, EndsSpec("SAR", spacing), {}); });
  };
  EQUAL(prepare(flat, 1), "no_model_accepts");
  EQUAL(prepare(flat, 20), "no_model_accepts");
}
END;

}  // namespace
