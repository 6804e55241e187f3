#include "prepare/volume.h"

#include <random>

#include "check.h"
#include "planes.h"
#include "postprocess/kind.h"
#include "postprocess/masks.h"
#include "postprocess/postprocess.h"
#include "prepare/statistics.h"
#include "resample/resample.h"
#include "volumes.h"

using namespace radserve;
using namespace radserve::test;

namespace {

const std::array<int, 3> kSides = {5, 6, 7};

InputSpec Sized(const std::string& orientation, int depth, int height, int width, Fit fit) {
  InputSpec spec = VolumeSpec(orientation);
  spec.size = {SizeSpec::Kind::kFixed, height, width, 1, 0, depth};
  spec.fit = fit;
  return spec;
}

PreparedVolume Prepare(const Scan& scan, const InputSpec& spec) {
  return PrepareVolume(scan.planes, scan.geometry, spec, {});
}

OutputSpec LabelMapSpec() {
  OutputSpec spec;
  spec.kind = &kinds::segmentation;
  spec.tensor = "y";
  spec.activation = Activation::kLabelMap;
  spec.labels = 200;
  return spec;
}

OutputResult Back(const PreparedVolume& prepared, const Tensor& y, const OutputSpec& spec,
                  bool channels_last = false) {
  const std::vector<double> thresholds(static_cast<size_t>(spec.labels), 0.5);
  return PostprocessVolume(spec, [&](const std::string&) -> const Tensor& { return y; }, prepared,
                           {channels_last}, thresholds, {});
}

/// A different number at every voxel of the box, from 1, so that nothing can be confused; off
/// centre and lopsided.
float Number(const PatientPoint& at) {
  return 1 + std::floor(static_cast<float>(at[0])) + 5 * std::floor(static_cast<float>(at[1])) +
         30 * std::floor(static_cast<float>(at[2]));
}

/// The patient's point of a tensor voxel centre, when the volume is centred by whole voxels of 1
/// mm.
PatientPoint TensorPoint(const std::string& letters, const std::array<int, 3>& index) {
  PatientPoint at{};
  for (size_t a = 0; a < 3; ++a) {
    const auto [axis, against] = AxisOf(letters[a]);
    at[axis] = against ? kSides[axis] - index[a] - 0.5 : index[a] + 0.5;
  }
  return at;
}

TEST("of all 48 acquisitions the tensor is the same, voxel for voxel, and so is every way back") {
  int wrong_tensor = 0;
  int wrong_mask = 0;
  int flipped_same = 0;
  for (const std::string orientation : {"RAS", "LPS", "AIL", "SPL", "PRI", "LSA", "IRA"}) {
    for (const Acquisition& acquisition : AllAcquisitions()) {
      const Scan scan(acquisition, kSides, {1, 1, 1},
                      [](const PatientPoint& at) { return Number(at) > 200 ? 0 : Number(at); });
      const PreparedVolume prepared = Prepare(scan, VolumeSpec(orientation));
      const std::vector<float> values = AsFloats(prepared.tensor);
      const auto& shape = prepared.tensor.shape;
      size_t i = 0;
      for (int d = 0; d < shape[2]; ++d) {
        for (int h = 0; h < shape[3]; ++h) {
          for (int w = 0; w < shape[4]; ++w, ++i) {
            const float expected = Number(TensorPoint(orientation, {d, h, w}));
            if (values[i] != (expected > 200 ? 0 : expected)) ++wrong_tensor;
          }
        }
      }
      const OutputResult back = Back(prepared, prepared.tensor, LabelMapSpec());
      EQUAL(back.slices, scan.sides[0]);
      EQUAL(back.rows, scan.sides[1]);
      EQUAL(back.columns, scan.sides[2]);
      const std::vector<float> mask(back.mask.begin(), back.mask.end());
      if (mask != scan.voxels) ++wrong_mask;
      if (std::vector<float>(back.mask.rbegin(), back.mask.rend()) == scan.voxels) ++flipped_same;
      EQUAL(back.counts[0], 1);
    }
  }
  EQUAL(wrong_tensor, 0);
  EQUAL(wrong_mask, 0);
  EQUAL(flipped_same, 0);
}
END;

TEST("without orientation slices, rows and columns are depth, height and width") {
  const Scan scan({{0, 2, 1}, {true, false, true}}, kSides, {1, 2, 3}, Number);
  const PreparedVolume prepared = Prepare(scan, VolumeSpec(""));
  EQUAL(ShapeText(prepared.tensor.shape), "[1,1,5,7,6]");
  CHECK(AsFloats(prepared.tensor) == scan.voxels);
}
END;

TEST("letterbox at the volume's own spacing moves by whole voxels, whatever side is odd") {
  for (const Acquisition& acquisition : AllAcquisitions()) {
    const Scan scan(acquisition, kSides, {1, 1, 1},
                    [](const PatientPoint& at) { return std::min(200.0f, Number(at)); });
    InputSpec spec = Sized("RAS", 10, 9, 12, Fit::kLetterbox);
    spec.spacing_mm = {1, 1, 1};
    spec.background = 99;
    spec.interpolation = Interpolation::kLinear;
    const PreparedVolume prepared = Prepare(scan, spec);
    const std::vector<float> values = AsFloats(prepared.tensor);
    // 5 of 10, 6 of 9, 7 of 12 voxels: content begins at 2, 1 and 2.
    const auto at = [&](int d, int h, int w) {
      return values[static_cast<size_t>((d * 9 + h) * 12 + w)];
    };
    EQUAL(at(2, 1, 2), std::min(200.0f, Number(TensorPoint("RAS", {0, 0, 0}))));
    EQUAL(at(6, 6, 8), std::min(200.0f, Number(TensorPoint("RAS", {4, 5, 6}))));
    EQUAL(at(1, 1, 2), 99);
    EQUAL(at(7, 6, 8), 99);
    EQUAL(at(6, 6, 9), 99);
    const OutputResult back = Back(prepared, prepared.tensor, LabelMapSpec());
    CHECK(std::vector<float>(back.mask.begin(), back.mask.end()) == scan.voxels);
  }
}
END;

TEST("crop keeps the centre by whole voxels, and what was cut off is background in the mask") {
  for (const Acquisition& acquisition : AllAcquisitions()) {
    const Scan scan(acquisition, kSides, {1, 1, 1},
                    [](const PatientPoint& at) { return std::min(200.0f, Number(at)); });
    for (const bool by_spacing : {true, false}) {
      InputSpec spec = Sized("LPS", 3, 4, 4, Fit::kCrop);
      if (by_spacing) {
        spec.spacing_mm = {1, 1, 1};
      } else {
        spec.size = {SizeSpec::Kind::kFixed, 6, 5, 1, 0, 5};
      }
      const PreparedVolume prepared = Prepare(scan, spec);
      const OutputResult back = Back(prepared, prepared.tensor, LabelMapSpec());
      int wrong = 0;
      size_t kept = 0;
      scan.ForVoxels([&](size_t i, const PatientPoint& at) {
        // 3 of 5, 4 of 6, 4 of 7 voxels; 5 of 5, 6 of 6, 5 of 7.
        const bool inside =
            by_spacing ? at[0] > 1 && at[0] < 4 && at[1] > 1 && at[1] < 5 && at[2] > 2 && at[2] < 6
                       : at[2] > 1 && at[2] < 6;
        kept += inside ? 1 : 0;
        if (static_cast<float>(back.mask[i]) != (inside ? scan.voxels[i] : 0)) ++wrong;
      });
      EQUAL(wrong, 0);
      EQUAL(kept, prepared.tensor.Elements());
    }
  }
}
END;

/// Random grids of every kind, for the tests below.
struct Case {
  Acquisition acquisition;
  std::array<int, 3> sides{};
  PatientPoint spacing{};
  InputSpec spec;
};

Case RandomCase(std::mt19937& random) {
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
    c.sides[a] = whole(8, 30);
    c.spacing[a] = real(0.4, 4);
  }
  const std::array<Fit, 3> fits = {Fit::kStretch, Fit::kLetterbox, Fit::kCrop};
  const std::string letters = Letters(all[static_cast<size_t>(whole(0, 47))]);
  c.spec = Sized(letters, whole(5, 40), whole(5, 40), whole(5, 40),
                 fits[static_cast<size_t>(whole(0, 2))]);
  if (c.spec.fit != Fit::kStretch && whole(0, 1) == 1) {
    c.spec.spacing_mm = {real(0.5, 3), real(0.5, 3), real(0.5, 3)};
    c.spec.fit = Fit::kCrop;
  }
  return c;
}

