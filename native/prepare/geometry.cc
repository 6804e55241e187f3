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

void TensorSides(const SizeSpec& size, double own_scale, Geometry& g) {
  switch (size.kind) {
    case SizeSpec::Kind::kFixed:
      g.rows = size.height;
      g.columns = size.width;
      return;
    case SizeSpec::Kind::kSource:
      g.rows = g.source_rows;
      g.columns = g.source_columns;
      return;
    case SizeSpec::Kind::kMultipleOf:
      g.rows = RoundUp(Rounded(g.source_rows * own_scale), size.multiple);
      g.columns = RoundUp(Rounded(g.source_columns * own_scale), size.multiple);
      return;
  }
}

void Letterbox(double pixel_aspect, bool own_size, double own_scale, Geometry& g) {
  const double physical_rows = g.source_rows * (own_size ? 1 : pixel_aspect);
  const double scale =
      own_size ? own_scale
               : std::min(g.rows / physical_rows, g.columns / static_cast<double>(g.source_columns));
  g.height = std::min(g.rows, Rounded(physical_rows * scale));
  g.width = std::min(g.columns, Rounded(g.source_columns * scale));
  g.top = (g.rows - g.height) / 2;
  g.left = (g.columns - g.width) / 2;
}

void Crop(double pixel_aspect, Geometry& g) {
  const double physical_rows = g.source_rows * pixel_aspect;
  const double scale = std::max(g.rows / physical_rows, g.columns / static_cast<double>(g.source_columns));
  g.source_height = std::min<double>(g.source_rows, g.rows / (scale * pixel_aspect));
  g.source_width = std::min<double>(g.source_columns, g.columns / scale);
  g.source_top = (g.source_rows - g.source_height) / 2;
  g.source_left = (g.source_columns - g.source_width) / 2;
}

void KeepPixels(const SizeSpec& size, double own_scale, Geometry& g) {
  if (own_scale < 1 || g.rows < g.source_rows || g.columns < g.source_columns ||
      (size.kind == SizeSpec::Kind::kFixed && (g.rows != g.source_rows || g.columns != g.source_columns))) {
    throw EngineError("no_model_accepts",
                      "The model takes images without resampling, expected at most " +
                          std::to_string(size.kind == SizeSpec::Kind::kFixed ? size.height : size.max_side) +
                          " x " +
                          std::to_string(size.kind == SizeSpec::Kind::kFixed ? size.width : size.max_side) +
                          " pixels (exactly so many where the size is fixed); found " +
                          std::to_string(g.source_rows) + " x " + std::to_string(g.source_columns) + ".");
  }
  g.height = g.source_rows;
  g.width = g.source_columns;
}

}  // namespace

Geometry PlaceImage(int rows, int columns, double pixel_aspect, const SizeSpec& size, Fit fit) {
  Geometry g;
  g.source_rows = rows;
  g.source_columns = columns;
  g.source_height = rows;
  g.source_width = columns;
  const double own_scale = OwnScale(rows, columns, size);
  TensorSides(size, own_scale, g);
  g.height = g.rows;
  g.width = g.columns;
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
