#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/image.h"
#include "prepare/pixel_rows.h"
#include "prepare/values.h"

namespace radserve {

/// Reads one frame as the manifest's `values`, row by row, in the tensor's channel order.
/// - Grayscale: containers are shifted and masked by High Bit and Bits Stored and read by sign,
///   then ValueMap; pixels in the padding range (stored values, PS3.3 C.7.5.1.1.2), and floats that
///   are no numbers, are background.
/// - Colour: palette to RGB of 8 bits (the high byte of 16-bit entries); YBR to RGB by CCIR 601
///   (PS3.3 C.7.6.3.1.2), rounded; `voi` divides by the full range; grayscale models get the
///   luminance 0.299 R + 0.587 G + 0.114 B.
class PixelSource {
 public:
  /// `plane` and `spec` must outlive it. Throws truncated_image, corrupt_image, no_model_accepts.
  PixelSource(const Plane& plane, const ValueFields& spec);

  int channels() const { return channels_; }
  float background() const { return background_; }
  /// The range of values outside padding, if the values depend on it (ValueMap::NeedsObserved).
  const std::optional<Range>& observed() const { return observed_; }
  /// Fills `channels()` arrays of the image's width. Thread safe.
  void Row(int row, float* const* channels) const;
  /// Adds the values outside padding with how often each occurs: distinct ones for grayscale of at
  /// most 16 bits, else each by itself.
  void AppendValues(std::vector<std::pair<double, uint64_t>>& values) const;
  /// One byte a pixel, 1 if it is padding; empty if nothing is.
  std::vector<uint8_t> PaddingMask() const;

 private:
  using RgbValue = std::array<double, 3>;

  void PrepareGray(const ValueFields& spec);
  void PrepareColour(const ValueFields& spec);
  bool Small() const;
  double Stored(size_t sample) const;
  uint32_t Masked(size_t sample) const;
  bool IsPadding(double stored) const;
  Range ObservedRange(const ModalityTransform* modality) const;
  std::vector<uint64_t> Histogram() const;
  double FromMasked(uint32_t masked) const;
  void GrayRow(int row, float* out) const;
  const uint8_t* RowBytes(int row) const;
  void ColourRow(int row, float* const* channels) const;
  void ColourRow8(int row, float* const* channels) const;
  void PaletteRow(int row, float* const* channels) const;
  float ColourValue(double value) const;
  void ColourValues(const RgbValue& rgb, float* values) const;
  RgbValue PaletteRgb(double index) const;
  RgbValue Rgb(size_t row_sample, int column) const;

  const Plane& plane_;
  int channels_ = 1;
  float background_ = 0;
  std::optional<Range> observed_;
  Containers bits_;
  /// Grayscale.
  std::optional<ValueMap> map_;
  std::optional<ValueMap::Affine> affine_;
  bool affine_in_float_ = false;
  /// Value by masked container, if the map is not affine and the container has at most 16 bits.
  std::vector<float> table_;
  /// Colour.
  ChannelOrder order_ = ChannelOrder::kGrayscale;
  double colour_divisor_ = 1;
  Range colour_clip_;
  /// ColourValue of 0 to 255.
  std::vector<float> colour_table_;
  /// PALETTE COLOR of at most 16 bits: each channel's value by masked container.
  std::array<std::vector<float>, 3> palette_tables_;
};

}  // namespace radserve
