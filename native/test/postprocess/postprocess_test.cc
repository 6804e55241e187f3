#include "postprocess/postprocess.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "check.h"
#include "description.h"
#include "postprocess/boxes.h"
#include "postprocess/detections.h"
#include "postprocess/kind.h"
#include "postprocess/masks.h"

using namespace radserve;
using namespace radserve::test;

namespace {

Tensor Floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  Tensor t = MakeTensor("y", Dtype::kFloat32, std::move(shape));
  if (!values.empty()) std::memcpy(t.data, values.data(), values.size() * sizeof(float));
  return t;
}

OutputResult Run(const OutputSpec& spec, const Tensor& tensor, const Geometry& g,
                 const std::vector<double>& thresholds = {},
                 const std::vector<uint8_t>& padding = {}) {
  return Postprocess(
      spec, [&](const std::string&) -> const Tensor& { return tensor; }, {g, padding, false},
      thresholds);
}

Geometry Same(int rows, int columns) {
  return PlaceImage(rows, columns, 1, {{SizeSpec::Kind::kSource, 0, 0, 1, 0}, Fit::kNone});
}

OutputSpec Spec(const OutputKind* kind, Activation activation, int labels) {
  OutputSpec spec;
  spec.kind = kind;
  spec.tensor = "y";
  spec.activation = activation;
  spec.labels = labels;
  return spec;
}

/// '.' background, digits labels, '#' padding.
struct Picture {
  std::vector<uint8_t> mask, padding;
  int rows, columns;
  explicit Picture(const std::vector<std::string>& lines)
      : rows(static_cast<int>(lines.size())), columns(static_cast<int>(lines[0].size())) {
    for (const std::string& line : lines) {
      for (const char c : line) {
        mask.push_back(c >= '1' && c <= '9' ? static_cast<uint8_t>(c - '0') : 0);
        padding.push_back(c == '#' ? 1 : 0);
      }
    }
  }
  MaskView View(int slices = 0) { return {mask, slices, rows, columns, padding}; }
  std::string Text() const {
    std::string text;
    for (size_t i = 0; i < mask.size(); ++i)
      text += padding[i] != 0 ? '#' : mask[i] == 0 ? '.' : static_cast<char>('0' + mask[i]);
    return text;
  }
};

TEST("classification: sigmoid, softmax, calibration") {
  const Tensor logits = Floats({1, 2}, {0, 2});
  OutputSpec spec = Spec(&kinds::classification, Activation::kSigmoid, 2);
  NEAR(Run(spec, logits, Same(1, 1)).values[1], 1 / (1 + std::exp(-2.0)), 1e-7);
  const auto calibrate = [&](const Description& calibration) {
    kinds::classification.read(Object({{"calibration", calibration}}), spec);
  };
  calibrate(Object({{"kind", Text("temperature")}, {"temperature", Number(2)}}));
  NEAR(Run(spec, logits, Same(1, 1)).values[1], 1 / (1 + std::exp(-1.0)), 1e-7);
  spec.activation = Activation::kSoftmax;
  NEAR(Run(spec, logits, Same(1, 1)).values[0], 1 / (1 + std::exp(1.0)), 1e-7);
  spec.activation = Activation::kNone;
  calibrate(Object({{"kind", Text("platt")}, {"a", Number(-2)}, {"b", Number(1)}}));
  NEAR(Run(spec, logits, Same(1, 1)).values[1], 1 / (1 + std::exp(-3.0)), 1e-7);
  calibrate(Object(
      {{"kind", Text("isotonic")}, {"x", Numbers({0.5, 1, 4})}, {"y", Numbers({0.1, 0.2, 0.8})}}));
  const auto values = Run(spec, logits, Same(1, 1)).values;
  NEAR(values[0], 0.1, 1e-7);
  NEAR(values[1], 0.4, 1e-7);
  for (const float none : {NAN, -std::numeric_limits<float>::infinity()})
    EQUAL(CodeOf([&] { Run(spec, Floats({1, 2}, {none, 2}), Same(1, 1)); }), "output_invalid");
}
END;

