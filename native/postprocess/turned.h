#pragma once

#include <array>
#include <span>
#include <vector>

namespace radserve {

/// x to the right, y down.
struct Corner {
  double x = 0, y = 0;
};

/// Corners of a convex outline, in the order right, down, left, up for one along the axes.
using Quad = std::array<Corner, 4>;

/// A box that need not lie along the axes: its centre, its sides, and by how much its width is
/// turned clockwise, as seen, from the rows (radians).
struct Turned {
  double cx = 0, cy = 0, w = 0, h = 0, angle = 0;
};

/// The corners, from that which is the upper left one of a box with the angle 0.
Quad CornersOf(const Turned& box);

double AreaOf(std::span<const Corner> outline);

/// The part of a convex outline that lies within another (Sutherland and Hodgman 1974); empty if
/// there is none.
std::vector<Corner> Clipped(std::span<const Corner> outline, std::span<const Corner> other);

/// Area of what two convex outlines share by that of both together; NaN where neither has an area.
double PolygonOverlap(const Quad& a, const Quad& b);

/// Probabilistic IoU (Llerena et al. 2021, arXiv:2106.06072, section 3): 1 less the Hellinger
/// distance of two Gaussians with the boxes' centres and second moments. The small numbers that
/// keep it finite are those of Ultralytics' batch_probiou.
double ProbabilisticOverlap(const Turned& a, const Turned& b);

}  // namespace radserve
