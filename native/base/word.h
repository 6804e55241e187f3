#pragma once

#include <cstdint>
#include <cstring>

namespace radserve {

/// Eight bytes at once, the first one lowest: every processor that this runs on is little endian.
inline uint64_t WordAt(const uint8_t* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

}  // namespace radserve
