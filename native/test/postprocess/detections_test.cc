#include "postprocess/detections.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "check.h"
#include "description.h"
#include "postprocess/kind.h"
#include "postprocess/torchvision_reference.h"

using namespace radserve;
using namespace radserve::test;

namespace {

constexpr int kSide = 1024;

Geometry Square() {
  return PlaceImage(kSide, kSide, 1, {{SizeSpec::Kind::kSource, 0, 0, 1, 0}, Fit::kNone});
}

Tensor Floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  Tensor t = MakeTensor("y", Dtype::kFloat32, std::move(shape));
  if (!values.empty()) std::memcpy(t.data, values.data(), values.size() * sizeof(float));
  return t;
}

OutputSpec Spec(int labels) {
  OutputSpec spec;
  spec.kind = &kinds::detection;
  spec.tensor = "y";
  spec.labels = labels;
  spec.Set<DetectionSpec>().max_boxes = 1000;
  return spec;
}

/// The heads of the reference.
enum Head { kColumnsFirst, kLogits, kObjectness, kObjectnessLogits, kSix };

OutputSpec Spec(Head head, int labels) {
  OutputSpec spec = Spec(labels);
  auto& own = spec.Set<DetectionSpec>();
  own.format = BoxFormat::kCxcywh;
  TableSpec table{true, 4 + labels, {0, 1, 2, 3}, 4, true, {}, {}, Activation::kNone};
  if (head == kLogits || head == kObjectnessLogits) spec.activation = Activation::kSigmoid;
  if (head == kObjectness || head == kObjectnessLogits) {
    table = {false, 5 + labels, {0, 1, 2, 3}, 5, true, {}, 4, spec.activation};
    own.normalised = head == kObjectness;
    if (head == kObjectnessLogits) own.format = BoxFormat::kXywh;
  }
  if (head == kSix) {
    // y1 x1 y2 x2 class score
    table = {false, 6, {1, 0, 3, 2}, 5, false, 4, {}, Activation::kNone};
    own.format = BoxFormat::kXyxy;
    own.first_class = 1;
  }
  own.table = table;
  return spec;
}

/// A row of [1, N, 6] (x1 y1 x2 y2 score class).
using Row = std::array<float, 6>;

Tensor Rows(const std::vector<Row>& rows) {
  std::vector<float> values;
  for (const Row& row : rows) values.insert(values.end(), row.begin(), row.end());
  return Floats({1, static_cast<int64_t>(rows.size()), 6}, values);
}

OutputSpec RowsSpec(int labels) {
  OutputSpec spec = Spec(labels);
  spec.Set<DetectionSpec>().table =
      TableSpec{false, 6, {0, 1, 2, 3}, 4, false, 5, {}, Activation::kNone};
  return spec;
}

std::vector<Box> Decode(const OutputSpec& spec, const Tensor& tensor,
                        std::vector<double> thresholds, const Geometry& g = Square()) {
  return DecodeDetections(ReadTable(tensor, spec), spec, g, thresholds);
}

TEST("detections: formats, best label, thresholds, suppression, order") {
  OutputSpec spec = Spec(2);
  auto& own = spec.Set<DetectionSpec>();
  const Geometry g = PlaceImage(20, 40, 1, {{SizeSpec::Kind::kFixed, 10, 20, 1, 0}, Fit::kStretch});
  RawDetections raw;
  raw.boxes = {0, 0, 4, 4, 1, 0, 5, 4, 10, 5, 16, 9, 2, 2, 2, 5};
  raw.scores = {0.9f, 0.1f, 0.7f, 0.8f, 0.2f, 0.6f, 0.9f, 0.9f};
  const std::vector<double> thresholds = {0.5, 0.5};
  own.nms = SuppressionSpec{0.5, false};
  std::vector<Box> boxes = DecodeDetections(raw, spec, g, thresholds);
  EQUAL(boxes.size(), 2u);
  EQUAL(boxes[0].x1, 8);
  EQUAL(boxes[1].label, 1);
  EQUAL(boxes[1].y0, 10);
  own.nms->per_class = true;
  EQUAL(DecodeDetections(raw, spec, g, thresholds).size(), 3u);
  own.format = BoxFormat::kCxcywh;
  raw.boxes = {5, 5, 4, 2};
  raw.scores = {0.9f};
  raw.classes = {3};
  own.first_class = 2;
  boxes = DecodeDetections(raw, spec, g, thresholds);
  EQUAL(boxes[0].x0, 6);
  EQUAL(boxes[0].y1, 12);
  EQUAL(boxes[0].label, 1);
  raw.classes = {4};
  EQUAL(CodeOf([&] { DecodeDetections(raw, spec, g, thresholds); }), "output_invalid");
  own.format = BoxFormat::kYxyx;
  own.normalised = true;
  raw.boxes = {0.1f, 0.2f, 0.5f, 0.6f};
  raw.classes = {2};
  boxes = DecodeDetections(raw, spec, g, thresholds);
  NEAR(boxes[0].x0, 8, 1e-5);
  NEAR(boxes[0].y0, 2, 1e-5);
}
END;

