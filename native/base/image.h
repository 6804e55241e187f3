#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace radserve {

/// These mirror src/images/image.ts; what the fields mean is said there.
enum class Photometric {
  kMonochrome1,
  kMonochrome2,
  kPalette,
  kRgb,
  kYbrFull,
  kYbrFull422,
  kYbrPartial420
};

struct PixelFormat {
  int rows = 0;
  int columns = 0;
  int samples = 1;
  int bits_allocated = 8;
  int bits_stored = 8;
  int high_bit = 7;
  bool is_signed = false;
  bool is_float = false;
  Photometric photometric = Photometric::kMonochrome2;
  bool packed422 = false;

  bool Monochrome() const {
    return photometric == Photometric::kMonochrome1 || photometric == Photometric::kMonochrome2;
  }
};

struct LookupTable {
  double first_mapped = 0;
  int bits = 16;
  std::vector<uint16_t> entries;
};

struct ModalityTransform {
  enum class Kind { kIdentity, kRescale, kLut } kind = Kind::kIdentity;
  double slope = 1;
  double intercept = 0;
  LookupTable lut;
};

enum class WindowFunction { kLinear, kLinearExact, kSigmoid };

struct Window {
  double center = 0;
  double width = 1;
  WindowFunction function = WindowFunction::kLinear;
};

/// A window, or a lookup table where `lut` has entries.
struct VoiTransform {
  Window window;
  std::optional<LookupTable> lut;
};

struct PaddingRange {
  double from = 0;
  double to = 0;
};

struct Palette {
  double first_mapped = 0;
  int bits = 16;
  std::vector<uint16_t> red, green, blue;
};

struct StoredBits {
  int bits_stored = 8;
  bool is_signed = false;
};

struct Interpretation {
  ModalityTransform modality;
  bool hounsfield = false;
  std::vector<VoiTransform> voi;
  std::optional<PaddingRange> padding;
  std::optional<Palette> palette;
  std::optional<StoredBits> own_bits;
};

/// One frame. The bytes belong to the caller and outlive every use of the plane.
struct Plane {
  PixelFormat format;
  std::span<const uint8_t> data;
  Interpretation interpretation;
  double pixel_aspect = 1;
};

}  // namespace radserve
