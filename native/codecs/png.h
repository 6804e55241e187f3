#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// PNG (ISO/IEC 15948) of pictures that are drawn: plain areas, text, and panels that repeat one
/// another.
namespace radserve {

/// Codes a picture of three bytes (RGB) a pixel, rows top to bottom, as PNG without filters and
/// without interlacing. Equal pixels give equal bytes, on every processor. Throws internal unless
/// there are width x height pixels, and both are from 1 to 2^20.
///
/// Deflate (RFC 1951) is written here, and not by a library, because a library does not know that
/// the bytes are pixels: it looks for matches at each byte, and three quarters of the time of those
/// that were tried went into plain areas. Here a step is a pixel, and a row that repeats the one
/// above is compared once.
std::vector<uint8_t> PackPng(std::span<const uint8_t> rgb, size_t width, size_t height);

}  // namespace radserve
