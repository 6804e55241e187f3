#include <utility>

#include "postprocess/activation.h"
#include "postprocess/detections.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

std::vector<Box> Detections(const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
                            std::span<const double> thresholds) {
  const Tensor& boxes = tensors(spec.tensor);
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

}  // namespace

const OutputKind kinds::detection = {
    .name = "detection",
    .gives = "boxes",
    .values = "",
    .placed = true,
    .read =
        [](const Description& own, OutputSpec& spec) {
          ReadDetections(own, spec);
          spec.scores_tensor = own.Text("scores");
          if (own.Has("classes")) spec.classes_tensor = own.Text("classes");
        },
    .decode = [](const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
                 std::span<const double> thresholds,
                 OutputResult& out) { out.boxes = Detections(spec, tensors, grid, thresholds); },
};

}  // namespace radserve
