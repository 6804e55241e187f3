#include "postprocess/activation.h"
#include "postprocess/kind.h"
#include "postprocess/maps.h"
#include "postprocess/source_grid.h"
#include "resample/resample.h"

namespace radserve {
namespace {

std::vector<float> ToSourceGrid(const Maps& maps, const MapGrid& grid) {
  return ResamplePlane(maps.Channel(0), grid.rows.Back(grid.antialias),
                       grid.columns.Back(grid.antialias), Interpolation::kLinear);
}

}  // namespace

const OutputKind kinds::heatmap = {
    .name = "heatmap",
    .gives = "heatmap",
    .values = "values",
    .placed = true,
    .gridded = true,
    .read = [](const Description&, OutputSpec&) {},
    .decode =
        [](const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
           std::span<const double>, OutputResult& out) {
          const Tensor& tensor = tensors(spec.tensor);
          Maps map(tensor, 1, grid.channels_last);
          if (spec.activate_last) {
            CheckFinite(map.values(), tensor.name);
          } else {
            ActivateMap(spec, tensor, map);
          }
          const MapGrid lies = GridOf(spec, map, grid.geometry);
          out.values = ToSourceGrid(map, lies);
          if (spec.activate_last && spec.activation == Activation::kSigmoid) Sigmoid(out.values);
          ClearHidden(grid, lies, std::span(out.values));
        },
};

}  // namespace radserve
