#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

/// JPEG 2000 (ISO/IEC 15444-1) by the system's OpenJPEG, where it has one. Its library is looked
/// for when it is first asked for, by its SONAME libopenjp2.so.7, so that no machine needs it.
namespace radserve {

/// The header of a frame's codestream.
struct Jpeg2000Frame {
  uint32_t rows = 0;
  uint32_t columns = 0;
  uint32_t components = 0;
  /// Bits of a sample, 1 to 16.
  uint32_t precision = 0;
  bool is_signed = false;

  size_t SampleBytes() const { return precision <= 8 ? 1 : 2; }
  size_t Bytes() const { return size_t{rows} * columns * components * SampleBytes(); }
};

/// Version of the system's library, as 2.5.0. Empty where there is none, or one before 2.3.0, the
/// first that decodes on several threads.
std::string OpenJpegVersion();

/// Decodes a codestream (no JP2 boxes) on so many threads into `pixels`, which has frame.Bytes():
/// samples row by row and colour by pixel, of one byte up to 8 bits and else of two, little endian.
/// Throws EngineError unsupported_format where there is no library, and corrupt_image where the
/// library complains of anything at all, or the frame is not as `frame` says.
void DecodeJpeg2000(std::span<const uint8_t> codestream, const Jpeg2000Frame& frame, int threads,
                    std::span<uint8_t> pixels);

}  // namespace radserve
