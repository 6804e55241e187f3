#ifndef RADSERVE_BITS_H_
#define RADSERVE_BITS_H_

#include <cstddef>
#include <cstdint>
#include <span>

/// Planes of one byte a pixel, 0 or 1, and the same packed: the first pixel in the lowest bit (PS3.5
/// section 8.1.1).
namespace radserve {

/// 1 where a byte is `value`, 0 elsewhere; the other way round with `flip`. As many bytes as the shorter one
/// has.
void MarkEqual(std::span<const uint8_t> bytes, uint8_t value, bool flip, std::span<uint8_t> plane);

/// Packs a plane from bit `at` of `bits` on, which is zero from there on. Throws internal where it has no
/// room.
void PackPlane(std::span<const uint8_t> plane, std::span<uint8_t> bits, size_t at);

/// Fills a plane from bit `at` of `bits` on; 0 where there are no more bits.
void UnpackPlane(std::span<const uint8_t> bits, size_t at, std::span<uint8_t> plane);

}  // namespace radserve

#endif  // RADSERVE_BITS_H_
