#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

/// RLE Lossless (PS3.5 annex G): a header, then a segment for each byte plane, each PackBits of its
/// own.
namespace radserve {

/// Segments that a header has room for (G.5).
constexpr size_t kMostRleSegments = 15;

/// Pixels of `planes` bytes each, rows top to bottom.
struct RleShape {
  size_t planes, rows, columns;
  size_t bytes() const { return planes * rows * columns; }
};

size_t MostRleBytes(const RleShape& shape);

/// Codes a frame of 8-bit samples, a segment for each of a pixel's bytes; returns its length. Each
/// row is coded by itself (G.3.1): what lies between runs as it is, and a run of two with it, which
/// alone would save nothing. Equal pixels give equal bytes. Throws internal unless there are
/// shape.bytes() pixels and room for MostRleBytes.
size_t PackRle(std::span<const uint8_t> pixels, const RleShape& shape, std::span<uint8_t> out);

enum class RleFault : uint8_t {
  kNone,
  /// The segment lies outside its frame.
  kOutside,
  /// It ends before its pixels do.
  kShort,
  /// It ends inside a run.
  kCutRun,
};

/// The first segment, from 0, that is not sound.
struct RleVerdict {
  RleFault fault;
  size_t segment;
};

/// Decodes a frame of samples of `sample_bytes` bytes, by pixel and little endian; its segments are
/// byte planes, the most significant byte first, sample after sample (G.2). A segment has to fill
/// its plane; what encoders have padded beyond the last pixel is dropped. After a fault `out` holds
/// anything. Throws internal unless the frame has a header and `out` whole pixels of at most 15
/// bytes.
RleVerdict UnpackRle(std::span<const uint8_t> frame, size_t samples, size_t sample_bytes,
                     std::span<uint8_t> out);

/// Whether a frame of 8-bit samples, a segment for each of a pixel's bytes, holds these pixels and
/// nothing is wrong with it. No more than a block of it is unpacked at once. Throws as UnpackRle
/// does.
bool RleHolds(std::span<const uint8_t> frame, std::span<const uint8_t> pixels, size_t planes);

}  // namespace radserve