TEST("points map to the tensor and back, to the right side of the patient") {
  std::mt19937 random(20261121);
  for (int round = 0; round < 2000; ++round) {
    const Case c = RandomCase(random);
    const Scan scan(c.acquisition, c.sides, c.spacing, [](const PatientPoint&) { return 0.0f; });
    const VolumePlacement placement = PlaceVolume(scan.sides, scan.geometry, c.spec);
    for (size_t a = 0; a < 3; ++a) {
      const VolumeAxis& axis = placement.axes[a];
      PatientPoint source = {scan.sides[0] / 2.0, scan.sides[1] / 2.0, scan.sides[2] / 2.0};
      const auto s = static_cast<size_t>(axis.source_axis);
      for (const double t : {-3.25, 0.0, 0.5, axis.tensor * 0.75, axis.tensor + 1.0}) {
        NEAR(axis.ToTensor(axis.ToSource(t)), t, 1e-9);
        NEAR(axis.ToSource(axis.ToTensor(t)), t, 1e-9);
      }
      // The volume's centre lies within half a voxel of the tensor's.
      NEAR(axis.ToSource(axis.tensor / 2.0), axis.source / 2.0, axis.scale * 0.5 + 1e-9);
      const auto [patient, against] = AxisOf(c.spec.orientation[a]);
      source[s] = axis.ToSource(1);
      const double low = scan.Where(source)[patient];
      source[s] = axis.ToSource(2);
      const double step = (scan.Where(source)[patient] - low) * (against ? -1 : 1);
      NEAR(step, axis.scale * scan.geometry.spacing[s], 1e-9);
      if (c.spec.spacing_mm) NEAR(step, (*c.spec.spacing_mm)[a], 1e-9);
    }
  }
}
END;

