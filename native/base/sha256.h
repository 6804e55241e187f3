#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace radserve {

/// SHA-256 (FIPS 180-4, section 6.2), by the processor's own instructions where it has them.
/// Blended slices are hashed where they are made: no memory would hold them until JavaScript could.
std::array<std::byte, 32> Sha256(std::span<const std::byte> message);

}  // namespace radserve
