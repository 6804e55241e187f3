#include "bits.h"

#include <algorithm>
#include <cstring>

#include "error.h"
#include "simd.h"

namespace radserve {
namespace {

/// Pixels that are one byte when packed.
constexpr size_t kEight = 8;
constexpr uint64_t kOnes = 0x0101010101010101;

RADSERVE_HOT_LOOP void MarkRow(const uint8_t* __restrict bytes, size_t count, uint8_t value, uint8_t flip,
                               uint8_t* __restrict plane) {
  for (size_t i = 0; i < count; ++i) plane[i] = static_cast<uint8_t>(bytes[i] == value) ^ flip;
}

/// Eight bytes of 0 and 1, the first in the lowest bit.
unsigned Packed(const uint8_t* pixels) {
  uint64_t word;
  std::memcpy(&word, pixels, kEight);
  // Of the products in the highest byte no two meet
  return static_cast<unsigned>(word * 0x0102040810204080 >> 56);
}

void Unpack(unsigned eight, uint8_t* pixels) {
  // One bit in each byte, then that bit as 1
  const uint64_t bits = (eight * kOnes) & 0x8040201008040201;
  const uint64_t word = (bits + 0x7f * kOnes) >> 7 & kOnes;
  std::memcpy(pixels, &word, kEight);
}

}  // namespace

void MarkEqual(std::span<const uint8_t> bytes, uint8_t value, bool flip, std::span<uint8_t> plane) {
  MarkRow(bytes.data(), std::min(bytes.size(), plane.size()), value, flip ? 1 : 0, plane.data());
}

void PackPlane(std::span<const uint8_t> plane, std::span<uint8_t> bits, size_t at) {
  const size_t room = bits.size() * kEight;
  if (at > room || plane.size() > room - at)
    throw EngineError("internal", "Expected room for a packed plane.");
  const size_t shift = at % kEight;
  uint8_t* to = bits.data() + at / kEight;
  size_t i = 0;
  for (; i + kEight <= plane.size(); i += kEight) {
    const unsigned eight = Packed(plane.data() + i) << shift;
    *to++ |= static_cast<uint8_t>(eight);
    if (shift > 0) *to = static_cast<uint8_t>(eight >> kEight);
  }
  for (; i < plane.size(); ++i) {
    bits[(at + i) / kEight] |= static_cast<uint8_t>(plane[i] << (at + i) % kEight);
  }
}

void UnpackPlane(std::span<const uint8_t> bits, size_t at, std::span<uint8_t> plane) {
  const size_t shift = at % kEight;
  const auto byte = [&](size_t index) { return index < bits.size() ? unsigned{bits[index]} : 0u; };
  size_t from = at / kEight;
  size_t i = 0;
  for (; i + kEight <= plane.size(); i += kEight, ++from) {
    const unsigned two = byte(from) | byte(from + 1) << kEight;
    Unpack(two >> shift & 0xff, plane.data() + i);
  }
  for (; i < plane.size(); ++i) plane[i] = byte((at + i) / kEight) >> (at + i) % kEight & 1;
}

}  // namespace radserve
