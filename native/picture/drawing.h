#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "picture/canvas.h"

namespace radserve {

/// The commands of a drawing, one after the other, each a number of these and then its arguments;
/// places and sizes in pixels of the page, colours as 0xRRGGBB, opacity 0 to 1.
enum class Operation : uint8_t {
  /// x, y, width, height: what follows shows there only.
  kClip,
  /// No more.
  kUnclip,
  /// x, y, width, height, radius of the corners, width of the line (0: filled), colour, opacity.
  kRectangle,
  /// x0, y0, x1, y1, width of the line, colour, opacity.
  kLine,
  /// colour, count; of each glyph its place among the glyphs' bytes, width, height, x, y.
  kGlyphs,
};

/// Draws over the canvas; what lies beside it is left out. Throws internal if the list is not
/// whole, or if glyphs are not among `glyphs`, which holds the coverage of each of their pixels.
void Draw(std::span<const double> drawing, std::span<const uint8_t> glyphs, const Canvas& canvas);

/// Fills outlines: the coverage, 0 to 255, of width x height pixels from (left, top) on. `segments`
/// holds x0, y0, x1, y1 of each line of closed outlines; what they go round in either direction is
/// inside (the non-zero rule of fonts).
void FillOutline(std::span<const float> segments, double left, double top, size_t width,
                 size_t height, std::span<uint8_t> coverage);

}  // namespace radserve
