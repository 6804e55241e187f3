#include "postprocess/detections.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

TableSpec Columns(const Description& o) {
  TableSpec table;
  table.columns_first = o.Flag("columns_first");
  table.columns = o.Int("columns");
  table.box = o.Some<4, int>("box");
  table.score = o.Int("score");
  table.score_a_label = o.Flag("score_a_label");
  if (o.Has("class_column")) table.class_column = o.Int("class_column");
  if (o.Has("angle")) {
    table.angle = o.Int("angle");
    table.angle_unit = o.Number("angle_unit");
  }
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

}  // namespace

const OutputKind kinds::detection_table = {
    .name = "detection_table",
    .gives = "boxes",
    .values = "",
    .placed = true,
    .read =
        [](const Description& own, OutputSpec& spec) {
          ReadDetections(own, spec);
          spec.table = Columns(own.Child("table"));
          spec.several_labels = own.Flag("several_labels");
        },
    .decode =
        [](const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
           std::span<const double> thresholds, OutputResult& out) {
          out.boxes =
              DecodeDetections(ReadTable(tensors(spec.tensor), spec), spec, grid.geometry, thresholds);
        },
};

}  // namespace radserve
