#include <cstring>

#include "check.h"
#include "planes.h"
#include "prepare/image.h"

using namespace radserve;
using namespace radserve::test;

namespace {

void Same(const Tensor& found, const std::vector<double>& expected, double tolerance = 1e-6) {
  const std::vector<float> values = AsFloats(found);
  EQUAL(values.size(), expected.size());
  for (size_t i = 0; i < expected.size() && i < values.size(); ++i)
    NEAR(values[i], expected[i], tolerance);
}

InputSpec Sized(int height, int width, Fit fit) {
  InputSpec spec = PlainSpec();
  spec.size = {SizeSpec::Kind::kFixed, height, width, 1, 0};
  spec.fit = fit;
  return spec;
}

TEST("background fills the letterbox and is normalised like values") {
  OwnedPlane p(1, 2, std::vector<uint8_t>{10, 30});
  InputSpec spec = Sized(4, 4, Fit::kLetterbox);
  spec.interpolation = Interpolation::kNearest;
  spec.background = 20;
  spec.normalisation.kind = NormalisationSpec::Kind::kScale;
  spec.normalisation.multiply = 0.1;
  spec.normalisation.add = -1;
  const PreparedImage prepared = PrepareImage({&p.plane, 1}, 0, spec);
  EQUAL(ShapeText(prepared.tensor.shape), "[1,1,4,4]");
  Same(prepared.tensor, {1, 1, 1, 1, 0, 0, 2, 2, 0, 0, 2, 2, 1, 1, 1, 1});
}
END;

TEST("layouts and channels") {
  OwnedPlane p(1, 2, std::vector<uint8_t>{1, 2, 3, 4, 5, 6}, 8, false, Photometric::kRgb);
  InputSpec spec = PlainSpec();
  spec.channels = ChannelOrder::kRgb;
  Same(PrepareImage({&p.plane, 1}, 0, spec).tensor, {1, 4, 2, 5, 3, 6});
  spec.channels_last = true;
  spec.dtype = Dtype::kUint8;
  const Tensor last = PrepareImage({&p.plane, 1}, 0, spec).tensor;
  EQUAL(ShapeText(last.shape), "[1,1,2,3]");
  Same(last, {1, 2, 3, 4, 5, 6});
}
END;

TEST("mean and std follow the tensor's channels, grey is repeated") {
  OwnedPlane p(1, 1, std::vector<uint8_t>{100});
  InputSpec spec = PlainSpec();
  spec.channels = ChannelOrder::kBgr;
  spec.normalisation.kind = NormalisationSpec::Kind::kMeanStd;
  spec.normalisation.mean = {0, 50, 100};
  spec.normalisation.std = {1, 2, 4};
  Same(PrepareImage({&p.plane, 1}, 0, spec).tensor, {100, 25, 0});
}
END;

TEST("statistics come from the source, after clip, without padding") {
  OwnedPlane p(1, 4, std::vector<uint8_t>{0, 10, 30, 255});
  p.plane.interpretation.padding = PaddingRange{0, 0};
  InputSpec spec = PlainSpec();
  spec.clip = {0, 50};
  spec.background = 10;
  spec.normalisation.kind = NormalisationSpec::Kind::kMinMax;
  spec.normalisation.to = {-1, 1};
  Same(PrepareImage({&p.plane, 1}, 0, spec).tensor, {-1, -1, 0, 1});
  spec.normalisation.kind = NormalisationSpec::Kind::kZScore;
  const double deviation = std::sqrt(800.0 / 3);
  Same(PrepareImage({&p.plane, 1}, 0, spec).tensor,
       {-20 / deviation, -20 / deviation, 0, 20 / deviation});
  spec.normalisation.kind = NormalisationSpec::Kind::kPercentile;
  spec.normalisation.low = 50;
  spec.normalisation.high = 100;
  spec.normalisation.to = {0, 1};
  Same(PrepareImage({&p.plane, 1}, 0, spec).tensor, {-1, -1, 0, 1});
}
END;

TEST("an image without contrast stays finite") {
  OwnedPlane p(1, 2, std::vector<uint8_t>{7, 7});
  InputSpec spec = PlainSpec();
  spec.normalisation.to = {-1, 1};
  spec.normalisation.kind = NormalisationSpec::Kind::kMinMax;
  Same(PrepareImage({&p.plane, 1}, 0, spec).tensor, {-1, -1});
  spec.normalisation.kind = NormalisationSpec::Kind::kZScore;
  Same(PrepareImage({&p.plane, 1}, 0, spec).tensor, {0, 0});
}
END;

TEST("integers are rounded to even and saturate") {
  OwnedPlane p(1, 4, std::vector<float>{-3, 0.5f, 1.5f, 300});
  p.plane.format.is_float = true;
  InputSpec spec = PlainSpec();
  spec.dtype = Dtype::kUint8;
  Same(PrepareImage({&p.plane, 1}, 0, spec).tensor, {0, 0, 2, 255});
  spec.dtype = Dtype::kInt8;
  Same(PrepareImage({&p.plane, 1}, 0, spec).tensor, {-3, 0, 2, 127});
}
END;

TEST("clip holds after cubic overshoots") {
  OwnedPlane p(1, 6, std::vector<uint8_t>{0, 0, 0, 100, 100, 100});
  InputSpec spec = Sized(1, 12, Fit::kStretch);
  spec.interpolation = Interpolation::kCubic;
  spec.clip = {0, 100};
  for (const float v : AsFloats(PrepareImage({&p.plane, 1}, 0, spec).tensor))
    CHECK(v >= 0 && v <= 100);
}
END;

TEST("padding does not leak through resampling as a stored value") {
  OwnedPlane p(1, 4, std::vector<int16_t>{-2000, -2000, 100, 100}, 16, true);
  p.plane.interpretation.padding = PaddingRange{-2000, -2000};
  InputSpec spec = Sized(1, 1, Fit::kStretch);
  spec.interpolation = Interpolation::kArea;
  Same(PrepareImage({&p.plane, 1}, 0, spec).tensor, {50});
}
END;

TEST("halves are IEEE binary16") {
  EQUAL(ToHalf(1.0f), 0x3c00);
  EQUAL(ToHalf(65504.0f), 0x7bff);
  EQUAL(ToHalf(65520.0f), 0x7c00);
  EQUAL(ToHalf(5.9604645e-8f), 1);
  EQUAL(ToHalf(-0.333251953125f), 0xb555);
  EQUAL(ToHalf(6.1e-5f), 0x03ff);
  EQUAL(ToHalf(2049.0f), 0x6800);
  for (int i = 0; i < 0x7c00; ++i) EQUAL(ToHalf(FromHalf(static_cast<uint16_t>(i))), i);
}
END;

}  // namespace
