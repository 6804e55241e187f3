#include "postprocess/boxes.h"
#include "postprocess/kind.h"
#include "postprocess/maps.h"

namespace radserve {

const OutputKind kinds::probability_map = {
    .name = "probability_map",
    .gives = "boxes",
    .values = "",
    .placed = true,
    .read =
        [](const Description& own, OutputSpec& spec) {
          spec.max_boxes = own.Int("max_boxes");
          spec.map_threshold = own.Number("threshold");
          spec.minimum_area = own.Number("minimum_area");
          spec.unclip = own.Number("unclip");
        },
    .decode =
        [](const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
           std::span<const double> thresholds, OutputResult& out) {
          const Tensor& tensor = tensors(spec.tensor);
          Maps map(tensor, 1, grid.channels_last);
          ActivateMap(spec, tensor, map);
          out.boxes = BoxesOfMap(map.values(), map.rows(), map.columns(), spec, grid.geometry, thresholds[0]);
        },
};

}  // namespace radserve
