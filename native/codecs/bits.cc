#include "codecs/bits.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/simd.h"
#include "base/word.h"

namespace radserve {
namespace {

/// Pixels that are one byte when packed.
constexpr size_t kEight = 8;
constexpr uint64_t kOnes = 0x0101010101010101;

RADSERVE_HOT_LOOP void MarkRow(const uint8_t* __restrict bytes, size_t count, uint8_t value,
                               uint8_t flip, uint8_t* __restrict plane) {
  for (size_t i = 0; i < count; ++i) plane[i] = static_cast<uint8_t>(bytes[i] == value) ^ flip;
}

/// Eight bytes of 0 and 1, the first in the lowest bit.
unsigned Packed(const uint8_t* pixels) {
  // In the highest byte no two products meet.
  return static_cast<unsigned>(WordAt(pixels) * 0x0102040810204080 >> 56);
}

void Unpack(unsigned eight, uint8_t* pixels) {
  // One bit in each byte, then that bit as 1
  const uint64_t bits = (eight * kOnes) & 0x8040201008040201;
  const uint64_t word = (bits + 0x7f * kOnes) >> 7 & kOnes;
  std::memcpy(pixels, &word, kEight);
}

template <typename T>
bool IsStray(T value, T outside, T is_signed, unsigned sign) {
  const T fill = static_cast<T>(-static_cast<T>(value >> sign & is_signed)) & outside;
  const T found = value & outside;
  return (found != 0) & (found != fill);
}

template <typename T>
T Load(const uint8_t* bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}

/// The bits that any of the values has.
template <typename T>
T AllBits(const uint8_t* bytes, size_t count) {
  T all = 0;
  for (size_t i = 0; i < count; ++i) all |= Load<T>(bytes, i);
  return all;
}

/// Block by block: whether one may be there takes much less time than where.
template <typename T>
std::optional<uint32_t> FirstStrayOf(std::span<const uint8_t> bytes, const Container& container) {
  constexpr size_t kBlock = 4096;
  const auto outside = static_cast<T>(container.outside);
  const T is_signed = container.sign ? 1 : 0;
  const unsigned sign = container.sign.value_or(0);
  const size_t count = bytes.size() / sizeof(T);
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t end = std::min(count, begin + kBlock);
    if ((AllBits<T>(bytes.data() + begin * sizeof(T), end - begin) & outside) == 0) continue;
    T any = 0;
    for (size_t i = begin; i < end; ++i) {
      any |= IsStray(Load<T>(bytes.data(), i), outside, is_signed, sign) ? 1 : 0;
    }
    for (size_t i = begin; any != 0 && i < end; ++i) {
      const T value = Load<T>(bytes.data(), i);
      if (IsStray(value, outside, is_signed, sign)) return value;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<uint32_t> FirstStray(std::span<const uint8_t> bytes, const Container& container) {
  switch (container.bytes) {
    case 1:
      return FirstStrayOf<uint8_t>(bytes, container);
    case 2:
      return FirstStrayOf<uint16_t>(bytes, container);
    case 4:
      return FirstStrayOf<uint32_t>(bytes, container);
    default:
      throw EngineError("internal", "Expected a container of 1, 2 or 4 bytes.");
  }
}

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
