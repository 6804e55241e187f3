#include "prepare/pixels.h"

#include <cmath>
#include <limits>

#include "check.h"
#include "planes.h"
#include "prepare/channels.h"

using namespace radserve;
using namespace radserve::test;

namespace {

Statistics Measure(const Plane& plane, const InputSpec& spec, double low, double high) {
  return ChannelSource({&plane, 1}, 0, spec).Measure(low, high);
}

/// All values of the source, by pixel, channels together.
std::vector<float> Read(const Plane& plane, const InputSpec& spec) {
  const PixelSource source(plane, spec);
  const auto columns = static_cast<size_t>(plane.format.columns);
  const auto channels = static_cast<size_t>(source.channels());
  std::vector<std::vector<float>> rows(channels, std::vector<float>(columns));
  std::vector<float*> pointers;
  for (auto& row : rows) pointers.push_back(row.data());
  std::vector<float> out;
  for (int y = 0; y < plane.format.rows; ++y) {
    source.Row(y, pointers.data());
    for (size_t x = 0; x < columns; ++x) {
      for (size_t c = 0; c < channels; ++c) out.push_back(rows[c][x]);
    }
  }
  return out;
}

void Same(const std::vector<float>& found, const std::vector<double>& expected,
          double tolerance = 0) {
  EQUAL(found.size(), expected.size());
  for (size_t i = 0; i < expected.size() && i < found.size(); ++i)
    NEAR(found[i], expected[i], tolerance);
}

InputSpec VoiSpec(int index = 0) {
  InputSpec spec = PlainSpec();
  spec.values.kind = ValuesSpec::Kind::kVoi;
  spec.values.index = index;
  return spec;
}

VoiTransform MakeWindow(double center, double width, WindowFunction function) {
  VoiTransform voi;
  voi.window = {center, width, function};
  return voi;
}

VoiTransform MakeVoiLut(LookupTable lut) {
  VoiTransform voi;
  voi.lut = std::move(lut);
  return voi;
}

ModalityTransform Rescale(double slope, double intercept) {
  ModalityTransform m;
  m.kind = ModalityTransform::Kind::kRescale;
  m.slope = slope;
  m.intercept = intercept;
  return m;
}

TEST("values sit at high bit and are read by sign") {
  OwnedPlane p(1, 3, std::vector<uint16_t>{0x7ff0, 0x8000, 0xfff5}, 12, true);
  p.plane.format.high_bit = 15;
  Same(Read(p.plane, PlainSpec()), {2047, -2048, -1});
  OwnedPlane overlay(1, 2, std::vector<uint16_t>{0xf123, 0x1fff}, 12);
  Same(Read(overlay.plane, PlainSpec()), {0x123, 0xfff});
}
END;

TEST("every container is read") {
  Same(Read(OwnedPlane(1, 2, std::vector<int8_t>{-128, 127}, 8, true).plane, PlainSpec()),
       {-128, 127});
  Same(Read(OwnedPlane(1, 2, std::vector<int32_t>{-70000, 70000}, 32, true).plane, PlainSpec()),
       {-70000, 70000});
  Same(Read(OwnedPlane(1, 2, std::vector<uint32_t>{0, 4294967295u}).plane, PlainSpec()),
       {0, 4294967296.0});
  Same(Read(OwnedPlane(1, 2, std::vector<int64_t>{-5, 1 << 20}, 64, true).plane, PlainSpec()),
       {-5, 1 << 20});
  OwnedPlane floats(1, 2, std::vector<float>{-1.5f, 3e8f});
  floats.plane.format.is_float = true;
  Same(Read(floats.plane, PlainSpec()), {-1.5, 3e8});
  OwnedPlane doubles(1, 2, std::vector<double>{0.25, -7});
  doubles.plane.format.is_float = true;
  Same(Read(doubles.plane, PlainSpec()), {0.25, -7});
}
END;

TEST("an odd address is read too") {
  std::vector<uint8_t> bytes = {9, 1, 0, 2, 0};
  OwnedPlane p(1, 2, std::vector<uint16_t>{0, 0});
  p.plane.data = std::span(bytes).subspan(1);
  Same(Read(p.plane, PlainSpec()), {1, 2});
}
END;

TEST("rescale is applied in modality, not in stored") {
  OwnedPlane p(1, 2, std::vector<uint16_t>{0, 100});
  p.plane.interpretation.modality = Rescale(0.5, -1024);
  Same(Read(p.plane, PlainSpec()), {-1024, -974});
  InputSpec stored = PlainSpec();
  stored.values.kind = ValuesSpec::Kind::kStored;
  Same(Read(p.plane, stored), {0, 100});
}
END;

TEST("slope 0 is refused") {
  OwnedPlane p(1, 1, std::vector<uint8_t>{0});
  p.plane.interpretation.modality = Rescale(0, 5);
  EQUAL(CodeOf([&] { PixelSource(p.plane, PlainSpec()); }), "corrupt_image");
}
END;

TEST("a modality LUT starts at its first mapped value and holds its ends") {
  OwnedPlane p(1, 5, std::vector<int16_t>{-20, -10, -9, -8, 50}, 16, true);
  p.plane.interpretation.modality.kind = ModalityTransform::Kind::kLut;
  p.plane.interpretation.modality.lut = {-10, 16, {100, 300, 65535}};
  Same(Read(p.plane, PlainSpec()), {100, 100, 300, 65535, 65535});
}
END;

TEST("LINEAR uses c - 0.5 and w - 1") {
  // PS3.3 C.11.2.1.2.1: c 2048 and w 4096 map 0..4095 to 0..1.
  OwnedPlane p(1, 3, std::vector<uint16_t>{0, 2048, 4095}, 12);
  p.plane.interpretation.voi = {MakeWindow(2048, 4096, WindowFunction::kLinear)};
  Same(Read(p.plane, VoiSpec()), {0, 2048 / 4095.0, 1}, 1e-6);
  // Width 1 is a step: at or below c - 0.5 black, above it white.
  OwnedPlane step(1, 3, std::vector<uint16_t>{99, 100, 101});
  step.plane.interpretation.voi = {MakeWindow(100.5, 1, WindowFunction::kLinear)};
  Same(Read(step.plane, VoiSpec()), {0, 0, 1});
}
END;

TEST("LINEAR_EXACT uses c and w, SIGMOID its formula") {
  OwnedPlane p(1, 3, std::vector<uint8_t>{50, 100, 125});
  p.plane.interpretation.voi = {MakeWindow(100, 100, WindowFunction::kLinearExact),
                                MakeWindow(100, 100, WindowFunction::kSigmoid)};
  Same(Read(p.plane, VoiSpec(0)), {0, 0.5, 0.75}, 1e-7);
  Same(Read(p.plane, VoiSpec(1)), {1 / (1 + std::exp(2.0)), 0.5, 1 / (1 + std::exp(-1.0))}, 1e-7);
}
END;

TEST("a VOI LUT takes modality values") {
  OwnedPlane p(1, 3, std::vector<uint8_t>{0, 1, 2});
  p.plane.interpretation.modality = Rescale(1, 10);
  p.plane.interpretation.voi = {MakeVoiLut({11, 8, {0, 255}})};
  Same(Read(p.plane, VoiSpec()), {0, 0, 1});
}
END;

TEST("an absent window is full range, min-max or refused, as asked") {
  OwnedPlane p(1, 3, std::vector<uint16_t>{10, 20, 30}, 8);
  InputSpec spec = VoiSpec(3);
  EQUAL(CodeOf([&] { PixelSource(p.plane, spec); }), "no_model_accepts");
  spec.values.if_absent = ValuesSpec::IfAbsent::kFullRange;
  Same(Read(p.plane, spec), {10 / 255.0, 20 / 255.0, 30 / 255.0}, 1e-7);
  spec.values.if_absent = ValuesSpec::IfAbsent::kMinMax;
  Same(Read(p.plane, spec), {0, 0.5, 1}, 1e-7);
  p.plane.interpretation.padding = PaddingRange{30, 30};
  Same(Read(p.plane, spec), {0, 1, 0}, 1e-7);
}
END;

TEST("a frame goes over the bits of its own file, whatever it is kept in") {
  OwnedPlane p(1, 2, std::vector<uint16_t>{0, 1023}, 14);
  p.plane.interpretation.own_bits = StoredBits{10, false};
  InputSpec spec = VoiSpec(ValuesSpec::kNoWindow);
  spec.values.if_absent = ValuesSpec::IfAbsent::kFullRange;
  Same(Read(p.plane, spec), {0, 1});
  p.plane.format.photometric = Photometric::kMonochrome1;
  Same(Read(p.plane, spec), {1, 0});
  Same(Read(p.plane, PlainSpec()), {1023, 0});
  spec.values.kind = ValuesSpec::Kind::kStored;
  Same(Read(p.plane, spec), {1023, 0});
  p.plane.format.is_signed = true;
  p.plane.interpretation.modality = Rescale(2, 0);
  Same(Read(p.plane, PlainSpec()), {2046, 0});
}
END;

TEST("MONOCHROME1 is inverted over the output range, HU never") {
  OwnedPlane p(1, 2, std::vector<uint16_t>{0, 1000}, 12, false, Photometric::kMonochrome1);
  InputSpec spec = PlainSpec();
  spec.values.kind = ValuesSpec::Kind::kStored;
  Same(Read(p.plane, spec), {4095, 3095});
  p.plane.interpretation.modality = Rescale(2, -10);
  Same(Read(p.plane, PlainSpec()), {8180, 6180});
  p.plane.interpretation.hounsfield = true;
  Same(Read(p.plane, PlainSpec()), {-10, 1990});
  InputSpec window = PlainSpec();
  window.values.kind = ValuesSpec::Kind::kWindow;
  window.values.window = {990, 2000, WindowFunction::kLinearExact};
  Same(Read(p.plane, window), {1, 0}, 1e-6);
  spec.monochrome1 = InputSpec::Monochrome1::kAsStored;
  Same(Read(p.plane, spec), {0, 1000});
  spec.monochrome1 = InputSpec::Monochrome1::kRefuse;
  EQUAL(CodeOf([&] { PixelSource(p.plane, spec); }), "no_model_accepts");
}
END;

TEST("padding compares stored values and becomes background, whatever the transform") {
  OwnedPlane p(1, 4, std::vector<int16_t>{-2000, -1990, 0, 5}, 16, true, Photometric::kMonochrome1);
  p.plane.interpretation.modality = Rescale(1, -1024);
  p.plane.interpretation.padding = PaddingRange{-1990, -2000};
  InputSpec spec = PlainSpec();
  spec.background = 7;
  p.plane.interpretation.hounsfield = true;
  Same(Read(p.plane, spec), {7, 7, -1024, -1019});
  const PixelSource source(p.plane, spec);
  const Statistics s = Measure(p.plane, spec, 0, 100);
  EQUAL(s.min, -1024);
  EQUAL(s.max, -1019);
  EQUAL(s.mean, -1021.5);
  CHECK((source.PaddingMask() == std::vector<uint8_t>{1, 1, 0, 0}));
}
END;

TEST("floats that are no numbers are padding") {
  OwnedPlane p(1, 3, std::vector<float>{std::numeric_limits<float>::quiet_NaN(), 1, 3});
  p.plane.format.is_float = true;
  Same(Read(p.plane, PlainSpec()), {0, 1, 3});
  EQUAL(Measure(p.plane, PlainSpec(), 0, 100).mean, 2);
}
END;

TEST("percentiles interpolate between ranks") {
  OwnedPlane p(1, 5, std::vector<uint8_t>{10, 20, 30, 40, 50});
  const Statistics s = Measure(p.plane, PlainSpec(), 10, 75);
  NEAR(s.low, 14, 1e-12);
  NEAR(s.high, 40, 1e-12);
  NEAR(s.std, std::sqrt(200.0), 1e-12);
}
END;

TEST("colour: RGB, BGR, luminance, full range") {
  OwnedPlane p(1, 2, std::vector<uint8_t>{255, 0, 0, 0, 100, 200}, 8, false, Photometric::kRgb);
  InputSpec spec = PlainSpec();
  EQUAL(CodeOf([&] { PixelSource(p.plane, spec); }), "no_model_accepts");
  spec.accept_colour = true;
  Same(Read(p.plane, spec), {76.245, 81.5}, 1e-4);
  spec.channels = ChannelOrder::kRgb;
  Same(Read(p.plane, spec), {255, 0, 0, 0, 100, 200});
  spec.channels = ChannelOrder::kBgr;
  Same(Read(p.plane, spec), {0, 0, 255, 200, 100, 0});
  spec.values.kind = ValuesSpec::Kind::kVoi;
  Same(Read(p.plane, spec), {0, 0, 1, 200 / 255.0, 100 / 255.0, 0}, 1e-7);
  spec.clip = {0.25, 0.5};
  Same(Read(p.plane, spec), {0.25, 0.25, 0.5, 0.5, 100 / 255.0, 0.25}, 1e-7);
}
END;

TEST("YBR_FULL becomes RGB by CCIR 601") {
  // Red, green, blue, grey; the reference is the inverse of PS3.3 C.7.6.3.1.2, rounded.
  OwnedPlane p(1, 4, std::vector<uint8_t>{76, 85, 255, 150, 44, 21, 29, 255, 107, 128, 128, 128}, 8,
               false, Photometric::kYbrFull);
  InputSpec spec = PlainSpec();
  spec.channels = ChannelOrder::kRgb;
  Same(Read(p.plane, spec), {254, 0, 0, 0, 255, 1, 0, 0, 254, 128, 128, 128});
}
END;

TEST("packed YBR_FULL_422 shares chroma between two pixels") {
  OwnedPlane p(1, 4, std::vector<uint8_t>{10, 200, 128, 128, 76, 76, 85, 255}, 8, false,
               Photometric::kYbrFull422);
  p.plane.format.packed422 = true;
  InputSpec spec = PlainSpec();
  spec.channels = ChannelOrder::kRgb;
  Same(Read(p.plane, spec), {10, 10, 10, 200, 200, 200, 254, 0, 0, 254, 0, 0});
}
END;

TEST("YBR_PARTIAL_420 has studio range") {
  OwnedPlane p(1, 2, std::vector<uint8_t>{16, 128, 128, 235, 128, 128}, 8, false,
               Photometric::kYbrPartial420);
  InputSpec spec = PlainSpec();
  spec.channels = ChannelOrder::kRgb;
  Same(Read(p.plane, spec), {0, 0, 0, 255, 255, 255});
}
END;

TEST("palettes become RGB of 8 bits") {
  OwnedPlane p(1, 3, std::vector<uint8_t>{0, 1, 9}, 8, false, Photometric::kPalette);
  p.plane.interpretation.palette = Palette{1, 16, {0xff00, 0x8000}, {0, 0xffff}, {0x0100, 0}};
  InputSpec spec = PlainSpec();
  spec.channels = ChannelOrder::kRgb;
  Same(Read(p.plane, spec), {255, 0, 1, 255, 0, 1, 128, 255, 0});
  p.plane.interpretation.palette.reset();
  EQUAL(CodeOf([&] { PixelSource(p.plane, spec); }), "corrupt_image");
}
END;

TEST("indices of a palette have a sign where Pixel Representation says so") {
  OwnedPlane p(1, 3, std::vector<uint8_t>{0xfe, 0xff, 0}, 8, true, Photometric::kPalette);
  p.plane.interpretation.palette = Palette{-2, 8, {10, 20, 30}, {40, 50, 60}, {70, 80, 90}};
  InputSpec spec = PlainSpec();
  spec.channels = ChannelOrder::kRgb;
  Same(Read(p.plane, spec), {10, 40, 70, 20, 50, 80, 30, 60, 90});
  p.plane.format.photometric = Photometric::kRgb;
  EQUAL(CodeOf([&] { PixelSource(p.plane, spec); }), "corrupt_image");
}
END;

TEST("short data is an error, never filled up") {
  OwnedPlane p(2, 2, std::vector<uint16_t>{1, 2, 3});
  EQUAL(CodeOf([&] { PixelSource(p.plane, PlainSpec()); }), "truncated_image");
}
END;

TEST("table and arithmetic give the same pixels") {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  OwnedPlane p(256, 256, all, 16, true);
  p.plane.interpretation.modality = Rescale(0.1, -3.7);
  p.plane.interpretation.voi = {MakeWindow(40, 400, WindowFunction::kLinear)};
  const std::vector<float> fast = Read(p.plane, VoiSpec());
  const ValueMap map(p.plane, VoiSpec(), std::nullopt);
  for (size_t i = 0; i < all.size(); ++i) NEAR(fast[i], map(static_cast<int16_t>(all[i])), 2e-5);
}
END;

TEST("rescale is rounded once, from double") {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  OwnedPlane wide(256, 256, all, 16, true);
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  OwnedPlane narrow(1, 256, bytes);
  const std::pair<double, double> cases[] = {
      {1, -1024},  {0.5, -0.25},      {0.001, 0},    {0.0123456, -3.3}, {3.774114, 6e-5},
      {1e-6, 1e6}, {123456.7, 0.125}, {300, -70000}, {1.0 / 3, 1e-9},   {-2.25, 16777217.0}};
  for (const auto& [slope, intercept] : cases) {
    wide.plane.interpretation.modality = Rescale(slope, intercept);
    narrow.plane.interpretation.modality = Rescale(slope, intercept);
    const std::vector<float> words = Read(wide.plane, PlainSpec());
    for (size_t i = 0; i < all.size(); ++i) {
      EQUAL(words[i], static_cast<float>(static_cast<int16_t>(all[i]) * slope + intercept));
    }
    const std::vector<float> octets = Read(narrow.plane, PlainSpec());
    for (size_t i = 0; i < bytes.size(); ++i) {
      EQUAL(octets[i], static_cast<float>(bytes[i] * slope + intercept));
    }
  }
}
END;

}  // namespace
