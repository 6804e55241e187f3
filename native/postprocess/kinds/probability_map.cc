#include "postprocess/boxes.h"
#include "postprocess/kind.h"
#include "postprocess/maps.h"

namespace radserve {

const OutputKind kinds::probability_map = {
    .name = "probability_map",
    .gives = "boxes",
    .placed = true,
    .read =
        [](const Description& own, OutputSpec& spec) {
          auto& fields = spec.Set<MapBoxesSpec>();
          own.Into("max_boxes", fields.max_boxes, "threshold", fields.threshold, "minimum_area",
                   fields.minimum_area, "unclip", fields.unclip);
        },
    .decode =
        [](const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
           std::span<const double> thresholds, OutputResult& out) {
          const Tensor& tensor = tensors(spec.tensor);
          Maps map(tensor, 1, grid.channels_last);
          ActivateMap(spec, tensor, map);
          out.boxes = BoxesOfMap(map.values(), GridOf(spec, map, grid.geometry),
                                 spec.Own<MapBoxesSpec>(), grid.geometry, thresholds[0]);
        },
};

}  // namespace radserve
