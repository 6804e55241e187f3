#include "postprocess/kind.h"
#include "postprocess/maps.h"
#include "postprocess/source_grid.h"
#include "resample/resample.h"

namespace radserve {
namespace {

std::vector<float> ToSourceGrid(const Maps& maps, const Geometry& geometry) {
  const auto [rows, columns] = WayBack(maps, geometry);
  return ResamplePlane(maps.Channel(0), rows, columns, Interpolation::kLinear);
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
          ActivateMap(spec, tensor, map);
          out.values = ToSourceGrid(map, grid.geometry);
          ClearHidden(grid, std::span(out.values));
        },
};

}  // namespace radserve
