#include "postprocess/detections.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

TableSpec Columns(const Description& o) {
  TableSpec table;
  o.Into("columns_first", table.columns_first, "columns", table.columns, "score", table.score,
         "score_a_label", table.score_a_label);
  table.box = o.Some<4, int>("box");
  if (o.Has("class_column")) table.class_column = o.Int("class_column");
  if (o.Has("angle")) o.Into("angle", table.angle, "angle_unit", table.angle_unit);
  if (o.Has("objectness")) {
    table.objectness = o.Int("objectness");
    table.objectness_activation = o.OneOf<Activation>(
        "objectness_activation", {{"none", Activation::kNone}, {"sigmoid", Activation::kSigmoid}});
  }
  if (o.Has("coefficients"))
    o.Into("coefficients", table.coefficients, "coefficient_count", table.coefficient_count);
  return table;
}

}  // namespace

const OutputKind kinds::detection_table = {
    .name = "detection_table",
    .gives = "boxes",
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
          out.boxes = DecodeDetections(ReadTable(tensors(spec.tensor), spec), spec, grid.geometry,
                                       thresholds);
        },
};

}  // namespace radserve