TEST("segmentation: channels may be more than labels have numbers, if enough of them are ignored") {
  OutputSpec spec = Spec(&kinds::segmentation, Activation::kArgmax, 250);
  // Channel 0 is background.
  for (int channel = 10; channel < 70; ++channel) spec.ignored.push_back(channel);
  const size_t channels = 311;
  std::vector<float> map(channels * channels);
  for (size_t c = 0; c < channels; ++c) map[c * channels + c] = 1;
  const auto mask = Run(spec, Floats({1, 311, 1, 311}, map), Same(1, 311)).mask;
  for (size_t c = 0; c < channels; ++c)
    EQUAL(size_t{mask.at(c)}, c < 10 ? c : c < 70 ? size_t{0} : c - 60);
}
END;

TEST(
    "classification: softmax goes over the classes, which lie along the last side that is longer "
    "than one") {
  const OutputSpec spec = Spec(&kinds::classification, Activation::kSoftmax, 6);
  const std::vector<float> logits = {0, 1, 2, 5, 5, 5};
  const double sum = 1 + std::exp(1.0) + std::exp(2.0);
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1, 2, 3}, {2, 3}, {1, 2, 3, 1, 1}}) {
    const auto scores = Run(spec, Floats(shape, logits), Same(1, 1)).values;
    NEAR(scores[0], 1 / sum, 1e-6);
    NEAR(scores[3], 1.0 / 3, 1e-6);
  }
  const auto whole = Run(spec, Floats({1, 6}, logits), Same(1, 1)).values;
  NEAR(whole[3], 1 / (3 + sum * std::exp(-5.0)), 1e-6);
  const OutputSpec one = Spec(&kinds::classification, Activation::kSoftmax, 1);
  NEAR(Run(one, Floats({1, 1}, {3}), Same(1, 1)).values[0], 1, 1e-7);
}
END;

TEST("outputs that do not fit, or are no numbers, are refused") {
  const OutputSpec spec = Spec(&kinds::classification, Activation::kNone, 3);
  EQUAL(CodeOf([&] { Run(spec, Floats({1, 2}, {0, 1}), Same(1, 1)); }), "output_invalid");
  EQUAL(CodeOf([&] { Run(spec, Floats({1, 3}, {0, NAN, 1}), Same(1, 1)); }), "output_invalid");
  const OutputSpec map = Spec(&kinds::segmentation, Activation::kLabelMap, 2);
  EQUAL(CodeOf([&] { Run(map, Floats({1, 1, 1, 2}, {0, 3}), Same(1, 2)); }), "output_invalid");
}
END;

TEST("what is infinite before an activation is refused, and no score of 1") {
  const auto code = [](const OutputSpec& spec, const std::vector<int64_t>& shape, float first) {
    std::vector<float> values(Floats(shape, {}).Elements(), 0.5F);
    values[0] = first;
    return CodeOf([&] { Run(spec, Floats(shape, values), Same(1, 2), {0.5, 0.5}); });
  };
  const auto refused = [&](const OutputSpec& spec, const std::vector<int64_t>& shape) {
    EQUAL(code(spec, shape, 0.25F), "none");
    for (const float odd : {INFINITY, -INFINITY, NAN})
      EQUAL(code(spec, shape, odd), "output_invalid");
  };
  for (const Activation activation : {Activation::kSigmoid, Activation::kSoftmax}) {
    refused(Spec(&kinds::classification, activation, 2), {1, 2});
    refused(Spec(&kinds::segmentation, activation, 2),
            {1, activation == Activation::kSoftmax ? 3 : 2, 1, 2});
  }
  OutputSpec isotonic = Spec(&kinds::classification, Activation::kNone, 2);
  kinds::classification.read(
      Object(
          {{"calibration",
            Object({{"kind", Text("isotonic")}, {"x", Numbers({0, 1})}, {"y", Numbers({0, 1})}})}}),
      isotonic);
  refused(isotonic, {1, 2});
  OutputSpec map = Spec(&kinds::heatmap, Activation::kSigmoid, 1);
  refused(map, {1, 1, 1, 2});
  map.activate_last = true;
  refused(map, {1, 1, 1, 2});
  OutputSpec regions = Spec(&kinds::probability_map, Activation::kSigmoid, 1);
  regions.Set<MapBoxesSpec>() = {0.3, 0, 1, 100};
  refused(regions, {1, 1, 1, 2});
}
END;

