#include <array>
#include <map>
#include <numbers>
#include <string>
#include <tuple>

#include "postprocess/detections.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

/// The names of a box's four numbers, in the order of the format.
struct BoxColumns {
  BoxFormat format;
  std::array<const char*, 4> names;
};
constexpr std::array kBoxColumns = {
    BoxColumns{BoxFormat::kXyxy, {"x1", "y1", "x2", "y2"}},
    BoxColumns{BoxFormat::kXywh, {"x", "y", "w", "h"}},
    BoxColumns{BoxFormat::kCxcywh, {"cx", "cy", "w", "h"}},
};

/// Radians clockwise that a number of the column angle stands for.
double RadiansOf(const Description& output) {
  constexpr double kDegree = std::numbers::pi / 180;
  return output.OneOf<double>("angle", {{"radians_clockwise", 1},
                                        {"radians_counterclockwise", -1},
                                        {"degrees_clockwise", kDegree},
                                        {"degrees_counterclockwise", -kDegree}});
}

void ReadDetectionTable(const Description& output, OutputSpec& spec) {
  auto& own = spec.Set<DetectionSpec>();
  TableSpec& table = own.table.emplace();
  // Where each column begins; of several that are not used the last.
  std::map<std::string, int> starts;
  for (const std::string& column : output.Texts("columns")) {
    starts[column] = table.columns;
    table.columns += column == "class_scores"        ? static_cast<int>(spec.Columns())
                     : column == "mask_coefficients" ? output.Int("mask_coefficients")
                                                     : 1;
  }
  for (const auto& [format, names] : kBoxColumns) {
    if (!starts.contains(names[0])) continue;
    own.format = format;
    for (size_t k = 0; k < names.size(); ++k) table.box[k] = starts.at(names[k]);
  }
  table.columns_first = output.Text("axes") == "columns_boxes";
  table.score_a_label = starts.contains("class_scores");
  table.score = starts.at(table.score_a_label ? "class_scores" : "score");
  if (starts.contains("class")) table.class_column = starts.at("class");
  if (starts.contains("objectness")) {
    table.objectness = starts.at("objectness");
    table.objectness_activation = ReadActivation(output.Child("objectness"));
  }
  if (starts.contains("angle")) {
    table.angle = starts.at("angle");
    table.angle_unit = RadiansOf(output);
  }
  if (starts.contains("mask_coefficients")) {
    table.coefficients = starts.at("mask_coefficients");
    table.coefficient_count = output.Int("mask_coefficients");
  }
  const Description& scores = output.Child("scores");
  spec.activation = ReadActivation(scores);
  own.several_labels = scores.Has("labels_per_box") && scores.Text("labels_per_box") == "several";
  own.normalised = output.Flag("normalised");
  own.in_source = InPixelsOfSource(output);
  own.first_class = FirstClassOf(output);
  own.nms = ReadSuppression(output);
  own.max_boxes = output.Int("max_boxes");
}

}  // namespace

const OutputKind kinds::detection_table = {
    .name = "detection_table",
    .gives = "boxes",
    .placed = true,
    .read = ReadDetectionTable,
    .decode =
        [](const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
           std::span<const double> thresholds, OutputResult& out) {
          out.boxes = DecodeDetections(ReadTable(tensors(spec.tensor), spec), spec, grid.geometry,
                                       thresholds, &out.implausible);
        },
};

}  // namespace radserve
