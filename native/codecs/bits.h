#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

/// Planes of one byte a pixel, 0 or 1, and the same packed: the first pixel in the lowest bit
/// (PS3.5 section 8.1.1).
namespace radserve {

/// 1 where a byte is `value`, 0 elsewhere; the other way round with `flip`. As many bytes as the
/// shorter one has.
void MarkEqual(std::span<const uint8_t> bytes, uint8_t value, bool flip, std::span<uint8_t> plane);

/// Packs a plane from bit `at` of `bits` on, which is zero from there on. Throws internal where it
/// has no room.
void PackPlane(std::span<const uint8_t> plane, std::span<uint8_t> bits, size_t at);

/// Fills a plane from bit `at` of `bits` on; 0 where there are no more bits.
void UnpackPlane(std::span<const uint8_t> bits, size_t at, std::span<uint8_t> plane);

/// Where the bits of a pixel lie in its container (PS3.5 section 8.1.1).
struct Container {
  /// 1, 2 or 4.
  size_t bytes = 2;
  /// Bits that are to be zero.
  uint32_t outside = 0;
  /// The highest bit of a signed value, which may fill all of `outside`.
  std::optional<unsigned> sign;
};

/// The first value that has a bit outside which is not its sign; nullopt if there is no such value.
std::optional<uint32_t> FirstStray(std::span<const uint8_t> bytes, const Container& container);

}  // namespace radserve
