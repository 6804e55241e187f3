#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "prepare/values.h"

namespace radserve {

/// How stored values lie in containers of one or two bytes, little endian (PS3.5 section 8.1.1),
/// and which of them are padding, inclusive; no value is padding if `padding_from` is the greater.
struct Containers {
  bool wide = false;
  uint32_t shift = 0;
  uint32_t mask = 0;
  /// The sign bit of a shifted and masked value; 0 if it is unsigned.
  uint32_t sign = 0;
  int32_t padding_from = 0;
  int32_t padding_to = 0;
};

/// The loops over a row that most of a preparation's time goes into. `bytes` may lie at any
/// address.

/// value = clamp(stored * a + b), or background in the padding range: computed in double and
/// rounded once, as rescale in DS (PS3.3 C.11.1) is meant; `in_float` if that comes to the same
/// (Affine::IsExactInFloat).
void AffineRow(const Containers& containers, const uint8_t* bytes, int count,
               const ValueMap::Affine& map, bool in_float, float background, float* out);
/// value = table[shifted and masked container]
void TableRow(const Containers& containers, const uint8_t* bytes, int count, const float* table,
              float* out);
/// One byte a pixel, 1 if it is padding; true if one is.
bool PaddingRow(const Containers& containers, const uint8_t* bytes, int count, uint8_t* out);
/// How often each shifted and masked container occurs.
std::vector<uint64_t> CountContainers(const Containers& containers, const uint8_t* bytes,
                                      size_t pixels);

/// CCIR 601 (PS3.3 C.7.6.3.1.2), full or studio range, eight bits, in place, rounded.
void YbrToRgbRow(bool partial, int count, uint8_t* first, uint8_t* second, uint8_t* third);
/// clamp((0.299 R + 0.587 G + 0.114 B) / divisor)
void LuminanceRow(const uint8_t* red, const uint8_t* green, const uint8_t* blue, int count,
                  double divisor, const Range& clip, float* out);

}  // namespace radserve
