#include "postprocess/turned.h"

#include <algorithm>
#include <cmath>

namespace radserve {
namespace {

/// Twice the area of a triangle: positive where c lies to the right of the way from a to b, as
/// seen.
double Side(const Corner& a, const Corner& b, const Corner& c) {
  return (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
}

/// The second moments of a box: along x, along y, and mixed.
struct Moments {
  double xx, yy, xy;
  explicit Moments(const Turned& box) {
    const double along = box.w * box.w / 12, across = box.h * box.h / 12;
    const double cos = std::cos(box.angle), sin = std::sin(box.angle);
    xx = along * cos * cos + across * sin * sin;
    yy = along * sin * sin + across * cos * cos;
    xy = (along - across) * cos * sin;
  }
  double Determinant() const { return xx * yy - xy * xy; }
};

}  // namespace

Quad CornersOf(const Turned& box) {
  const double cos = std::cos(box.angle), sin = std::sin(box.angle);
  const auto at = [&](double along, double across) {
    return Corner{box.cx + along * cos - across * sin, box.cy + along * sin + across * cos};
  };
  const double w = box.w / 2, h = box.h / 2;
  return {at(-w, -h), at(w, -h), at(w, h), at(-w, h)};
}

double AreaOf(std::span<const Corner> outline) {
  double twice = 0;
  for (size_t i = 0; i < outline.size(); ++i) {
    twice += Side(outline[0], outline[i], outline[(i + 1) % outline.size()]);
  }
  return twice / 2;
}

std::vector<Corner> Clipped(std::span<const Corner> outline, std::span<const Corner> other) {
  std::vector<Corner> left(outline.begin(), outline.end());
  for (size_t edge = 0; edge < other.size(); ++edge) {
    const Corner &from = other[edge], &to = other[(edge + 1) % other.size()];
    std::vector<Corner> kept;
    for (size_t i = 0; i < left.size(); ++i) {
      const Corner &a = left[i], &b = left[(i + 1) % left.size()];
      const double at_a = Side(from, to, a), at_b = Side(from, to, b);
      if (at_a >= 0) kept.push_back(a);
      if ((at_a >= 0) == (at_b >= 0)) continue;
      const double part = at_a / (at_a - at_b);
      kept.push_back({a.x + part * (b.x - a.x), a.y + part * (b.y - a.y)});
    }
    left = std::move(kept);
  }
  return left;
}

double PolygonOverlap(const Quad& a, const Quad& b) {
  const double shared = AreaOf(Clipped(a, b));
  return shared / (AreaOf(a) + AreaOf(b) - shared);
}

double ProbabilisticOverlap(const Turned& a, const Turned& b) {
  constexpr double kSmall = 1e-7;
  const Moments one(a), other(b);
  const double xx = one.xx + other.xx, yy = one.yy + other.yy, xy = one.xy + other.xy;
  const double dx = a.cx - b.cx, dy = a.cy - b.cy;
  const double both = xx * yy - xy * xy;
  const double apart = (xx * dy * dy + yy * dx * dx - 2 * xy * dx * dy) / (both + kSmall) / 4;
  const double each =
      std::sqrt(std::max(one.Determinant(), 0.0) * std::max(other.Determinant(), 0.0));
  const double unlike = std::log(both / (4 * each + kSmall) + kSmall) / 2;
  const double bhattacharyya = std::clamp(apart + unlike, kSmall, 100.0);
  return 1 - std::sqrt(1 - std::exp(-bhattacharyya) + kSmall);
}

}  // namespace radserve