TEST("detections: suppression gives what torchvision gives") {
  for (const SuppressionCase& c : kSuppression) {
    const int before = Failures();
    OutputSpec spec = Spec(3);
    spec.Set<DetectionSpec>().nms = SuppressionSpec{c.iou, c.per_class};
    RawDetections raw{
        c.boxes, c.scores, std::vector<float>(c.classes.begin(), c.classes.end()), {}, {}};
    const std::vector<Box> boxes =
        DecodeDetections(raw, spec, Square(), std::vector<double>{0, 0, 0});
    EQUAL(boxes.size(), c.keep.size());
    for (size_t i = 0; i < std::min(boxes.size(), c.keep.size()); ++i) {
      const float* const edges = c.boxes.data() + c.keep[i] * 4;
      const Box& box = boxes[i];
      const bool same = std::array{box.x0, box.y0, box.x1, box.y1} ==
                        std::array<double, 4>{edges[0], edges[1], edges[2], edges[3]};
      CHECK(same && box.score == c.scores[c.keep[i]] && box.label == c.classes[c.keep[i]]);
    }
    if (Failures() > before) std::cerr << "  in: " << c.name << "\n";
  }
}
END;

TEST("detections: whole heads give what torch and torchvision give") {
  for (const HeadCase& c : kHeads) {
    const int before = Failures();
    OutputSpec spec = Spec(static_cast<Head>(c.head), c.labels);
    spec.Set<DetectionSpec>().nms = SuppressionSpec{c.iou, true};
    spec.Set<DetectionSpec>().several_labels = c.several;
    const std::vector<double> thresholds(static_cast<size_t>(c.labels), c.threshold);
    const std::vector<Box> boxes = Decode(spec, Floats(c.shape, c.values), thresholds);
    EQUAL(boxes.size(), c.scores.size());
    CHECK(c.scores.size() > 4);
    for (size_t i = 0; i < std::min(boxes.size(), c.scores.size()); ++i) {
      NEAR(boxes[i].score, c.scores[i], 1e-6);
      EQUAL(boxes[i].label, c.found[i]);
      const std::array found = {boxes[i].x0, boxes[i].y0, boxes[i].x1, boxes[i].y1};
      for (size_t k = 0; k < 4; ++k) EQUAL(found[k], static_cast<double>(c.boxes[i * 4 + k]));
    }
    if (Failures() > before)
      std::cerr << "  in: " << c.name << (c.several ? ", several labels" : "") << "\n";
  }
}
END;

TEST("detections: a score that is the threshold in float32 reaches it") {
  const OutputSpec spec = RowsSpec(1);
  const float below = std::nextafterf(0.9f, 0);
  const Tensor rows = Rows({{1, 1, 9, 9, 0.9f, 0}, {1, 1, 9, 9, below, 0}});
  // 0.9 is greater than the float next to it.
  EQUAL(Decode(spec, rows, {0.9}).size(), 1u);
  EQUAL(Decode(spec, rows, {0.0}).size(), 2u);
  EQUAL(Decode(spec, rows, {1.0}).size(), 0u);
}
END;

TEST("detections: edges in the wrong order count as implausible where their score is reached") {
  const OutputSpec spec = RowsSpec(1);
  const Tensor rows = Rows({{8, 8, 3, 2, 0.9f, 0}, {8, 1, 9, 0, 0.9f, 0}, {8, 8, 3, 2, 0.1f, 0}});
  const std::vector<double> thresholds = {0.5};
  size_t implausible = 0;
  EQUAL(DecodeDetections(ReadTable(rows, spec), spec, Square(), thresholds, &implausible).size(),
        0u);
  EQUAL(implausible, 2u);
}
END;

