#include <utility>

#include "postprocess/activation.h"
#include "postprocess/detections.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

TableSpec ReadTable(const Description& o) {
  TableSpec table;
  table.columns_first = o.Flag("columns_first");
  table.columns = o.Int("columns");
  const std::vector<double> box = o.Numbers("box");
  for (size_t i = 0; i < table.box.size(); ++i) table.box[i] = static_cast<int>(box.at(i));
  table.score = o.Int("score");
  table.score_a_label = o.Flag("score_a_label");
  if (o.Has("class_column")) table.class_column = o.Int("class_column");
  if (o.Has("objectness")) {
    table.objectness = o.Int("objectness");
    table.objectness_activation = o.OneOf<Activation>(
        "objectness_activation", {{"none", Activation::kNone}, {"sigmoid", Activation::kSigmoid}});
  }
  if (o.Has("coefficients")) {
    table.coefficients = o.Int("coefficients");
    table.coefficient_count = o.Int("coefficient_count");
  }
  return table;
}

void ReadDetection(const Description& o, OutputSpec& spec) {
  spec.box_format = o.OneOf<BoxFormat>("format", {{"xyxy", BoxFormat::kXyxy},
                                                  {"xywh", BoxFormat::kXywh},
                                                  {"cxcywh", BoxFormat::kCxcywh},
                                                  {"yxyx", BoxFormat::kYxyx}});
  spec.normalised = o.Flag("normalised");
  spec.max_boxes = o.Int("max_boxes");
  if (o.Has("table")) {
    spec.table = ReadTable(o.Child("table"));
    spec.several_labels = o.Flag("several_labels");
  } else {
    spec.scores_tensor = o.Text("scores");
  }
  if (o.Has("classes")) spec.classes_tensor = o.Text("classes");
  if (o.Has("first")) spec.first_class = o.Int("first");
  if (o.Has("iou")) {
    spec.nms_iou = o.Number("iou");
    spec.nms_per_class = o.Flag("per_class");
  }
}

std::vector<Box> Detections(const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
                            std::span<const double> thresholds) {
  const Tensor& boxes = tensors(spec.tensor);
  if (spec.table) return DecodeDetections(ReadTable(boxes, spec), spec, grid.geometry, thresholds);
  const Tensor& scores = tensors(spec.scores_tensor);
  if (boxes.shape.empty() || boxes.shape.back() != 4) InvalidOutput(boxes, "four numbers a box");
  const size_t count = boxes.Elements() / 4;
  const size_t columns = spec.classes_tensor.empty() ? static_cast<size_t>(spec.labels) : 1;
  // With the labels first the numbers would be as many, and each another's.
  const auto labels = static_cast<int64_t>(columns);
  const bool side_by_side = columns == 1 || (!scores.shape.empty() && scores.shape.back() == labels);
  if (scores.Elements() != count * columns || !side_by_side) {
    InvalidOutput(scores, std::to_string(columns) + " score(s) for each of " + std::to_string(count) +
                              " boxes, those of a box side by side");
  }
  RawDetections raw{AsFloats(boxes), AsFloats(scores), {}, {}, {}};
  if (!spec.classes_tensor.empty()) {
    const Tensor& classes = tensors(spec.classes_tensor);
    if (classes.Elements() != count)
      InvalidOutput(classes, "one class for each of " + std::to_string(count) + " boxes");
    raw.classes = AsFloats(classes);
    CheckFinite(raw.classes, classes.name);
  }
  return DecodeDetections(std::move(raw), spec, grid.geometry, thresholds);
}

void Decode(const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
            std::span<const double> thresholds, OutputResult& out) {
  out.boxes = Detections(spec, tensors, grid, thresholds);
}

}  // namespace

const OutputKind kDetection = {.name = "detection",
                               .gives = "boxes",
                               .values = "",
                               .placed = true,
                               .read = ReadDetection,
                               .decode = Decode};

const OutputKind kDetectionTable = {.name = "detection_table",
                                    .gives = "boxes",
                                    .values = "",
                                    .placed = true,
                                    .read = ReadDetection,
                                    .decode = Decode};

}  // namespace radserve
