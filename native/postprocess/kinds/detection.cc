#include "postprocess/detections.h"
#include "postprocess/kind.h"

namespace radserve {
const OutputKind kinds::detection = {
    .name = "detection",
    .gives = "boxes",
    .placed = true,
    .read =
        [](const Description& own, OutputSpec& spec) {
          ReadDetections(own, spec);
          spec.scores_tensor = own.Text("scores");
          if (own.Has("classes")) spec.classes_tensor = own.Text("classes");
        },
    .decode =
        [](const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
           std::span<const double> thresholds, OutputResult& out) {
          out.boxes =
              DecodeDetections(ReadLists(spec, tensors, 4), spec, grid.geometry, thresholds);
        },
};

}  // namespace radserve
