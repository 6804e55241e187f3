#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "postprocess/cover.h"
#include "postprocess/turned.h"
#include "prepare/geometry.h"

namespace radserve {

/// Edges, x to the right, y down; a box of one pixel has width 1. `label` is the label's index from
/// 0.
struct Box {
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  float score = 0;
  int label = 0;
  /// The row of a detection table that it comes from.
  size_t row = 0;
  /// Of a turned box, whose edges are those of the box along the axes round it; in the source some
  /// may lie outside.
  std::optional<Quad> corners = std::nullopt;
  /// Of a volume: edges along its slices; a box of one slice has z1 - z0 = 1. Both 0 for an image.
  double z0 = 0, z1 = 0;
};

/// A box in a volume, along depth, height and width of the tensor, in voxels as the graph counts
/// them.
struct Cuboid {
  std::array<double, 3> low{}, high{};
  float score = 0;
  int label = 0;
  /// How much it counts beside boxes of other windows.
  double weight = 1;
};

/// What the runs of a graph over windows of a volume found.
struct FoundCuboids {
  std::vector<Cuboid> boxes;
  /// OutputResult::implausible
  size_t implausible = 0;
};

/// A box of tensor pixels in pixels of the source, clamped to the image; nothing if no area is left
/// of it. Of a turned box the edges are those round the part of it that lies in the image.
std::optional<Box> InSource(const Box& box, const Geometry& geometry);

/// The fields of a probability map.
struct MapBoxesSpec {
  double threshold = 0.5;
  double minimum_area = 0;
  double unclip = 0;
  int max_boxes = 1;
};

/// Regions (8-connected) of a probability map, which lies so, become boxes in source pixels: pixels
/// at or above the map's threshold, regions of at least minimum_area pixels of the map, bounding
/// boxes grown on each side by area * unclip / perimeter of the bounding box (Liao et al. 2020,
/// section 3.4), score the mean probability of the region's pixels, kept at or above `threshold`
/// (NaN: all). Best first.
std::vector<Box> BoxesOfMap(std::span<const float> map, const MapGrid& grid,
                            const MapBoxesSpec& spec, const Geometry& geometry, double threshold);

}  // namespace radserve
