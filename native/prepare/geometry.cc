#include "prepare/geometry.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/error.h"
#include "resample/gaussian.h"

namespace radserve {
namespace {

int RoundUp(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

int Rounded(double value) { return std::max(1, static_cast<int>(std::lround(value))); }

using Rounding = WholePixels::Rounding;
using Offset = WholePixels::Offset;

int Rounded(double value, Rounding rounding) {
  if (rounding == Rounding::kHalfUp) return Rounded(value);
  const double whole = rounding == Rounding::kDown ? std::floor(value) : std::nearbyint(value);
  return std::max(1, static_cast<int>(whole));
}

/// Where the middle of so many pixels begins.
int MiddleOf(int pixels, int middle, Offset offset) {
  const int left = pixels - middle;
  switch (offset) {
    case Offset::kHalf:
      return left / 2;
    case Offset::kHalfEven:
      return static_cast<int>(std::nearbyint(left / 2.0));
    case Offset::kHalves:
      return pixels / 2 - middle / 2;
    case Offset::kTopLeft:
      return 0;
  }
  return 0;
}

/// How much multiple_of shrinks the source: 1 unless a side exceeds max_side.
double OwnScale(int rows, int columns, const SizeSpec& size) {
  if (size.kind != SizeSpec::Kind::kMultipleOf) return 1;
  return std::min(1.0, static_cast<double>(size.max_side) / std::max(rows, columns));
}

/// Sides of an image that is resized to an edge, with a bound on the longer one; each is rounded as
/// the library does it, to the order of its operations.
std::array<int, 2> WithinEdges(const SizeSpec& size, double rows, double columns) {
  using Edges = SizeSpec::Edges;
  const auto [shorter, longer] = std::minmax(rows, columns);
  const auto cut = [](double side) { return std::max(1, static_cast<int>(side)); };
  const double most = size.longest;
  int low = size.shortest;
  int high = cut(size.shortest * longer / shorter);
  switch (size.edges) {
    // transformers.models.detr: get_size_with_aspect_ratio
    case Edges::kTransformers:
      if (longer / shorter * size.shortest > most) {
        const double bound = most * shorter / longer;
        low = Rounded(bound, Rounding::kHalfEven);
        high = cut(bound * longer / shorter);
      }
      // An image whose shorter side has that length already stays as it is
      if (low == shorter) high = cut(longer);
      break;
    // torchvision.transforms.Resize with max_size
    case Edges::kTorchvision:
      if (high > size.longest) {
        low = cut(most * low / high);
        high = size.longest;
      }
      break;
    // detectron2.data.transforms.ResizeShortestEdge; MMDetection's Resize with keep_ratio
    case Edges::kDetectron2: {
      const double scale = size.shortest / shorter;
      const double bound = std::min(1.0, most / (scale * longer));
      low = cut(size.shortest * bound + 0.5);
      high = cut(scale * longer * bound + 0.5);
      break;
    }
  }
  return rows <= columns ? std::array{low, high} : std::array{high, low};
}

/// An axis whose whole source fills the tensor.
ImageAxis Whole(const SizeSpec& size, int fixed, double own_scale, int source) {
  int tensor = source;
  if (size.kind == SizeSpec::Kind::kFixed) tensor = fixed;
  if (size.kind == SizeSpec::Kind::kMultipleOf)
    tensor = RoundUp(Rounded(source * own_scale), size.multiple);
  return {source, tensor, 0, tensor, 0, static_cast<double>(source)};
}

void Letterbox(double pixel_aspect, bool own_size, double own_scale,
               const std::optional<WholePixels>& placement, Geometry& g) {
  const WholePixels how = placement.value_or(
      WholePixels{WholePixels::Kind::kResizeThenPad, 0, 0, 0, Rounding::kHalfUp, Offset::kHalf});
  const double physical_rows = g.rows.source * (own_size ? 1 : pixel_aspect);
  const double scale = own_size
                           ? own_scale
                           : std::min(g.rows.tensor / physical_rows,
                                      g.columns.tensor / static_cast<double>(g.columns.source));
  const auto lay = [&](double physical, ImageAxis& axis) {
    axis.count = std::min(axis.tensor, Rounded(physical * scale, how.rounding));
    axis.first = MiddleOf(axis.tensor, axis.count, how.offset);
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

/// The tensor is the middle of the image as it is resized to whole pixels.
void ResizeThenCrop(double pixel_aspect, const WholePixels& how, Geometry& g) {
  std::array<int, 2> resized = {how.height, how.width};
  if (how.shortest_edge > 0) {
    const std::array<double, 2> physical = {g.rows.source * pixel_aspect,
                                            static_cast<double>(g.columns.source)};
    const double shorter = std::min(physical[0], physical[1]);
    // Multiplied first, as the libraries do it: a quotient that is whole stays whole
    for (size_t a = 0; a < 2; ++a)
      resized[a] = Rounded(how.shortest_edge * physical[a] / shorter, how.rounding);
  }
  const auto cut = [&](int pixels, ImageAxis& axis) {
    const double scale = static_cast<double>(axis.source) / pixels;
    axis.seen_from = MiddleOf(pixels, axis.tensor, how.offset) * scale;
    axis.seen = axis.tensor * scale;
  };
  cut(resized[0], g.rows);
  cut(resized[1], g.columns);
}

/// The largest middle of the image with the tensor's proportions, in whole pixels, is the image.
void CropThenResize(double pixel_aspect, const WholePixels& how, Geometry& g) {
  const double physical_rows = g.rows.source * pixel_aspect;
  const double scale = std::max(g.rows.tensor / physical_rows,
                                g.columns.tensor / static_cast<double>(g.columns.source));
  const auto cut = [&](double own_scale, ImageAxis& axis) {
    // A side that is seen whole must not lose a pixel to rounding
    constexpr double kWhole = 1e-9;
    const int middle =
        std::min(axis.source, Rounded(axis.tensor / own_scale + kWhole, how.rounding));
    axis.seen_from = MiddleOf(axis.source, middle, how.offset);
    axis.seen = middle;
    axis.apart = true;
  };
  cut(scale * pixel_aspect, g.rows);
  cut(scale, g.columns);
}

void Stretch(const PlacementFields& fields, ImageAxis& axis) {
  axis.seen = axis.tensor * fields.ScaleToFill(axis.source, axis.tensor);
  axis.seen_from = (axis.source - axis.seen) / 2;
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
  size.kind = o.OneOf<Kind>("kind", {{"fixed", Kind::kFixed},
                                     {"multiple_of", Kind::kMultipleOf},
                                     {"edges", Kind::kEdges},
                                     {"source", Kind::kSource}});
  if (size.kind == Kind::kFixed) {
    o.Into("height", size.height, "width", size.width);
    if (o.Has("depth")) size.depth = o.Int("depth");
  }
  if (size.kind == Kind::kEdges) {
    o.Into("shortest", size.shortest, "longest", size.longest);
    if (o.Has("multiple")) size.multiple = o.Int("multiple");
    using Edges = SizeSpec::Edges;
    size.edges = o.OneOf<Edges>("rounding", {{"transformers", Edges::kTransformers},
                                             {"torchvision", Edges::kTorchvision},
                                             {"detectron2", Edges::kDetectron2}});
  }
  if (size.kind == Kind::kMultipleOf) o.Into("multiple", size.multiple, "max_side", size.max_side);
  return size;
}

WholePixels ReadWholePixels(const Description& o) {
  using Kind = WholePixels::Kind;
  WholePixels how;
  how.kind = o.OneOf<Kind>("kind", {{"resize_then_crop", Kind::kResizeThenCrop},
                                    {"crop_then_resize", Kind::kCropThenResize},
                                    {"resize_then_pad", Kind::kResizeThenPad}});
  if (o.Has("shortest_edge")) how.shortest_edge = o.Int("shortest_edge");
  if (o.Has("height")) o.Into("height", how.height, "width", how.width);
  if (o.Has("rounding")) {
    how.rounding = o.OneOf<Rounding>("rounding", {{"down", Rounding::kDown},
                                                  {"half_up", Rounding::kHalfUp},
                                                  {"half_even", Rounding::kHalfEven}});
  }
  how.offset = o.OneOf<Offset>("offset", {{"half", Offset::kHalf},
                                          {"half_even", Offset::kHalfEven},
                                          {"halves", Offset::kHalves},
                                          {"top_left", Offset::kTopLeft}});
  return how;
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
                                                   {"nearest_floor", Interpolation::kNearestFloor},
                                                   {"gaussian", Interpolation::kGaussian},
                                                   {"spline", Interpolation::kSpline}});
  if (input.Has("placement")) placement = ReadWholePixels(input.Child("placement"));
  if (input.Has("antialias")) antialias = input.Flag("antialias");
  align_corners = input.Flag("align_corners");
  if (input.Has("border") && input.Child("border").Has("value"))
    border = input.Child("border").Number("value");
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

double PlacementFields::ScaleToFill(int source, int tensor) const {
  if (!align_corners || source == 1 || tensor == 1) return static_cast<double>(source) / tensor;
  return (source - 1.0) / (tensor - 1.0);
}

Taps ImageAxis::Forward(const PlacementFields& fields) const {
  const int from = apart ? static_cast<int>(seen_from) : 0;
  const int pixels = apart ? static_cast<int>(seen) : source;
  const Axis axis = {pixels, count, seen_from - from, seen / count, fields.antialias};
  Taps taps = fields.interpolation == Interpolation::kGaussian
                  ? MakeGaussianTaps(axis, !fields.border)
                  : MakeTaps(axis, fields.interpolation);
  for (int& first : taps.first) first += from;
  return taps;
}

Geometry PlaceImage(int rows, int columns, double pixel_aspect, const PlacementFields& fields) {
  const SizeSpec& size = fields.size;
  const double own_scale = OwnScale(rows, columns, size);
  Geometry g{Whole(size, size.height, own_scale, rows),
             Whole(size, size.width, own_scale, columns)};
  // A tensor of the source's own size holds the source's own pixels, whatever the fit.
  if (size.kind == SizeSpec::Kind::kSource) return g;
  if (size.kind == SizeSpec::Kind::kEdges) {
    const auto [high, wide] = WithinEdges(size, rows * pixel_aspect, columns);
    const auto lay = [&](int side, ImageAxis& axis) {
      axis.tensor = RoundUp(side, size.multiple);
      axis.count = side;
    };
    lay(high, g.rows);
    lay(wide, g.columns);
    return g;
  }
  const bool own_size = size.kind == SizeSpec::Kind::kMultipleOf;
  switch (fields.fit) {
    case Fit::kStretch:
      if (!fields.align_corners) break;
      Stretch(fields, g.rows);
      Stretch(fields, g.columns);
      break;
    case Fit::kLetterbox:
      Letterbox(pixel_aspect, own_size, own_scale, fields.placement, g);
      break;
    case Fit::kCrop:
      if (!fields.placement) {
        Crop(own_size ? 1 : pixel_aspect, g);
      } else if (fields.placement->kind == WholePixels::Kind::kResizeThenCrop) {
        ResizeThenCrop(pixel_aspect, *fields.placement, g);
      } else {
        CropThenResize(pixel_aspect, *fields.placement, g);
      }
      break;
    case Fit::kNone:
      KeepPixels(size, own_scale, g);
      break;
  }
  return g;
}

}  // namespace radserve