/// Neither constant nor symmetric: a slope along each axis of the patient.
float Slope(const PatientPoint& at) {
  return static_cast<float>(3 * at[0] - 2 * at[1] + 0.7 * at[2] + 5);
}

TEST(
    "a slope in the patient is that slope in the tensor, and a plane cuts the source where it cuts "
    "the "
    "patient") {
  std::mt19937 random(7);
  int checked = 0;
  int wrong = 0;
  int decided = 0;
  int misplaced = 0;
  for (int round = 0; round < 60; ++round) {
    Case c = RandomCase(random);
    // Finer than the source on both sides of the way: between voxels a slope is met exactly.
    c.spec.spacing_mm.reset();
    c.spec.fit = Fit::kStretch;
    const Scan scan(c.acquisition, c.sides, c.spacing, Slope);
    c.spec.size = {SizeSpec::Kind::kFixed, 41, 37, 1, 0, 33};
    const PreparedVolume prepared = Prepare(scan, c.spec);
    const std::vector<float> values = AsFloats(prepared.tensor);
    const double middle = 3 * c.sides[0] * c.spacing[0] / 2 - 2 * c.sides[1] * c.spacing[1] / 2 +
                          0.7 * c.sides[2] * c.spacing[2] / 2 + 5;
    Tensor y = MakeTensor("y", Dtype::kFloat32, {1, 2, 33, 41, 37});
    size_t i = 0;
    for (int d = 0; d < 33; ++d) {
      for (int h = 0; h < 41; ++h) {
        for (int w = 0; w < 37; ++w, ++i) {
          const std::array<int, 3> index = {d, h, w};
          PatientPoint source{};
          bool inside = true;
          for (size_t a = 0; a < 3; ++a) {
            const VolumeAxis& axis = prepared.placement.axes[a];
            const double at = axis.ToSource(index[a] + 0.5);
            source[static_cast<size_t>(axis.source_axis)] = at;
            inside = inside && at >= 0.5 && at <= axis.source - 0.5;
          }
          const float expected = Slope(scan.Where(source));
          if (inside) {
            ++checked;
            if (!(std::fabs(values[i] - expected) <= 2e-3f)) ++wrong;
          }
          const float logit = expected - static_cast<float>(middle);
          std::memcpy(y.data + (33 * 41 * 37 + i) * sizeof(float), &logit, sizeof(float));
        }
      }
    }
    OutputSpec spec = LabelMapSpec();
    spec.activation = Activation::kArgmax;
    spec.labels = 1;
    const OutputResult back = Back(prepared, y, spec);
    scan.ForVoxels([&](size_t voxel, const PatientPoint& at) {
      for (size_t a = 0; a < 3; ++a) {
        if (at[a] < c.spacing[a] || at[a] > (c.sides[a] - 1) * c.spacing[a]) return;
      }
      const double over = static_cast<double>(Slope(at)) - middle;
      // Antialiasing weighs samples that do not lie evenly round a voxel: a twentieth of a voxel at
      // most.
      if (std::fabs(over) < 0.05 * (3 * c.spacing[0] + 2 * c.spacing[1] + 0.7 * c.spacing[2]))
        return;
      ++decided;
      if ((over > 0) != (back.mask[voxel] == 1)) ++misplaced;
    });
  }
  EQUAL(wrong, 0);
  EQUAL(misplaced, 0);
  CHECK(checked > 1000000);
  CHECK(decided > 100000);
}
END;

