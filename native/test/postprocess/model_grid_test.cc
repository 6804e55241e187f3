#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "check.h"
#include "planes.h"
#include "postprocess/kind.h"
#include "postprocess/masks.h"
#include "postprocess/postprocess.h"
#include "prepare/volume.h"
#include "volumes.h"

using namespace radserve;
using namespace radserve::test;

namespace {

/// How a volume is scanned, and how a network wants it.
struct Case {
  Acquisition acquisition;
  /// By the patient's axes.
  std::array<int, 3> sides{};
  PatientPoint spacing{};
  InputSpec spec;
  /// Sides of the tensor over those of the map.
  int coarser = 1;
};

Case AnyCase(std::mt19937& random, int round) {
  const auto whole = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const auto real = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const auto all = AllAcquisitions();
  Case c;
  c.acquisition = all[static_cast<size_t>(whole(0, 47))];
  for (size_t a = 0; a < 3; ++a) {
    c.sides[a] = whole(12, 30);
    c.spacing[a] = real(0.7, 3);
  }
  c.spec = VolumeSpec(Letters(all[static_cast<size_t>(whole(0, 47))]));
  const auto fixed = [&] {
    c.spec.size = {SizeSpec::Kind::kFixed, 2 * whole(8, 20), 2 * whole(8, 20), 1, 0,
                   2 * whole(8, 20)};
    c.coarser = whole(1, 2);
  };
  switch (round % 5) {
    case 0:
      fixed();
      c.spec.fit = Fit::kStretch;
      break;
    case 1:
      fixed();
      c.spec.fit = Fit::kLetterbox;
      break;
    case 2:
      // Some of it is cut off, and elsewhere the tensor is filled up.
      fixed();
      c.spec.fit = Fit::kCrop;
      c.spec.spacing_mm = {real(0.7, 2.5), real(0.7, 2.5), real(0.7, 2.5)};
      break;
    default:
      c.spec.interpolation = Interpolation::kSpline;
      c.spec.resampling = ResamplingSpec{};
      c.spec.resampling->order = 1;
      c.spec.resampling->grid =
          round % 5 == 3 ? ResamplingSpec::Grid::kEdges : ResamplingSpec::Grid::kFirstVoxel;
      c.spec.resampling->spacing_mm = {real(0.7, 2.5), real(0.7, 2.5), real(0.7, 2.5)};
  }
  return c;
}

/// One in which values that are a slope in the patient are that slope in the tensor, exactly:
/// antialiasing, which comes where an axis shrinks, weighs samples that do not lie evenly round a
/// voxel. Splines have none.
Case RandomCase(std::mt19937& random, int round) {
  while (true) {
    Case c = AnyCase(random, round);
    const Scan scan(c.acquisition, c.sides, c.spacing, [](const PatientPoint&) { return 0.0F; });
    const VolumePlacement placement = PlaceVolume(scan.sides, scan.geometry, c.spec);
    const auto grows = [](const VolumeAxis& axis) { return axis.scale <= 1 && axis.count > 6; };
    if (c.spec.resampling || std::ranges::all_of(placement.axes, grows)) return c;
  }
}

/// Where the voxels of the tensor lie along one of its axes, in the patient: read off from what a
/// volume becomes whose values are that coordinate. `axis` is the tensor's.
std::function<double(double)> PlaceAlong(const Case& c, size_t axis) {
  const size_t patient = AxisOf(c.spec.orientation[axis]).first;
  const Scan scan(c.acquisition, c.sides, c.spacing,
                  [&](const PatientPoint& at) { return static_cast<float>(at[patient]); });
  const PreparedVolume prepared = PrepareVolume(scan.planes, scan.geometry, c.spec, {});
  const std::vector<float> values = AsFloats(prepared.tensor);
  const auto& shape = prepared.tensor.shape;
  const auto middle = [&](size_t a) {
    return prepared.placement.axes[a].first + prepared.placement.axes[a].count / 2;
  };
  std::array<int, 3> at = {middle(0), middle(1), middle(2)};
  const auto value = [&](int i) {
    at[axis] = i;
    return static_cast<double>(
        values[static_cast<size_t>((at[0] * shape[3] + at[1]) * shape[4] + at[2])]);
  };
  // Far enough from the edges for nothing beyond them to count.
  const VolumeAxis& along = prepared.placement.axes[axis];
  const int low = along.first + along.count / 3;
  const int high = along.first + along.count * 2 / 3;
  const double step = (value(high) - value(low)) / (high - low);
  const double first = value(low) - low * step;
  return [=](double i) { return first + i * step; };
}

/// The map's own voxels, one by one, against a mask on its grid.
struct Expected {
  std::array<int, 3> sides{};
  /// Patient's coordinate of each voxel along each of the map's axes.
  std::array<std::vector<double>, 3> at;
};

Expected Places(const Case& c, const Tensor& tensor) {
  Expected e;
  for (size_t a = 0; a < 3; ++a) {
    e.sides[a] = static_cast<int>(tensor.shape[a + 2]) / c.coarser;
    const auto place = PlaceAlong(c, a);
    for (int i = 0; i < e.sides[a]; ++i) e.at[a].push_back(place((i + 0.5) * c.coarser - 0.5));
  }
  return e;
}

VolumeGeometry Placed(const Scan& scan) {
  VolumeGeometry geometry = scan.geometry;
  const PatientPoint first = scan.Where({0.5, 0.5, 0.5});
  geometry.origin = first;
  return geometry;
}

/// Index in the grid of a mask of a point in the patient; nothing if it lies outside. It must be
/// the centre of a voxel.
std::optional<size_t> IndexOf(const ModelMask& mask, const VolumeGeometry& grid,
                              const PatientPoint& at, double& worst) {
  const std::array<int, 3> sides = {mask.slices, mask.rows, mask.columns};
  size_t index = 0;
  for (size_t s = 0; s < 3; ++s) {
    double along = 0;
    for (size_t i = 0; i < 3; ++i) along += (at[i] - grid.origin[i]) * grid.direction[s][i];
    along /= grid.spacing[s];
    const double nearest = std::round(along);
    worst = std::max(worst, std::fabs(along - nearest));
    if (nearest < 0 || nearest >= sides[s]) return std::nullopt;
    index = index * static_cast<size_t>(sides[s]) + static_cast<size_t>(nearest);
  }
  return index;
}

Tensor RandomMaps(std::mt19937& random, int64_t channels, const std::array<int, 3>& sides) {
  Tensor y = MakeTensor("y", Dtype::kFloat32, {1, channels, sides[0], sides[1], sides[2]});
  std::uniform_real_distribution<float> values(-3, 3);
  for (size_t i = 0; i < y.Elements(); ++i) reinterpret_cast<float*>(y.data)[i] = values(random);
  return y;
}

OutputSpec Segments(Activation activation, int labels, bool fractional = false) {
  OutputSpec spec;
  spec.kind = &kinds::segmentation;
  spec.tensor = "y";
  spec.activation = activation;
  spec.labels = labels;
  spec.Set<SegmentationSpec>() = {{}, fractional, true, {}};
  return spec;
}

OutputResult Decide(const OutputSpec& spec, const PreparedVolume& prepared, const Tensor& y,
                    bool activate_last = false) {
  const std::vector<double> thresholds(static_cast<size_t>(spec.labels), 0.4);
  return PostprocessVolume(spec, [&](const std::string&) -> const Tensor& { return y; }, prepared,
                           {false, activate_last, false}, thresholds, {});
}

/// Calls `check(voxel of the map, voxel of the mask)` for all that lie within the scanned box, and
/// counts them.
size_t ForShared(const Case& c, const Expected& places, const ModelMask& mask,
                 const VolumeGeometry& grid, double& worst,
                 const std::function<void(size_t, size_t)>& check) {
  std::array<size_t, 3> patient{};
  for (size_t a = 0; a < 3; ++a) patient[a] = AxisOf(c.spec.orientation[a]).first;
  size_t voxel = 0;
  size_t shared = 0;
  for (const double d : places.at[0]) {
    for (const double h : places.at[1]) {
      for (const double w : places.at[2]) {
        PatientPoint at{};
        at[patient[0]] = d;
        at[patient[1]] = h;
        at[patient[2]] = w;
        bool inside = true;
        for (size_t p = 0; p < 3; ++p)
          inside = inside && at[p] >= -1e-4 && at[p] <= c.sides[p] * c.spacing[p] + 1e-4;
        const auto index = IndexOf(mask, grid, at, worst);
        EQUAL(index.has_value(), inside);
        if (index) {
          check(voxel, *index);
          ++shared;
        }
        ++voxel;
      }
    }
  }
  return shared;
}

TEST("voxels of the model's grid lie where the tensor's do, and are decided by their own values") {
  std::mt19937 random(20261125);
  double worst = 0;
  int wrong = 0;
  size_t checked = 0;
  int trimmed = 0;
  for (int round = 0; round < 200; ++round) {
    const Case c = RandomCase(random, round);
    const Scan scan(c.acquisition, c.sides, c.spacing, [](const PatientPoint&) { return 1.0F; });
    const VolumeGeometry geometry = Placed(scan);
    const PreparedVolume prepared = PrepareVolume(scan.planes, geometry, c.spec, {});
    const Expected places = Places(c, prepared.tensor);
    const Tensor y = RandomMaps(random, 3, places.sides);
    const auto* values = reinterpret_cast<const float*>(y.data);
    const size_t voxels = y.Elements() / 3;
    // Both ways through the source: where only the highest counts, and where values are shown.
    const OutputResult highest = Decide(Segments(Activation::kArgmax, 2), prepared, y);
    CHECK(highest.model.has_value());
    const ModelMask& mask = *highest.model;
    const VolumeGeometry grid = GeometryOf(mask.spans, geometry);
    const bool last = round % 2 == 1;
    const OutputResult soft = Decide(Segments(Activation::kSoftmax, 2, true), prepared, y, last);
    const OutputResult each = Decide(Segments(Activation::kSigmoid, 3, true), prepared, y, last);
    std::array<int64_t, 2> counts{};
    const auto steps = [](double p) { return std::lround(255 * p); };
    const size_t shared = ForShared(c, places, mask, grid, worst, [&](size_t t, size_t i) {
      const std::array<float, 3> v = {values[t], values[voxels + t], values[2 * voxels + t]};
      const auto best = static_cast<size_t>(std::max_element(v.begin(), v.end()) - v.begin());
      if (best > 0) ++counts[best - 1];
      if (mask.mask[i] != best || soft.model->mask[i] != best) ++wrong;
      double sum = 0;
      for (const float x : v) sum += std::exp(static_cast<double>(x));
      for (size_t l = 0; l < 3; ++l) {
        const double p = 1 / (1 + std::exp(-static_cast<double>(v[l])));
        const size_t at = l * mask.Voxels() + i;
        if (std::fabs(p - 0.4) > 1e-6 && each.model->mask[at] != (p >= 0.4 ? 1 : 0)) ++wrong;
        if (std::abs(each.model->fractions[at] - steps(p)) > 1) ++wrong;
        const double q = std::exp(static_cast<double>(v[l])) / sum;
        if (l > 0 && std::abs(soft.model->fractions[at - mask.Voxels()] - steps(q)) > 1) ++wrong;
      }
    });
    EQUAL(shared, mask.Voxels());
    EQUAL(mask.counts.at(0), counts[0]);
    EQUAL(mask.counts.at(1), counts[1]);
    checked += shared;
    if (shared < voxels) ++trimmed;
    // What is said of the source stays what it is.
    OutputSpec plain = Segments(Activation::kArgmax, 2);
    plain.Set<SegmentationSpec>().model_grid = false;
    const OutputResult alone = Decide(plain, prepared, y);
    CHECK(!alone.model.has_value());
    CHECK(alone.mask == highest.mask);
    CHECK(alone.counts == highest.counts);
  }
  EQUAL(wrong, 0);
  // A voxel is 0.7 mm and more; coordinates are floats of up to 90 mm.
  CHECK(worst < 1e-3);
  CHECK(checked > 500000);
  CHECK(trimmed > 20);
}
END;

TEST(
    "maps that come slice by slice are decided the same, also where the source needs few of their "
    "slices") {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> values(-3, 3);
  for (const Acquisition& a : AllAcquisitions()) {
    // Between two slices of the source lie five or six of the model's.
    const Scan scan(a, {9, 8, 7}, {5, 4, 3}, [&](const PatientPoint&) { return values(random); });
    InputSpec input = VolumeSpec("SPL");
    input.interpolation = Interpolation::kSpline;
    input.resampling = ResamplingSpec{};
    input.resampling->spacing_mm = {0.9, 0.8, 0.7};
    const PreparedVolume prepared = PrepareVolume(scan.planes, scan.geometry, input, {});
    TilingSpec tiling;
    tiling.window = {8, 10, 12};
    tiling.overlap = 0.25;
    const size_t axis = prepared.placement.TensorAxis(0);
    const TiledView view = {false, 2, {axis, prepared.placement.axes[axis].flipped}, {}, nullptr};
    const Tensor y = RunTiled(prepared.tensor, tiling, view, {}, ThreeWaves).at(0);
    for (const bool fractional : {false, true}) {
      const OutputSpec spec = Segments(Activation::kSoftmax, 2, fractional);
      const OutputResult whole = Decide(spec, prepared, y);
      const std::vector<double> thresholds(2, 0.4);
      TiledSlices slices(prepared.tensor, tiling, view, {}, ThreeWaves);
      Tensor fingerprint;
      const OutputResult sliced =
          PostprocessSlices(spec, slices, prepared, {}, thresholds, {}, fingerprint);
      CHECK(sliced.mask == whole.mask);
      EQUAL(whole.model->Voxels(), prepared.tensor.Elements());
      CHECK(sliced.model->mask == whole.model->mask);
      CHECK(sliced.model->counts == whole.model->counts);
      CHECK(sliced.model->fractions == whole.model->fractions);
      CHECK(whole.model->counts.at(0) > 0);
    }
  }
}
END;

TEST("a voxel of the model whose centre lies in Pixel Padding is background") {
  const Scan scan({}, {8, 8, 4}, {1, 1, 2}, [](const PatientPoint&) { return 1.0F; });
  InputSpec input = VolumeSpec("SPL");
  input.spacing_mm = {1, 2, 2};
  input.fit = Fit::kLetterbox;
  PreparedVolume prepared = PrepareVolume(scan.planes, scan.geometry, input, {});
  EQUAL(ShapeText(prepared.tensor.shape), "[1,1,8,4,4]");
  // The last column and the first row of the first slice; centres of the model lie between four
  // pixels, and the one with the higher numbers counts.
  prepared.padding.assign(4 * 8 * 8, 0);
  for (size_t i = 0; i < 8; ++i) {
    prepared.padding[i * 8 + 7] = 1;
    prepared.padding[i] = 1;
  }
  Tensor y = MakeTensor("y", Dtype::kUint8, {1, 1, 8, 4, 4});
  std::memset(y.data, 1, y.Bytes());
  OutputSpec spec = Segments(Activation::kLabelMap, 1);
  const OutputResult out = Decide(spec, prepared, y);
  for (size_t i = 0; i < out.model->mask.size(); ++i) {
    const bool padded = i < 32 && i % 4 == 3;
    EQUAL(static_cast<int>(out.model->mask[i]), padded ? 0 : 1);
  }
  EQUAL(out.model->counts.at(0), 128 - 8);
}
END;

TEST("steps go over the model's grid, and count its voxels by their volume") {
  // Voxels of the source are 1 mm3, those of the model 8.
  const Scan scan({}, {16, 16, 16}, {1, 1, 1}, [](const PatientPoint&) { return 1.0F; });
  InputSpec input = VolumeSpec("SPL");
  input.spacing_mm = {2, 2, 2};
  input.fit = Fit::kLetterbox;
  const PreparedVolume prepared = PrepareVolume(scan.planes, scan.geometry, input, {});
  Tensor y = MakeTensor("y", Dtype::kUint8, {1, 1, 8, 8, 8});
  std::memset(y.data, 0, y.Bytes());
  const auto mark = [&](size_t z, size_t row, size_t x) {
    y.data[(z * 8 + row) * 8 + x] = std::byte{1};
  };
  // Three voxels, which are 24 of the source; and one, which is 8.
  mark(2, 2, 2);
  mark(2, 2, 3);
  mark(3, 2, 3);
  mark(6, 6, 6);
  OutputSpec spec = Segments(Activation::kLabelMap, 1);
  for (const auto& [pixels, left] :
       std::vector<std::pair<int, int64_t>>{{8, 4}, {9, 3}, {24, 3}, {25, 0}}) {
    spec.Set<SegmentationSpec>().steps = {{MaskStep::Kind::kMinimumArea, {1}, pixels}};
    EQUAL(Decide(spec, prepared, y).model->counts.at(0), left);
  }
  spec.Set<SegmentationSpec>().steps = {{MaskStep::Kind::kLargestComponent, {1}, 0}};
  EQUAL(Decide(spec, prepared, y).model->counts.at(0), 3);
  // At the border of the source, where the tensor goes on.
  input.size = {SizeSpec::Kind::kFixed, 12, 12, 1, 0, 12};
  const PreparedVolume wide = PrepareVolume(scan.planes, scan.geometry, input, {});
  Tensor edge = MakeTensor("y", Dtype::kUint8, {1, 1, 12, 12, 12});
  std::memset(edge.data, 0, edge.Bytes());
  edge.data[(5 * 12 + 2) * 12 + 5] = std::byte{1};
  edge.data[(5 * 12 + 5) * 12 + 5] = std::byte{1};
  edge.data[(5 * 12 + 1) * 12 + 5] = std::byte{1};
  spec.Set<SegmentationSpec>().steps = {};
  EQUAL(Decide(spec, wide, edge).model->counts.at(0), 2);
  spec.Set<SegmentationSpec>().steps = {{MaskStep::Kind::kDropBorderConnected, {1}, 0}};
  EQUAL(Decide(spec, wide, edge).model->counts.at(0), 1);
}
END;

TEST("a map without a voxel within the source is refused") {
  const Scan scan({}, {2, 16, 16}, {1, 1, 1}, [](const PatientPoint&) { return 1.0F; });
  InputSpec input = VolumeSpec("SPL");
  input.size = {SizeSpec::Kind::kFixed, 16, 32, 1, 0, 16};
  input.fit = Fit::kLetterbox;
  input.spacing_mm = {1, 1, 1};
  const PreparedVolume prepared = PrepareVolume(scan.planes, scan.geometry, input, {});
  Tensor y = MakeTensor("y", Dtype::kUint8, {1, 1, 4, 4, 4});
  std::memset(y.data, 0, y.Bytes());
  EQUAL(CodeOf([&] { Decide(Segments(Activation::kLabelMap, 1), prepared, y); }), "output_invalid");
}
END;

}  // namespace
