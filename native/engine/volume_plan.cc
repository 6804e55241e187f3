#include "engine/volume_plan.h"

#include <algorithm>

#include "postprocess/highest.h"
#include "postprocess/kind.h"
#include "postprocess/masks.h"
#include "postprocess/postprocess.h"
#include "prepare/channels.h"

namespace radserve {
namespace {

constexpr double kMostWholeBytes = 268435456.0;

/// On the way back to the source a channel that is shown or compared with a threshold has a plane
/// on the source's grid that comes, two that are mixed, one that goes and one that is activated
/// then.
constexpr double kSourcePlanes = 5;

/// Whether only the highest of the channels counts.
bool OnlyHighest(const OutputSpec& output) {
  return !MayOverlap(output.activation) && output.activation != Activation::kLabelMap &&
         !output.Own<SegmentationSpec>().fractional;
}

/// Bytes of a mask on the model's grid: a byte a voxel for all labels, or for each that may
/// overlap; one for each that is shown; all of them again, in slices, and two bits a label in the
/// object; one for Pixel Padding; and of one slice the part within the source, before and after a
/// last activation.
double BytesOfModelMask(const OutputSpec& output, double voxels, double plane) {
  if (!output.Own<SegmentationSpec>().model_grid) return 0;
  const double labels = output.labels;
  const double masks = MayOverlap(output.activation) ? labels : 1;
  const double shown = output.Own<SegmentationSpec>().fractional ? labels : 0;
  return (2 * (masks + shown) + labels / 4 + 1) * voxels +
         2 * static_cast<double>(ChannelsOf(output) * sizeof(float)) * plane;
}

double Product(const std::array<int, 3>& sides) {
  return static_cast<double>(sides[0]) * sides[1] * sides[2];
}

TiledView ViewOf(const ImageModel& model, const LeadAxis& lead) {
  return {model.inputs.at(0).channels_last, model.max_batch, lead, {}, nullptr, {}};
}

}  // namespace

LeadAxis LeadAlongSlices(const VolumePlacement& placement) {
  const size_t axis = placement.TensorAxis(0);
  return {axis, placement.axes[axis].flipped};
}

bool BlendsBySlices(const ImageModel& model, const std::array<int, 3>& sides,
                    const LeadAxis& lead) {
  const auto& outputs = model.outputs;
  if (!model.tiling || outputs.size() != 1 || !outputs[0].kind->masks) return false;
  const auto channels = static_cast<int64_t>(ChannelsOf(outputs[0]));
  return BytesOfSums(sides, *model.tiling, ViewOf(model, lead), channels, true) > kMostWholeBytes;
}

double BytesOfPlan(const ImageModel& model, const std::array<int, 3>& sides,
                   const VolumeGeometry& geometry) {
  if (!model.tiling || model.inputs.size() != 1 || !model.inputs[0].volume) return 0;
  const InputSpec& input = model.inputs[0];
  const VolumePlacement placement = PlaceVolume(sides, geometry, input);
  const LeadAxis lead = LeadAlongSlices(placement);
  std::array<int, 3> grid{};
  std::ranges::transform(placement.axes, grid.begin(), &VolumeAxis::tensor);
  const auto& axes = placement.axes;
  // A device has one batch while the one before is blended.
  double windows = static_cast<double>(model.max_batch) * (model.batcher == nullptr ? 1 : 2);
  for (const int side : model.tiling->window) windows *= side;
  const bool slices = BlendsBySlices(model, grid, lead);
  double bytes = (Product(grid) + windows) * (input.Channels() + input.label_channels) *
                 static_cast<double>(DtypeSize(input.dtype));
  // The outputs of one batch of windows, which lie in what the network takes on its way.
  double given = 0;
  const double plane = static_cast<double>(sides[1]) * sides[2];
  const double map_plane = Product(grid) / axes[lead.axis].tensor;
  if (input.AsksForInside()) bytes += plane * sides[0];
  // What is sorted for percentiles, or cut out.
  if (input.NeedsCopy()) bytes += std::max(Product(grid), plane * sides[0]) * sizeof(float);
  for (const OutputSpec& output : model.outputs) {
    if (!output.kind->masks) continue;
    const auto channels = static_cast<int64_t>(ChannelsOf(output));
    bytes += BytesOfSums(grid, *model.tiling, ViewOf(model, lead), channels, !slices);
    const VolumeAxis& along = axes[lead.axis];
    // Slices of the maps that are kept: those in reach of one of the source's, or one that goes
    // back to the source's grid.
    const double back =
        OnlyHighest(output)
            ? SlicesInReach(along.Back(along.tensor, Interpolation::kLinear)) * map_plane
            : map_plane + kSourcePlanes * plane;
    bytes += static_cast<double>(channels) * sizeof(float) * (back + (slices ? map_plane : 0));
    given += static_cast<double>(channels) * sizeof(float) * windows;
    bytes += BytesOfModelMask(output, Product(grid), map_plane);
  }
  return bytes + std::max(given, static_cast<double>(model.window_bytes));
}

}  // namespace radserve
