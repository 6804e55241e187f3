#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "picture/page.h"

namespace radserve {

/// A page while it is composed.
struct Canvas {
  size_t width = 0;
  size_t height = 0;
  std::span<uint8_t> rgb;

  uint8_t* at(size_t x, size_t y) const { return rgb.data() + (y * width + x) * 3; }
};

/// Lays a colour over a pixel, 255 being opaque; rounded to nearest.
inline void Blend(uint8_t* pixel, const Rgb& colour, uint32_t alpha) {
  for (size_t c = 0; c < 3; ++c) {
    pixel[c] = static_cast<uint8_t>((pixel[c] * (255 - alpha) + colour[c] * alpha + 127) / 255);
  }
}

}  // namespace radserve
