#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/image.h"
#include "prepare/input.h"

namespace radserve::test {

/// A plane with its own bytes.
struct OwnedPlane {
  std::vector<uint8_t> bytes;
  Plane plane;

  OwnedPlane(const OwnedPlane&) = delete;
  OwnedPlane& operator=(const OwnedPlane&) = delete;
  template <typename T>
  OwnedPlane(int rows, int columns, const std::vector<T>& samples, int bits_stored = sizeof(T) * 8,
             bool is_signed = false, Photometric photometric = Photometric::kMonochrome2)
      : bytes(samples.size() * sizeof(T)) {
    std::memcpy(bytes.data(), samples.data(), bytes.size());
    plane.data = bytes;
    PixelFormat& f = plane.format;
    f.rows = rows;
    f.columns = columns;
    f.bits_allocated = sizeof(T) * 8;
    f.bits_stored = bits_stored;
    f.high_bit = bits_stored - 1;
    f.is_signed = is_signed;
    f.photometric = photometric;
    f.samples = f.Monochrome() || photometric == Photometric::kPalette ? 1 : 3;
  }
};

/// Modality values as they are, on the source's own grid.
inline InputSpec PlainSpec() {
  InputSpec spec;
  spec.tensor = "x";
  spec.size.kind = SizeSpec::Kind::kSource;
  spec.values.kind = ValuesSpec::Kind::kModality;
  return spec;
}

/// The same of a volume whose axes run as the letters say; as they are without any.
inline InputSpec VolumeSpec(const std::string& orientation) {
  InputSpec spec = PlainSpec();
  spec.volume = true;
  spec.orientation = orientation;
  return spec;
}

}  // namespace radserve::test