TEST("channels may be more than labels have numbers, whichever way their maps go back") {
  const int channels = 311;
  OutputSpec spec = LabelMapSpec();
  spec.activation = Activation::kArgmax;
  spec.labels = 250;
  for (int channel = 10; channel < 70; ++channel) spec.ignored.push_back(channel);
  spec.Set<SegmentationSpec>().model_grid = true;
  const Scan scan({}, {8, 7, 6}, {1, 1, 1}, Slope);
  InputSpec by_ends = VolumeSpec("");
  by_ends.resampling.emplace();
  by_ends.resampling->grid = ResamplingSpec::Grid::kEnds;
  by_ends.resampling->order_back = 0;
  for (const InputSpec& input : {VolumeSpec(""), by_ends}) {
    const PreparedVolume prepared = Prepare(scan, input);
    const size_t voxels = scan.voxels.size();
    Tensor y = MakeTensor("y", Dtype::kFloat32, {1, channels, 6, 7, 8});
    std::vector<uint8_t> expected;
    for (size_t i = 0; i < voxels; ++i) {
      const size_t c = i % static_cast<size_t>(channels);
      reinterpret_cast<float*>(y.data)[c * voxels + i] = 1;
      expected.push_back(static_cast<uint8_t>(c < 10 ? c : c < 70 ? 0 : c - 60));
    }
    for (const bool probabilities : {false, true}) {
      const OutputResult back =
          PostprocessVolume(spec, [&](const std::string&) -> const Tensor& { return y; }, prepared,
                            {false, false, probabilities}, {}, {});
      CHECK(back.mask == expected);
      CHECK(back.model->mask == expected);
    }
  }
}
END;

TEST(
    "spacing in mm: twice the spacing halves the sides, own size follows, multiples pad in the "
    "middle") {
  const Scan scan({{2, 1, 0}, {false, false, false}}, {20, 16, 12}, {1, 1, 2}, Slope);
  InputSpec spec = VolumeSpec("SPL");
  spec.spacing_mm = {2, 2, 2};
  EQUAL(ShapeText(Prepare(scan, spec).tensor.shape), "[1,1,12,8,10]");
  spec.size = {SizeSpec::Kind::kMultipleOf, 0, 0, 8, 64};
  spec.fit = Fit::kLetterbox;
  spec.channels_last = true;
  const PreparedVolume padded = Prepare(scan, spec);
  EQUAL(ShapeText(padded.tensor.shape), "[1,16,8,16,1]");
  EQUAL(padded.placement.axes[0].first, 2);
  EQUAL(padded.placement.axes[2].first, 3);
  EQUAL(padded.placement.axes[2].count, 10);
  spec.size.max_side = 10;
  EQUAL(CodeOf([&] { Prepare(scan, spec); }), "no_model_accepts");
}
END;

TEST("grids that are the same but for rounding are copied") {
  const Scan scan({}, {20, 16, 12}, {1.00001, 0.99999, 1},
                  [](const PatientPoint& at) { return at[0] > 9 ? 100.0f : 1.0f; });
  InputSpec spec = Sized("SPL", 12, 16, 20, Fit::kLetterbox);
  spec.spacing_mm = {1, 1, 1};
  CHECK(AsFloats(Prepare(scan, spec).tensor) == scan.voxels);
}
END;