TEST("argmax on the same grid is exact, first channel wins ties") {
  const OutputSpec spec = Spec(&kinds::segmentation, Activation::kArgmax, 2);
  const OutputResult out = Run(spec, Floats({1, 3, 1, 3}, {1, 0, 5, 1, 2, 0, 0, 2, 9}), Same(1, 3));
  CHECK((out.mask == std::vector<uint8_t>{0, 1, 2}));
  CHECK((out.counts == std::vector<int64_t>{1, 1}));
  CHECK(!out.overlapping);
}
END;

TEST("probabilities are interpolated before they are decided") {
  // Map of 2 pixels over a source of 8: the step from 0 to 1 crosses a half at the middle.
  const OutputSpec spec = Spec(&kinds::segmentation, Activation::kArgmax, 1);
  const Geometry g = PlaceImage(1, 8, 1, {{SizeSpec::Kind::kFixed, 1, 2, 1, 0}, Fit::kStretch});
  const OutputResult out = Run(spec, Floats({1, 2, 1, 2}, {1, 0, 0, 1}), g);
  CHECK((out.mask == std::vector<uint8_t>{0, 0, 0, 0, 1, 1, 1, 1}));
  const OutputSpec soft = Spec(&kinds::segmentation, Activation::kSigmoid, 1);
  const OutputResult low = Run(soft, Floats({1, 1, 1, 2}, {-100, 100}), g, {0.25});
  CHECK((low.mask == std::vector<uint8_t>{0, 0, 0, 1, 1, 1, 1, 1}));
}
END;

TEST("letterbox and a map with a stride go back to their source pixels") {
  // Source 2 x 4 in a tensor of 8 x 8 (rows 2 to 5), map of 4 x 4: rows 1 and 2 hold the image.
  const Geometry g = PlaceImage(2, 4, 1, {{SizeSpec::Kind::kFixed, 8, 8, 1, 0}, Fit::kLetterbox});
  const OutputSpec spec = Spec(&kinds::segmentation, Activation::kLabelMap, 4);
  const OutputResult out =
      Run(spec, Floats({1, 4, 4}, {4, 4, 4, 4, 1, 2, 3, 1, 0, 1, 0, 1, 4, 4, 4, 4}), g);
  CHECK((out.mask == std::vector<uint8_t>{1, 2, 3, 1, 0, 1, 0, 1}));
}
END;

TEST("outside a crop and on padding there is background") {
  const Geometry g = PlaceImage(2, 4, 1, {{SizeSpec::Kind::kFixed, 2, 2, 1, 0}, Fit::kCrop});
  const OutputSpec spec = Spec(&kinds::segmentation, Activation::kLabelMap, 1);
  const OutputResult out = Run(spec, Floats({2, 2}, {1, 1, 1, 1}), g, {}, {0, 1, 0, 0, 0, 0, 0, 0});
  CHECK((out.mask == std::vector<uint8_t>{0, 0, 1, 0, 0, 1, 1, 0}));
}
END;

TEST("sigmoid planes overlap, channels last is understood") {
  const OutputSpec spec = Spec(&kinds::segmentation, Activation::kSigmoid, 2);
  const OutputResult out =
      Run(spec, Floats({1, 1, 3, 2}, {9, 9, -9, 9, 9, -9}), Same(1, 3), {0.5, 0.5});
  CHECK(out.overlapping);
  CHECK((out.mask == std::vector<uint8_t>{1, 0, 1, 1, 1, 0}));
  CHECK((out.counts == std::vector<int64_t>{2, 2}));
}
END;

TEST("drop_border_connected takes the border, padding and nothing else") {
  Picture p({"1.....", ".111..", ".1.1.2", ".111..", "....1#", "..1..."});
  DropBorderConnected(p.View(), 1);
  EQUAL(p.Text(), Picture({"......", ".111..", ".1.1.2", ".111..", ".....#", "......"}).Text());
  // A diagonal is no connection: 4-neighbours.
  Picture diagonal({"1....", ".1...", ".....", "....."});
  DropBorderConnected(diagonal.View(), 1);
  EQUAL(diagonal.Text(), Picture({".....", ".1...", ".....", "....."}).Text());
}
END;

