#include "postprocess/cover.h"

#include "base/error.h"

namespace radserve {
namespace {

std::string SidesText(int map, int tensor) {
  return std::to_string(map) + " for " + std::to_string(tensor) + " of the tensor";
}

}  // namespace

MapCover ReadMapCover(const Description& output) {
  using Part = MapCover::Part;
  MapCover cover;
  if (!output.Has("covers")) return cover;
  cover.part = output.OneOf<Part>(
      "covers", {{"all", Part::kAll}, {"centre", Part::kCentre}, {"start", Part::kStart}});
  if (output.Has("stride")) cover.stride = output.Int("stride");
  return cover;
}

MapSide LayMap(const MapCover& cover, int map, int tensor, const std::string& name) {
  using Part = MapCover::Part;
  const bool whole = tensor % map == 0 || map % tensor == 0;
  if (cover.part == Part::kUnsaid && !whole) {
    throw EngineError("output_invalid",
                      "Expected a map from the output \"" + name +
                          "\" whose sides are whole parts of the tensor's; found " +
                          SidesText(map, tensor) +
                          ". Say in the manifest which part of the tensor it covers: covers "
                          "\"centre\" (convolutions without padding), \"start\" or \"all\".");
  }
  if (cover.part == Part::kUnsaid || cover.part == Part::kAll) return {map, 0, tensor};
  const int extent = map * cover.stride;
  if (extent - tensor >= cover.stride) {
    throw EngineError("output_invalid", "Expected a map from the output \"" + name +
                                            "\" that lies within the tensor; found " +
                                            SidesText(map, tensor) + ", with a stride of " +
                                            std::to_string(cover.stride) + ".");
  }
  return {map, cover.part == Part::kCentre ? (tensor - extent) / 2.0 : 0, extent};
}

Axis MapAxis::Back(bool antialias) const {
  const double ratio = static_cast<double>(side.map) / side.extent;
  return {side.map, image.source, (image.ToTensor(0) - side.begin) * ratio,
          image.count / image.seen * ratio, antialias};
}

std::pair<size_t, size_t> MapAxis::Seen() const {
  const bool whole = side.begin == 0 && side.extent == image.tensor;
  const auto sees = [&](int i) {
    const double centre = i + 0.5;
    return centre >= image.seen_from && centre <= image.seen_from + image.seen &&
           (whole || side.Covers(image.ToTensor(centre)));
  };
  int begin = 0;
  while (begin < image.source && !sees(begin)) ++begin;
  int end = image.source;
  while (end > begin && !sees(end - 1)) --end;
  return {static_cast<size_t>(begin), static_cast<size_t>(end)};
}

MapGrid LayMap(const MapCover& cover, int rows, int columns, const Geometry& geometry,
               const std::string& name) {
  return {{geometry.rows, LayMap(cover, rows, geometry.rows.tensor, name)},
          {geometry.columns, LayMap(cover, columns, geometry.columns.tensor, name)},
          geometry.antialias};
}

VolumePlacement CoveredPart(const MapCover& cover, const std::array<int, 3>& sides,
                            const VolumePlacement& placement, const std::string& name) {
  VolumePlacement covered = placement;
  for (size_t a = 0; a < 3; ++a) {
    VolumeAxis& axis = covered.axes[a];
    const MapSide side = LayMap(cover, sides[a], axis.tensor, name);
    if (side.begin == 0 && side.extent == axis.tensor) continue;
    axis.offset += side.begin * axis.scale;
    axis.tensor = side.extent;
    axis.beyond = {0, 0};
  }
  return covered;
}

}  // namespace radserve