TEST("none takes what fits exactly and nothing else") {
  const Scan scan({}, {20, 16, 12}, {1, 1, 1.0005}, Slope);
  InputSpec spec = Sized("SPL", 12, 16, 20, Fit::kNone);
  CHECK(AsFloats(Prepare(scan, spec).tensor) == scan.voxels);
  spec.spacing_mm = {1, 1, 1};
  CHECK(AsFloats(Prepare(scan, spec).tensor) == scan.voxels);
  spec.spacing_mm = {1.1, 1, 1};
  EQUAL(CodeOf([&] { Prepare(scan, spec); }), "no_model_accepts");
  spec.spacing_mm.reset();
  spec.size.width = 21;
  EQUAL(CodeOf([&] { Prepare(scan, spec); }), "no_model_accepts");
  spec.size = {SizeSpec::Kind::kMultipleOf, 0, 0, 8, 32};
  const PreparedVolume padded = Prepare(scan, spec);
  EQUAL(ShapeText(padded.tensor.shape), "[1,1,16,16,24]");
  EQUAL(padded.placement.axes[2].first, 0);
}
END;

TEST("a volume that letterbox cannot hold at its spacing is refused") {
  const Scan scan({}, {20, 16, 12}, {1, 1, 1}, Slope);
  InputSpec spec = Sized("SPL", 12, 16, 19, Fit::kLetterbox);
  spec.spacing_mm = {1, 1, 1};
  EQUAL(CodeOf([&] { Prepare(scan, spec); }), "no_model_accepts");
}
END;

TEST("an oblique volume is turned by the closest quarter turns and keeps its voxels") {
  Scan scan({{0, 2, 1}, {false, true, false}}, kSides, {1, 1, 1}, Number);
  const double c = std::cos(0.5);
  const double s = std::sin(0.5);
  for (auto& direction : scan.geometry.direction) {
    direction = {c * direction[0] - s * direction[1], s * direction[0] + c * direction[1],
                 direction[2]};
  }
  const std::vector<float> values = AsFloats(Prepare(scan, VolumeSpec("RAS")).tensor);
  EQUAL(values.front(), Number(TensorPoint("RAS", {0, 0, 0})));
  EQUAL(values.back(), Number(TensorPoint("RAS", {4, 5, 6})));
}
END;

TEST("directions that are not at right angles are refused") {
  Scan scan({}, kSides, {1, 1, 1}, Number);
  scan.geometry.direction[0] = {0, std::sin(0.1), std::cos(0.1)};
  EQUAL(CodeOf([&] { Prepare(scan, VolumeSpec("RAS")); }), "series_invalid");
}
END;

TEST("slices that differ are refused") {
  Scan scan({}, kSides, {1, 1, 1}, Number);
  scan.planes[1].format.rows = 5;
  EQUAL(CodeOf([&] { Prepare(scan, VolumeSpec("")); }), "series_invalid");
}
END;

/// Slices of bytes with their own rescale: the volume's statistics are of what they mean.
struct ByteSlices {
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<Plane> planes;

  explicit ByteSlices(std::vector<std::vector<uint8_t>> given) : bytes(std::move(given)) {
    for (const auto& slice : bytes) {
      Plane p;
      p.format.rows = 1;
      p.format.columns = static_cast<int>(slice.size());
      p.data = slice;
      planes.push_back(p);
    }
  }
};