TEST("largest_component, minimum_area, fill_holes") {
  Picture p({"11.1", "....", "1.22", "1.22"});
  KeepLargestComponent(p.View(), 1);
  EQUAL(p.Text(), Picture({"11..", "....", "..22", "..22"}).Text());
  Picture small({"11.1", "....", "1.2.", "1.2."});
  DropSmallComponents(small.View(), 1, 2);
  EQUAL(small.Text(), Picture({"11..", "....", "1.2.", "1.2."}).Text());
  Picture holes({".11111.", ".1.2#1.", ".1...1.", ".11111.", ".1.1..."});
  FillHoles(holes.View(), 1);
  EQUAL(holes.Text(), Picture({".11111.", ".112#1.", ".11111.", ".11111.", ".1.1..."}).Text());
  // An image that a network takes for a volume of one slice
  Picture flat({".111.", ".1.1.", ".111.", ".1.1."});
  FillHoles(flat.View(1), 1);
  EQUAL(flat.Text(), Picture({".111.", ".111.", ".111.", ".1.1."}).Text());
}
END;

TEST("a probability map becomes grown boxes in source pixels") {
  std::vector<float> map(8 * 8, 0);
  for (const int i : {9, 10, 17, 18}) map[static_cast<size_t>(i)] = 0.8f;  // 2 x 2 at (1,1)
  map[27] = 0.6f;  // (3,3): joined by a corner
  map[62] = 0.9f;  // one pixel: too small
  OutputSpec spec = Spec(&kinds::probability_map, Activation::kNone, 1);
  spec.Set<MapBoxesSpec>() = {0.3, 2, 1, 100};
  const Geometry g = PlaceImage(16, 16, 1, {{SizeSpec::Kind::kFixed, 8, 8, 1, 0}, Fit::kStretch});
  OutputResult out = Run(spec, Floats({1, 1, 8, 8}, map), g, {0.7});
  EQUAL(out.boxes.size(), 1u);
  // 3 x 3 box, area / perimeter = 9 / 12 on each side, two source pixels a map pixel.
  NEAR(out.boxes[0].x0, 0.5, 1e-9);
  NEAR(out.boxes[0].y1, 9.5, 1e-9);
  NEAR(out.boxes[0].score, (4 * 0.8 + 0.6) / 5, 1e-6);
  EQUAL(Run(spec, Floats({1, 1, 8, 8}, map), g, {0.9}).boxes.size(), 0u);
  spec.Set<MapBoxesSpec>().unclip = 10;
  out = Run(spec, Floats({1, 1, 8, 8}, map), g, {0.7});
  EQUAL(out.boxes[0].x0, 0);
  EQUAL(out.boxes[0].x1, 16);
}
END;

TEST("detections: the scores of a box lie side by side") {
  OutputSpec spec = Spec(&kinds::detection, Activation::kNone, 2);
  spec.Set<DetectionSpec>().list.scores = "s";
  spec.Set<DetectionSpec>().max_boxes = 100;
  const Geometry g = Same(8, 8);
  const Tensor boxes = Floats({1, 3, 4}, {0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 8, 8});
  const auto run = [&](const std::vector<int64_t>& shape) {
    const Tensor scores = Floats(shape, {0.9f, 0, 0, 0.8f, 0.7f, 0});
    const std::vector<double> thresholds = {0.5, 0.5};
    return Postprocess(
        spec,
        [&](const std::string& name) -> const Tensor& { return name == "s" ? scores : boxes; },
        {g, {}, false}, thresholds);
  };
  const OutputResult out = run({1, 3, 2});
  EQUAL(out.boxes.size(), size_t{3});
  EQUAL(out.boxes[1].label, 1);
  CHECK(run({3, 2}).boxes.size() == 3);
  EQUAL(CodeOf([&] { run({1, 2, 3}); }), "output_invalid");
  EQUAL(CodeOf([&] { run({6}); }), "output_invalid");
}
END;

TEST("heatmaps go back to the source, padding is 0") {
  const OutputSpec spec = Spec(&kinds::heatmap, Activation::kNone, 1);
  const Geometry g = PlaceImage(1, 4, 1, {{SizeSpec::Kind::kFixed, 1, 2, 1, 0}, Fit::kStretch});
  const OutputResult out = Run(spec, Floats({1, 1, 1, 2}, {0, 1}), g, {}, {0, 0, 0, 1});
  NEAR(out.values[1], 0.25, 1e-6);
  NEAR(out.values[2], 0.75, 1e-6);
  EQUAL(out.values[3], 0);
}
END;

}  // namespace
