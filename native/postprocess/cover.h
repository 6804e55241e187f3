#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "base/description.h"
#include "prepare/geometry.h"
#include "prepare/volume_geometry.h"
#include "resample/resample.h"

namespace radserve {

/// Which part of the tensor a map covers: `covers` and `stride` of the manifest.
struct MapCover {
  /// kUnsaid: all of it, if its sides are whole parts or multiples of the tensor's.
  enum class Part { kUnsaid, kAll, kCentre, kStart } part = Part::kUnsaid;
  /// Pixels of the tensor for each sample of a map that covers its centre or start.
  int stride = 1;
};

MapCover ReadMapCover(const Description& output);

/// A map along one axis of the tensor, in the tensor's pixels, counted from its first edge.
struct MapSide {
  int map = 0;
  double begin = 0;
  int extent = 0;

  double InTensor(double place) const {
    return begin + place * (static_cast<double>(extent) / map);
  }
  bool Covers(double in_tensor) const {
    // Rounding must not lose a pixel whose centre lies on the edge.
    constexpr double kEdge = 1e-9;
    return in_tensor >= begin - kEdge && in_tensor <= begin + extent + kEdge;
  }
};

/// Lays a map of so many samples along an axis of `tensor` pixels. Throws output_invalid if nothing
/// says which part of the tensor it covers, or if it would reach beyond the tensor by a sample or
/// more; `name` is the output's.
MapSide LayMap(const MapCover& cover, int map, int tensor, const std::string& name);

/// One axis of a map on its way back to the source.
struct MapAxis {
  ImageAxis image;
  MapSide side;

  double ToSource(double place) const { return image.ToSource(side.InTensor(place)); }
  /// Centres of the source's pixels among the samples of the map.
  Axis Back(bool antialias) const;
  /// The pixels [begin, end) of the source whose centres the model sees and the map covers.
  std::pair<size_t, size_t> Seen() const;
};

/// A map of an image on its way back to the source.
struct MapGrid {
  MapAxis rows;
  MapAxis columns;
  bool antialias = true;
};

/// Lays a map of rows x columns over the tensor of an image. Throws as LayMap does.
MapGrid LayMap(const MapCover& cover, int rows, int columns, const Geometry& geometry,
               const std::string& name);

/// The same for a volume: the placement of what the map covers, as if that were the tensor.
/// `sides` are those of the map, in the tensor's order. Throws as LayMap does.
VolumePlacement CoveredPart(const MapCover& cover, const std::array<int, 3>& sides,
                            const VolumePlacement& placement, const std::string& name);

}  // namespace radserve