TEST("each slice has its own rescale, the volume one range, padding no part in it") {
  ByteSlices slices({{0, 10, 255}, {0, 10, 20}});
  slices.planes[0].interpretation.padding = PaddingRange{255, 255};
  slices.planes[1].interpretation.modality = {ModalityTransform::Kind::kRescale, 2, 0, {}};
  InputSpec spec = VolumeSpec("");
  spec.background = -4;
  spec.normalisation.kind = NormalisationSpec::Kind::kMinMax;
  PreparedVolume prepared = PrepareVolume(slices.planes, {}, spec, {});
  const auto same = [&](const std::vector<double>& expected) {
    const std::vector<float> values = AsFloats(prepared.tensor);
    EQUAL(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i) NEAR(values[i], expected[i], 1e-6);
  };
  same({0, 0.25, -0.1, 0, 0.5, 1});
  CHECK((prepared.padding == std::vector<uint8_t>{0, 0, 1, 0, 0, 0}));
  spec.clip = {0, 20};
  spec.background = 0;
  spec.normalisation.kind = NormalisationSpec::Kind::kPercentile;
  spec.normalisation.low = 25;
  spec.normalisation.high = 100;
  prepared = PrepareVolume(slices.planes, {}, spec, {});
  same({0, 0.5, 0, 0, 1, 1});
  spec.clip.reset();
  spec.normalisation.kind = NormalisationSpec::Kind::kZScore;
  prepared = PrepareVolume(slices.planes, {}, spec, {});
  const double std = std::sqrt((3 * 0.0 + 100 + 400 + 1600) / 5 - 14.0 * 14);
  same({-14 / std, -4 / std, -14 / std, -14 / std, 6 / std, 26 / std});
}
END;

TEST("channels are cropped together, and a mask leaves out what is 0 in all of them") {
  ByteSlices first({{0, 0, 0, 0, 0}, {0, 0, 30, 60, 0}});
  ByteSlices second({{0, 0, 7, 0, 0}, {0, 9, 0, 0, 0}});
  InputSpec spec = VolumeSpec("");
  spec.interpolation = Interpolation::kSpline;
  spec.resampling.emplace();
  spec.resampling->crop_nonzero = true;
  spec.resampling->keep_range = true;
  spec.normalisation.kind = NormalisationSpec::Kind::kZScore;
  spec.normalisation.nonzero = true;
  BodyFinder finder({2, 1, 5}, true);
  finder.Add(first.planes, spec, {});
  finder.Add(second.planes, spec, {});
  const VolumeBody body = finder.Take();
  CHECK((body.box.first == std::array<int, 3>{0, 0, 1}));
  CHECK((body.box.count == std::array<int, 3>{2, 1, 3}));
  CHECK((body.inside == std::vector<uint8_t>{0, 0, 1, 0, 0, 0, 1, 1, 1, 0}));
  const auto same = [&](const VolumeBody* given, const std::vector<double>& expected) {
    const PreparedVolume prepared =
        PrepareVolume(first.planes, {}, spec, {}, MakeTensorForOverwrite, given);
    const std::vector<float> values = AsFloats(prepared.tensor);
    EQUAL(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i) NEAR(values[i], expected[i], 1e-6);
    return prepared.found.value();
  };
  // Inside are 0, 0, 30 and 60: the mean is 22.5. What is outside is 0 after it.
  const double std = std::sqrt((900.0 + 3600) / 4 - 22.5 * 22.5);
  const Statistics found = same(&body, {0, -22.5 / std, 0, -22.5 / std, 7.5 / std, 37.5 / std});
  NEAR(found.mean, 22.5, 1e-9);
  NEAR(found.std, std, 1e-9);
  // By itself it would be the box of 30 and 60.
  const double own = same(nullptr, {-1, 1}).mean;
  NEAR(own, 45, 1e-9);
  ByteSlices uneven({{0, 1, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 9}});
  EQUAL(CodeOf([&] { finder.Add(uneven.planes, spec, {}); }), "series_invalid");
  EQUAL(CodeOf([&] { finder.Add(std::span(first.planes).first(1), spec, {}); }), "series_invalid");
  BodyFinder nothing({1, 1, 5}, false);
  nothing.Add(std::span(first.planes).first(1), spec, {});
  CHECK((nothing.Take().box.count == std::array<int, 3>{1, 1, 5}));
}
END;

