#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/word.h"
#include "picture/page.h"

namespace radserve {

/// A page while it is composed.
struct Canvas {
  size_t width = 0;
  size_t height = 0;
  std::span<uint8_t> rgb;

  uint8_t* at(size_t x, size_t y) const { return rgb.data() + (y * width + x) * 3; }
};

/// The first byte from `at` on that is not 0, or `count`.
inline size_t NextSet(const uint8_t* bytes, size_t at, size_t count) {
  for (; at + sizeof(uint64_t) <= count; at += sizeof(uint64_t)) {
    if (const uint64_t word = WordAt(bytes + at))
      return at + static_cast<size_t>(std::countr_zero(word)) / 8;
  }
  while (at < count && bytes[at] == 0) ++at;
  return at;
}

/// Lays a colour over a pixel, 255 being opaque; rounded to nearest.
inline void Blend(uint8_t* pixel, const Rgb& colour, uint32_t alpha) {
  for (size_t c = 0; c < 3; ++c) {
    pixel[c] = static_cast<uint8_t>((pixel[c] * (255 - alpha) + colour[c] * alpha + 127) / 255);
  }
}

}  // namespace radserve