TEST("detections: no box at all, and rows that a network fills up") {
  OutputSpec spec = RowsSpec(2);
  spec.Set<DetectionSpec>().nms = SuppressionSpec{0.5};
  EQUAL(Decode(spec, Floats({1, 0, 6}, {}), {0.5, 0.5}).size(), 0u);
  EQUAL(Decode(spec, Rows({{0, 0, 0, 0, 0, -1}, {5, 5, 9, 9, 0, 7}}), {0.0, 0.0}).size(), 0u);
  OutputSpec columns = Spec(kColumnsFirst, 2);
  EQUAL(Decode(columns, Floats({1, 6, 0}, {}), {0.5, 0.5}).size(), 0u);
}
END;

TEST("detections: at most max_boxes, the best; those outside the image do not count") {
  OutputSpec spec = RowsSpec(1);
  spec.Set<DetectionSpec>().max_boxes = 2;
  const float out = kSide + 1;
  const Tensor rows = Rows({{out, 1, out + 5, 9, 0.9f, 0},
                            {1, 1, 9, 9, 0.5f, 0},
                            {2, 1, 9, 9, 0.5f, 0},
                            {0, 1, 9, 9, 0.5f, 0},
                            {3, 1, 9, 9, 0.4f, 0}});
  const std::vector<Box> boxes = Decode(spec, rows, {0.1});
  EQUAL(boxes.size(), 2u);
  EQUAL(boxes[0].x0, 1);
  EQUAL(boxes[1].x0, 2);
}
END;

TEST("detections: boxes go back through letterbox and crop, counted from edges") {
  // 40 x 80 into 32 x 32: scale 0.4, 16 rows from row 8 on.
  const Geometry letterbox =
      PlaceImage(40, 80, 1, {{SizeSpec::Kind::kFixed, 32, 32, 1, 0}, Fit::kLetterbox});
  const OutputSpec spec = RowsSpec(1);
  const Tensor whole =
      Rows({{0, 8, 32, 24, 0.9f, 0}, {4, 12, 12, 16, 0.8f, 0}, {0, 0, 32, 8, 0.7f, 0}});
  std::vector<Box> boxes = Decode(spec, whole, {0.5}, letterbox);
  EQUAL(boxes.size(), 2u);
  EQUAL(boxes[0].x1, 80);
  EQUAL(boxes[0].y0, 0);
  EQUAL(boxes[0].y1, 40);
  EQUAL(boxes[1].x0, 10);
  EQUAL(boxes[1].x1, 30);
  EQUAL(boxes[1].y0, 10);
  EQUAL(boxes[1].y1, 20);
  // The 40 x 40 pixels from column 20 on.
  const Geometry crop = PlaceImage(40, 80, 1, {{SizeSpec::Kind::kFixed, 32, 32, 1, 0}, Fit::kCrop});
  boxes = Decode(spec, Rows({{0, 0, 16, 32, 0.9f, 0}}), {0.5}, crop);
  EQUAL(boxes[0].x0, 20);
  EQUAL(boxes[0].x1, 40);
  EQUAL(boxes[0].y1, 40);
  OutputSpec normalised = RowsSpec(1);
  normalised.Set<DetectionSpec>().normalised = true;
  boxes = Decode(normalised, Rows({{0.5f, 0.5f, 1, 0.75f, 0.9f, 0}}), {0.5}, letterbox);
  EQUAL(boxes[0].x0, 40);
  EQUAL(boxes[0].y0, 20);
  EQUAL(boxes[0].y1, 40);
}
END;