TEST("a volume that is resampled in parts, by several threads, is to the bit that of one go") {
  const Scan scan({}, {41, 150, 9}, {1, 1, 2}, [](const PatientPoint& at) {
    return static_cast<float>(std::sin(at[0] * 0.9) + std::cos(at[1] * 1.7) * std::sin(at[2])) *
           100;
  });
  const auto columns = static_cast<size_t>(scan.sides[2]);
  const size_t plane = static_cast<size_t>(scan.sides[1]) * columns;
  for (const int order : {0, 1, 3}) {
    InputSpec spec = VolumeSpec("SPL");
    spec.interpolation = Interpolation::kSpline;
    spec.resampling.emplace();
    spec.resampling->order = order;
    spec.resampling->spacing_mm = {1.5, 0.8, 0.9};
    ThreadTeam team(3, [] { return true; });
    const PreparedVolume parts =
        PrepareVolume(scan.planes, scan.geometry, spec, {}, MakeTensorForOverwrite, nullptr, &team);
    VolumeTaps taps;
    for (int s = 0; s < 3; ++s) {
      taps[static_cast<size_t>(s)] =
          parts.placement.axes[parts.placement.TensorAxis(s)].Forward(spec.interpolation);
    }
    std::vector<float> whole;
    ResampleVolume(
        taps, scan.sides[2], 1,
        [&](int slice) -> RowSource {
          return [&, slice](int row, float* const* channels) {
            const size_t at =
                static_cast<size_t>(slice) * plane + static_cast<size_t>(row) * columns;
            std::copy_n(scan.voxels.data() + at, columns, channels[0]);
          };
        },
        [&](int, const float* const* planes) {
          whole.insert(whole.end(), planes[0], planes[0] + taps[1].size() * taps[2].size());
        });
    EQUAL(parts.tensor.shape[3], int64_t{188});
    CHECK(AsFloats(parts.tensor) == whole);
  }
}
END;

TEST("statistics of portions are those of the whole") {
  std::mt19937 random(3);
  std::normal_distribution<double> normal(1000, 50);
  std::vector<std::pair<double, uint64_t>> all;
  VolumeStatistics counted(true, true);
  VolumeStatistics single(true, false);
  for (int portion = 0; portion < 20; ++portion) {
    std::vector<std::pair<double, uint64_t>> values;
    for (int i = 0; i < 997; ++i)
      values.emplace_back(static_cast<float>(std::round(normal(random))), 1);
    all.insert(all.end(), values.begin(), values.end());
    counted.Add(values);
    single.Add(values);
  }
  const Statistics expected = Summary(all, 0.5, 99.3);
  for (VolumeStatistics* statistics : {&counted, &single}) {
    const Statistics found = statistics->Get(0.5, 99.3);
    EQUAL(found.min, expected.min);
    EQUAL(found.max, expected.max);
    NEAR(found.mean, expected.mean, 1e-9);
    NEAR(found.std, expected.std, 1e-9);
    NEAR(found.low, expected.low, 1e-9);
    NEAR(found.high, expected.high, 1e-9);
  }
}
END;

TEST("MONOCHROME1 is inverted over one range or not at all") {
  ByteSlices slices({{0, 255}, {1, 2}});
  for (Plane& p : slices.planes) p.format.photometric = Photometric::kMonochrome1;
  const PreparedVolume prepared = PrepareVolume(slices.planes, {}, VolumeSpec(""), {});
  CHECK((AsFloats(prepared.tensor) == std::vector<float>{255, 0, 254, 253}));
  slices.planes[1].interpretation.modality = {ModalityTransform::Kind::kRescale, 2, 0, {}};
  EQUAL(CodeOf([&] { PrepareVolume(slices.planes, {}, VolumeSpec(""), {}); }), "no_model_accepts");
  slices.planes[1].interpretation.modality = {};
  slices.planes[1].interpretation.own_bits = StoredBits{7, false};
  EQUAL(CodeOf([&] { PrepareVolume(slices.planes, {}, VolumeSpec(""), {}); }), "no_model_accepts");
  for (Plane& p : slices.planes) p.interpretation.hounsfield = true;
  CHECK((AsFloats(PrepareVolume(slices.planes, {}, VolumeSpec(""), {}).tensor) ==
         std::vector<float>{0, 255, 1, 2}));
}
END;

