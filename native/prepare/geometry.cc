#include "prepare/geometry.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"

namespace radserve {
namespace {

int RoundUp(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

int Rounded(double value) { return std::max(1, static_cast<int>(std::lround(value))); }

/// How much multiple_of shrinks the source: 1 unless a side exceeds max_side.
double OwnScale(int rows, int columns, const SizeSpec& size) {
  if (size.kind != SizeSpec::Kind::kMultipleOf) return 1;
  return std::min(1.0, static_cast<double>(size.max_side) / std::max(rows, columns));
}

/// An axis whose whole source fills the tensor.
ImageAxis Whole(const SizeSpec& size, int fixed, double own_scale, int source) {
  int tensor = source;
  if (size.kind == SizeSpec::Kind::kFixed) tensor = fixed;
  if (size.kind == SizeSpec::Kind::kMultipleOf)
    tensor = RoundUp(Rounded(source * own_scale), size.multiple);
  return {source, tensor, 0, tensor, 0, static_cast<double>(source)};
}

void Letterbox(double pixel_aspect, bool own_size, double own_scale, Geometry& g) {
  const double physical_rows = g.rows.source * (own_size ? 1 : pixel_aspect);
  const double scale = own_size
                           ? own_scale
                           : std::min(g.rows.tensor / physical_rows,
                                      g.columns.tensor / static_cast<double>(g.columns.source));
  const auto lay = [scale](double physical, ImageAxis& axis) {
    axis.count = std::min(axis.tensor, Rounded(physical * scale));
    axis.first = (axis.tensor - axis.count) / 2;
  };
  lay(physical_rows, g.rows);
  lay(g.columns.source, g.columns);
}

void Crop(double pixel_aspect, Geometry& g) {
  const double physical_rows = g.rows.source * pixel_aspect;
  const double scale = std::max(g.rows.tensor / physical_rows,
                                g.columns.tensor / static_cast<double>(g.columns.source));
  const auto cut = [](double own_scale, ImageAxis& axis) {
    axis.seen = std::min<double>(axis.source, axis.tensor / own_scale);
    axis.seen_from = (axis.source - axis.seen) / 2;
  };
  cut(scale * pixel_aspect, g.rows);
  cut(scale, g.columns);
}

void KeepPixels(const SizeSpec& size, double own_scale, Geometry& g) {
  const bool fixed = size.kind == SizeSpec::Kind::kFixed;
  for (ImageAxis* const axis : {&g.rows, &g.columns}) {
    if (own_scale < 1 || axis->tensor < axis->source || (fixed && axis->tensor != axis->source)) {
      throw EngineError("no_model_accepts",
                        "The model takes images without resampling, expected at most " +
                            std::to_string(fixed ? size.height : size.max_side) + " x " +
                            std::to_string(fixed ? size.width : size.max_side) +
                            " pixels (exactly so many where the size is fixed); found " +
                            std::to_string(g.rows.source) + " x " +
                            std::to_string(g.columns.source) + ".");
    }
    axis->count = axis->source;
  }
}

SizeSpec ReadSize(const Description& o) {
  using Kind = SizeSpec::Kind;
  SizeSpec size;
  size.kind = o.OneOf<Kind>(
      "kind",
      {{"fixed", Kind::kFixed}, {"multiple_of", Kind::kMultipleOf}, {"source", Kind::kSource}});
  if (size.kind == Kind::kFixed) {
    o.Into("height", size.height, "width", size.width);
    if (o.Has("depth")) size.depth = o.Int("depth");
  }
  if (size.kind == Kind::kMultipleOf) o.Into("multiple", size.multiple, "max_side", size.max_side);
  return size;
}

}  // namespace

void PlacementFields::ReadPlacement(const Description& input) {
  size = ReadSize(input.Child("size"));
  fit = input.OneOf<Fit>("fit", {{"stretch", Fit::kStretch},
                                 {"letterbox", Fit::kLetterbox},
                                 {"crop", Fit::kCrop},
                                 {"none", Fit::kNone}});
  interpolation =
      input.OneOf<Interpolation>("interpolation", {{"area", Interpolation::kArea},
                                                   {"adaptive_area", Interpolation::kAdaptiveArea},
                                                   {"linear", Interpolation::kLinear},
                                                   {"cubic", Interpolation::kCubic},
                                                   {"nearest", Interpolation::kNearest},
                                                   {"spline", Interpolation::kSpline}});
  if (input.Has("antialias")) antialias = input.Flag("antialias");
}

Geometry SourceItself(const Geometry& geometry) {
  const auto whole = [](int side) {
    ImageAxis axis;
    axis.source = axis.tensor = axis.count = side;
    axis.seen = side;
    return axis;
  };
  Geometry own = geometry;
  own.rows = whole(geometry.rows.source);
  own.columns = whole(geometry.columns.source);
  return own;
}

Geometry PlaceImage(int rows, int columns, double pixel_aspect, const SizeSpec& size, Fit fit) {
  const double own_scale = OwnScale(rows, columns, size);
  Geometry g{Whole(size, size.height, own_scale, rows),
             Whole(size, size.width, own_scale, columns)};
  // A tensor of the source's own size holds the source's own pixels, whatever the fit.
  if (size.kind == SizeSpec::Kind::kSource) return g;
  switch (fit) {
    case Fit::kStretch:
      break;
    case Fit::kLetterbox:
      Letterbox(pixel_aspect, size.kind == SizeSpec::Kind::kMultipleOf, own_scale, g);
      break;
    case Fit::kCrop:
      Crop(size.kind == SizeSpec::Kind::kMultipleOf ? 1 : pixel_aspect, g);
      break;
    case Fit::kNone:
      KeepPixels(size, own_scale, g);
      break;
  }
  return g;
}

}  // namespace radserve