TEST("detections: what a table must not hold") {
  const OutputSpec spec = RowsSpec(2);
  const auto code = [&](const Tensor& tensor) {
    return CodeOf([&] { Decode(spec, tensor, {0.5, 0.5}); });
  };
  EQUAL(code(Rows({{1, 1, 9, 9, 0.9f, 1}})), "none");
  EQUAL(code(Rows({{1, 1, 9, 9, 0.9f, 2}})), "output_invalid");
  EQUAL(code(Rows({{1, 1, 9, 9, 0.9f, -1}})), "output_invalid");
  EQUAL(code(Rows({{1, 1, 9, 9, 0.9f, 0.5f}})), "output_invalid");
  EQUAL(code(Rows({{1, 1, 9, 9, 0.9f, 1e30f}})), "output_invalid");
  // A logit
  EQUAL(code(Rows({{1, 1, 9, 9, 3, 1}})), "output_invalid");
  EQUAL(code(Rows({{1, 1, 9, 9, -3, 1}})), "output_invalid");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t i = 0; i < 6; ++i) {
    Row row = {1, 1, 9, 9, 0.1f, 0};
    row[i] = nan;
    EQUAL(code(Rows({row})), "output_invalid");
  }
  EQUAL(code(Floats({1, 6, 2}, std::vector<float>(12))), "output_invalid");
  EQUAL(code(Floats({2, 1, 6}, std::vector<float>(12))), "output_invalid");
  EQUAL(code(Floats({12}, std::vector<float>(12))), "output_invalid");
  EQUAL(code(Floats({2, 6}, std::vector<float>(12))), "none");
  OutputSpec objectness = Spec(kObjectness, 1);
  const auto scored = [&](float value) {
    return CodeOf([&] {
      Decode(objectness, Floats({1, 1, 6}, {0.5, 0.5, 0.1f, 0.1f, value, 0.5f}), {0.5});
    });
  };
  EQUAL(scored(0.5f), "none");
  EQUAL(scored(2), "output_invalid");
  EQUAL(scored(nan), "output_invalid");
  // Sigmoid would make 1 of an infinity, of scores and of how sure it is of them
  const OutputSpec logits = Spec(kObjectnessLogits, 1);
  const float infinity = std::numeric_limits<float>::infinity();
  const auto logit = [&](float objects, float score) {
    return CodeOf([&] {
      Decode(logits, Floats({1, 1, 6}, {0.5, 0.5, 0.1f, 0.1f, objects, score}), {0.5});
    });
  };
  EQUAL(logit(20, 20), "none");
  for (const float odd : {infinity, -infinity, nan}) {
    EQUAL(logit(odd, 1), "output_invalid");
    EQUAL(logit(1, odd), "output_invalid");
  }
}
END;

TEST("weighted clustering ends where no box is to share more than all of another") {
  const auto texts = [](const std::vector<const char*>& all) {
    Description::Items items;
    for (const char* one : all) items.push_back(Text(one));
    return Description(std::move(items));
  };
  OutputSpec spec;
  spec.kind = &kinds::volume_detection;
  spec.labels = 1;
  spec.kind->read(
      Object(
          {{"boxes", Object({{"kind", Text("list")},
                             {"tensor", Text("boxes")},
                             {"columns", texts({"depth_min", "height_min", "width_min", "depth_max",
                                                "height_max", "width_max"})}})},
           {"scores", Object({{"tensor", Text("scores")}, {"activation", Text("none")}})},
           {"counted_from", Text("edges")},
           {"candidates",
            Object({{"least_score", Number(0)}, {"least_size", Number(0)}, {"most", Number(10)}})},
           {"max_boxes", Number(10)},
           {"windows", Object({{"kind", Text("weighted")}, {"iou", Number(1)}})}}),
      spec);
  SeenWindow whole;
  whole.sides = {8, 8, 8};
  InputSpec input;
  input.volume = true;
  input.size.kind = SizeSpec::Kind::kSource;
  const VolumePlacement placement = PlaceVolume({8, 8, 8}, {}, input);
  FoundCuboids found;
  for (const float score : {0.5F, 0.75F, 0.25F})
    found.boxes.push_back({{1, 1, 1}, {4, 4, score > 0.3F ? 4.0 : 5.0}, score, 0});
  const std::vector<double> thresholds = {0};
  const std::vector<Box> boxes =
      PostprocessCuboids(spec, found, {&whole, 1}, placement, thresholds).boxes;
  EQUAL(boxes.size(), size_t{3});
  NEAR(boxes.at(0).score, 0.75, 1e-6);
  NEAR(boxes.at(2).score, 0.25, 1e-6);
  NEAR(boxes.at(2).x1, 5, 1e-6);
}
END;

}  // namespace