TEST("probabilities come back by channel, first or last, whole or reduced") {
  ByteSlices slices({{1, 2}, {3, 4}, {5, 6}, {7, 8}});
  slices.planes[3].interpretation.padding = PaddingRange{8, 8};
  const PreparedVolume prepared = PrepareVolume(slices.planes, {}, VolumeSpec(""), {});
  OutputSpec spec = LabelMapSpec();
  spec.activation = Activation::kSigmoid;
  spec.labels = 2;
  const auto filled = [](std::vector<int64_t> shape, const std::vector<float>& values) {
    Tensor y = MakeTensor("y", Dtype::kFloat32, std::move(shape));
    std::memcpy(y.data, values.data(), y.Bytes());
    return y;
  };
  const std::vector<uint8_t> expected = {0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0};
  const Tensor first =
      filled({1, 2, 4, 1, 2}, {-1, 1, -1, -1, 1, 1, -1, 1, 1, -1, -1, 1, -1, -1, -1, 1});
  CHECK(Back(prepared, first, spec).mask == expected);
  const Tensor last =
      filled({1, 4, 1, 2, 2}, {-1, 1, 1, -1, -1, -1, -1, 1, 1, -1, 1, -1, -1, -1, 1, 1});
  const OutputResult result = Back(prepared, last, spec, true);
  CHECK(result.mask == expected);
  CHECK((result.counts == std::vector<int64_t>{3, 2}));
  spec.activation = Activation::kSoftmax;
  spec.labels = 1;
  // Half as many slices as the source: the upper two of four are nearer to the second.
  const Tensor half = filled({2, 2, 1, 1}, {0, 2, 1, 0});
  CHECK((Back(prepared, half, spec).mask == std::vector<uint8_t>{1, 1, 1, 1, 0, 0, 0, 0}));
  EQUAL(CodeOf([&] {
          Back(prepared, filled({1, 3, 4, 1, 1}, std::vector<float>(12)), spec);
        }),
        "output_invalid");
  EQUAL(CodeOf([&] {
          Back(prepared, filled({2, 2, 1, 1}, {0, NAN, 1, 0}), spec);
        }),
        "output_invalid");
  EQUAL(CodeOf([&] {
          Back(prepared, filled({4, 1, 2}, std::vector<float>(8, 201)), LabelMapSpec());
        }),
        "output_invalid");
}
END;

TEST("a stop is heeded") {
  const Scan scan({}, kSides, {1, 1, 1}, Number);
  std::stop_source source;
  source.request_stop();
  EQUAL(CodeOf([&] {
          PrepareVolume(scan.planes, scan.geometry, VolumeSpec("RAS"), source.get_token());
        }),
        "cancelled");
}
END;

TEST("maps that come slice by slice give the same, however the volume lies in the tensor") {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> values(-3, 3);
  for (const Acquisition& a : AllAcquisitions()) {
    const Scan scan(a, {9, 12, 11}, {1, 1, 1}, [&](const PatientPoint&) { return values(random); });
    InputSpec input = VolumeSpec("SPL");
    input.resampling = ResamplingSpec{};
    input.resampling->spacing_mm = {1.4, 0.8, 1.3};
    input.resampling->activate_last = true;
    const PreparedVolume prepared = Prepare(scan, input);
    TilingSpec tiling;
    tiling.window = {4, 5, 6};
    tiling.overlap = 0.5;
    tiling.gaussian = {0.125, false, 1e-12};
    const size_t axis = prepared.placement.TensorAxis(0);
    const TiledView view = {false, 2, {axis, prepared.placement.axes[axis].flipped}, {}};
    for (const Activation activation : {Activation::kSoftmax, Activation::kSigmoid}) {
      OutputSpec spec = LabelMapSpec();
      spec.activation = activation;
      spec.labels = activation == Activation::kSoftmax ? 2 : 3;
      spec.Set<SegmentationSpec>().fractional = true;
      const std::vector<double> thresholds(static_cast<size_t>(spec.labels), 0.5);
      const Tensor y = RunTiled(prepared.tensor, tiling, view, {}, ThreeWaves).at(0);
      const VolumeView how = {false, true, false};
      const OutputResult whole =
          PostprocessVolume(spec, [&](const std::string&) -> const Tensor& { return y; }, prepared,
                            how, thresholds, {});
      TiledSlices slices(prepared.tensor, tiling, view, {}, ThreeWaves);
      Tensor fingerprint;
      const OutputResult sliced =
          PostprocessSlices(spec, slices, prepared, how, thresholds, {}, fingerprint);
      CHECK(sliced.mask == whole.mask);
      CHECK(sliced.counts == whole.counts);
      CHECK(sliced.fractions == whole.fractions);
      CHECK(std::ranges::count(whole.mask, 1) > 0);
      EQUAL(fingerprint.shape.at(0), y.shape.at(axis + 2));
    }
  }
}
END;

}  // namespace
