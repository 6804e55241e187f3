#include "prepare/pixels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/error.h"

namespace radserve {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void CheckFormat(const PixelFormat& f) {
  const bool allocated = f.bits_allocated == 8 || f.bits_allocated == 16 ||
                         f.bits_allocated == 32 || f.bits_allocated == 64;
  const bool bits = f.is_float
                        ? f.bits_allocated >= 32
                        : f.bits_stored >= 1 && f.bits_stored <= f.bits_allocated &&
                              f.high_bit < f.bits_allocated && f.high_bit + 1 >= f.bits_stored;
  const bool palette = f.photometric == Photometric::kPalette;
  const int samples = f.Monochrome() || palette ? 1 : 3;
  const bool packed = !f.packed422 || (f.photometric == Photometric::kYbrFull422 &&
                                       f.bits_allocated == 8 && f.columns % 2 == 0);
  // Indices of a palette may have a sign (PS3.3 C.7.6.3.1.5), other colours have none
  const bool colour =
      f.Monochrome() || (!f.is_float && (palette || !f.is_signed) && f.bits_allocated <= 16);
  if (f.rows < 1 || f.columns < 1 || !allocated || !bits || f.samples != samples || !packed ||
      !colour) {
    throw EngineError(
        "corrupt_image",
        "Bits Allocated, Bits Stored, High Bit, Samples per Pixel and Photometric Interpretation "
        "do not go together: found " +
            std::to_string(f.bits_allocated) + ", " + std::to_string(f.bits_stored) + ", " +
            std::to_string(f.high_bit) + ", " + std::to_string(f.samples) + " samples.");
  }
}

void CheckLength(const Plane& plane) {
  const PixelFormat& f = plane.format;
  const size_t pixels = static_cast<size_t>(f.rows) * static_cast<size_t>(f.columns);
  const size_t samples = f.packed422 ? 2 : static_cast<size_t>(f.samples);
  const size_t expected = pixels * samples * static_cast<size_t>(f.bits_allocated / 8);
  if (plane.data.size() < expected) {
    throw EngineError("truncated_image", "Expected " + std::to_string(expected) +
                                             " bytes of pixels in the frame, found " +
                                             std::to_string(plane.data.size()) + ".");
  }
}

/// CCIR 601 (PS3.3 C.7.6.3.1.2), full or studio range, scaled to the sample's bits, rounded to
/// stored values.
void YbrToRgb(bool partial, double full, const double ybr[3], double rgb[3]) {
  const double centre = (full + 1) / 2;
  const double unit = (full + 1) / 256;
  const double y = partial ? (ybr[0] - 16 * unit) * 255 / 219 : ybr[0];
  const double chroma = partial ? 255.0 / 224 : 1;
  const double cb = (ybr[1] - centre) * chroma;
  const double cr = (ybr[2] - centre) * chroma;
  const double out[3] = {y + 1.402 * cr, y - (0.114 * 1.772 * cb + 0.299 * 1.402 * cr) / 0.587,
                         y + 1.772 * cb};
  for (int c = 0; c < 3; ++c) rgb[c] = std::clamp(std::floor(out[c] + 0.5), 0.0, full);
}

double PaletteEntry(const std::vector<uint16_t>& entries, const Palette& palette, double index) {
  const double last = static_cast<double>(entries.size()) - 1;
  const uint16_t entry =
      entries[static_cast<size_t>(std::clamp(index - palette.first_mapped, 0.0, last))];
  return palette.bits > 8 ? entry >> 8 : entry;
}

}  // namespace

PixelSource::PixelSource(const Plane& plane, const ValueFields& spec) : plane_(plane) {
  CheckFormat(plane.format);
  CheckLength(plane);
  channels_ = spec.PixelChannels();
  const PixelFormat& f = plane.format;
  bits_.wide = f.bits_allocated == 16;
  bits_.shift = f.is_float ? 0 : static_cast<uint32_t>(f.high_bit + 1 - f.bits_stored);
  bits_.mask = f.bits_stored >= 32 ? ~0u : (1u << f.bits_stored) - 1;
  bits_.sign = f.is_signed && f.bits_stored <= 32 ? 1u << (f.bits_stored - 1) : 0;
  if (f.Monochrome()) {
    PrepareGray(spec);
  } else {
    PrepareColour(spec);
  }
}

void PixelSource::PrepareGray(const ValueFields& spec) {
  bits_.padding_from = std::numeric_limits<int32_t>::max();
  bits_.padding_to = std::numeric_limits<int32_t>::min();
  if (const auto& padding = plane_.interpretation.padding) {
    const double least = std::numeric_limits<int32_t>::min();
    const double most = std::numeric_limits<int32_t>::max();
    const auto [from, to] = std::minmax(padding->from, padding->to);
    bits_.padding_from = static_cast<int32_t>(std::clamp(std::ceil(from), least, most));
    bits_.padding_to = static_cast<int32_t>(std::clamp(std::floor(to), least, most));
  }
  if (ValueMap::NeedsObserved(plane_, spec)) {
    const bool stored = spec.values.kind == ValuesSpec::Kind::kStored;
    observed_ = ObservedRange(stored ? nullptr : &plane_.interpretation.modality);
  }
  map_.emplace(plane_, spec, observed_);
  background_ = map_->background();
  affine_ = map_->AsAffine();
  affine_in_float_ = affine_ && affine_->IsExactInFloat(static_cast<double>(bits_.mask) + 1);
  if (!Small() || affine_) return;
  table_.resize(static_cast<size_t>(bits_.mask) + 1);
  for (size_t i = 0; i < table_.size(); ++i) {
    const double stored = FromMasked(static_cast<uint32_t>(i));
    table_[i] = IsPadding(stored) ? background_ : static_cast<float>((*map_)(stored));
  }
}

void PixelSource::PrepareColour(const ValueFields& spec) {
  order_ = spec.channels;
  if (spec.channels == ChannelOrder::kGrayscale && !spec.accept_colour) {
    throw EngineError("no_model_accepts", "The model takes grayscale images and refuses colour.");
  }
  if (spec.values.kind == ValuesSpec::Kind::kWindow) {
    throw EngineError("no_model_accepts",
                      "The model applies a window to modality values; a colour image has none.");
  }
  const bool palette = plane_.format.photometric == Photometric::kPalette;
  if (palette) {
    const auto& p = plane_.interpretation.palette;
    if (!p || p->red.empty() || p->green.empty() || p->blue.empty()) {
      throw EngineError("corrupt_image",
                        "Expected a Palette Color Lookup Table for PALETTE COLOR (PS3.3 "
                        "C.7.6.3.1.5); found none.");
    }
  }
  const double full = palette ? 255 : StoredRange(plane_.format).high;
  colour_divisor_ = spec.values.kind == ValuesSpec::Kind::kVoi ? full : 1;
  colour_clip_ =
      spec.clip ? Range{spec.clip->first, spec.clip->second} : Range{-kInfinity, kInfinity};
  background_ =
      static_cast<float>(std::clamp(spec.background, colour_clip_.low, colour_clip_.high));
  for (int v = 0; v < 256; ++v) colour_table_.push_back(ColourValue(v));
  if (!palette || !Small()) return;
  for (uint32_t masked = 0; masked <= bits_.mask; ++masked) {
    float values[3];
    ColourValues(PaletteRgb(FromMasked(masked)), values);
    for (int c = 0; c < channels_; ++c)
      palette_tables_[static_cast<size_t>(c)].push_back(values[c]);
  }
}

/// Containers of one or two bytes have fast paths.
bool PixelSource::Small() const {
  return !plane_.format.is_float && plane_.format.bits_allocated <= 16;
}

uint32_t PixelSource::Masked(size_t sample) const {
  if (plane_.format.bits_allocated == 8) return (plane_.data[sample] >> bits_.shift) & bits_.mask;
  uint16_t word;
  std::memcpy(&word, plane_.data.data() + sample * sizeof(word), sizeof(word));
  return (static_cast<uint32_t>(word) >> bits_.shift) & bits_.mask;
}

double PixelSource::FromMasked(uint32_t masked) const {
  return static_cast<double>(static_cast<int64_t>(masked ^ bits_.sign) -
                             static_cast<int64_t>(bits_.sign));
}

double PixelSource::Stored(size_t sample) const {
  const PixelFormat& f = plane_.format;
  if (Small()) return FromMasked(Masked(sample));
  const size_t bytes = static_cast<size_t>(f.bits_allocated) / 8;
  uint64_t raw = 0;
  std::memcpy(&raw, plane_.data.data() + sample * bytes, bytes);
  if (f.is_float && bytes == sizeof(float)) {
    float value;
    std::memcpy(&value, &raw, sizeof(value));
    return static_cast<double>(value);
  }
  if (f.is_float) {
    double value;
    std::memcpy(&value, &raw, sizeof(value));
    return value;
  }
  raw >>= bits_.shift;
  // Moved to the top of the word and back, a shift extends the sign.
  const int unused = 64 - f.bits_stored;
  if (f.is_signed) return static_cast<double>(static_cast<int64_t>(raw << unused) >> unused);
  return static_cast<double>((raw << unused) >> unused);
}

bool PixelSource::IsPadding(double stored) const {
  if (!std::isfinite(stored)) return true;
  const auto& padding = plane_.interpretation.padding;
  if (!padding) return false;
  const auto [from, to] = std::minmax(padding->from, padding->to);
  return stored >= from && stored <= to;
}

std::vector<uint64_t> PixelSource::Histogram() const {
  const size_t pixels =
      static_cast<size_t>(plane_.format.rows) * static_cast<size_t>(plane_.format.columns);
  return CountContainers(bits_, plane_.data.data(), pixels);
}

Range PixelSource::ObservedRange(const ModalityTransform* modality) const {
  Range range = {kInfinity, -kInfinity};
  const auto take = [&](double stored) {
    if (IsPadding(stored)) return;
    const double value = modality == nullptr ? stored : ModalityValue(*modality, stored);
    range.low = std::min(range.low, value);
    range.high = std::max(range.high, value);
  };
  if (Small()) {
    const std::vector<uint64_t> counts = Histogram();
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] != 0) take(FromMasked(static_cast<uint32_t>(i)));
    }
  } else {
    const size_t pixels =
        static_cast<size_t>(plane_.format.rows) * static_cast<size_t>(plane_.format.columns);
    for (size_t i = 0; i < pixels; ++i) take(Stored(i));
  }
  return range.low <= range.high ? range : Range{0, 0};
}

void PixelSource::Row(int row, float* const* channels) const {
  if (!plane_.format.Monochrome()) {
    ColourRow(row, channels);
    return;
  }
  GrayRow(row, channels[0]);
  for (int c = 1; c < channels_; ++c) std::copy_n(channels[0], plane_.format.columns, channels[c]);
}

void PixelSource::GrayRow(int row, float* out) const {
  const int columns = plane_.format.columns;
  const size_t first = static_cast<size_t>(row) * static_cast<size_t>(columns);
  if (!Small()) {
    for (int i = 0; i < columns; ++i) {
      const double stored = Stored(first + static_cast<size_t>(i));
      out[i] = IsPadding(stored) ? background_ : static_cast<float>((*map_)(stored));
    }
    return;
  }
  const uint8_t* bytes = RowBytes(row);
  if (affine_)
    return AffineRow(bits_, bytes, columns, *affine_, affine_in_float_, background_, out);
  TableRow(bits_, bytes, columns, table_.data(), out);
}

/// Containers of one row of one sample a pixel.
const uint8_t* PixelSource::RowBytes(int row) const {
  const PixelFormat& f = plane_.format;
  return plane_.data.data() + static_cast<ptrdiff_t>(row) * f.columns * (f.bits_allocated / 8);
}

PixelSource::RgbValue PixelSource::PaletteRgb(double index) const {
  const Palette& p = *plane_.interpretation.palette;
  return {PaletteEntry(p.red, p, index), PaletteEntry(p.green, p, index),
          PaletteEntry(p.blue, p, index)};
}

PixelSource::RgbValue PixelSource::Rgb(size_t row_sample, int column) const {
  const PixelFormat& f = plane_.format;
  const size_t x = static_cast<size_t>(column);
  if (f.photometric == Photometric::kPalette) return PaletteRgb(Stored(row_sample + x));
  RgbValue sample;
  if (f.packed422) {
    // Two pixels share four bytes: Y1 Y2 Cb Cr (PS3.3 C.7.6.3.1.2).
    const size_t pair = row_sample + x / 2 * 4;
    sample = {Stored(pair + x % 2), Stored(pair + 2), Stored(pair + 3)};
  } else {
    for (size_t c = 0; c < 3; ++c) sample[c] = Stored(row_sample + x * 3 + c);
  }
  if (f.photometric == Photometric::kRgb) return sample;
  RgbValue rgb;
  YbrToRgb(f.photometric == Photometric::kYbrPartial420, StoredRange(f).high, sample.data(),
           rgb.data());
  return rgb;
}

float PixelSource::ColourValue(double value) const {
  return static_cast<float>(
      std::clamp(value / colour_divisor_, colour_clip_.low, colour_clip_.high));
}

/// One pixel in the tensor's channels.
void PixelSource::ColourValues(const RgbValue& rgb, float* values) const {
  if (order_ == ChannelOrder::kGrayscale) {
    values[0] = ColourValue(0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]);
    return;
  }
  const int red = order_ == ChannelOrder::kBgr ? 2 : 0;
  values[red] = ColourValue(rgb[0]);
  values[1] = ColourValue(rgb[1]);
  values[2 - red] = ColourValue(rgb[2]);
}

/// Colour of eight bits, the usual one: the same values as ColourRow, a row at a time.
void PixelSource::ColourRow8(int row, float* const* channels) const {
  const PixelFormat& f = plane_.format;
  const auto columns = static_cast<size_t>(f.columns);
  std::vector<uint8_t> block(columns * 3);
  uint8_t* const plane[3] = {block.data(), block.data() + columns, block.data() + 2 * columns};
  const uint8_t* in =
      plane_.data.data() + static_cast<size_t>(row) * columns * (f.packed422 ? 2 : 3);
  for (size_t x = 0; x < columns; ++x) {
    const uint8_t* pair = in + x / 2 * 4;
    plane[0][x] = f.packed422 ? pair[x % 2] : in[x * 3];
    plane[1][x] = f.packed422 ? pair[2] : in[x * 3 + 1];
    plane[2][x] = f.packed422 ? pair[3] : in[x * 3 + 2];
  }
  if (f.photometric != Photometric::kRgb) {
    YbrToRgbRow(f.photometric == Photometric::kYbrPartial420, f.columns, plane[0], plane[1],
                plane[2]);
  }
  if (order_ == ChannelOrder::kGrayscale) {
    return LuminanceRow(plane[0], plane[1], plane[2], f.columns, colour_divisor_, colour_clip_,
                        channels[0]);
  }
  for (size_t c = 0; c < 3; ++c) {
    float* out = channels[order_ == ChannelOrder::kBgr ? 2 - c : c];
    for (size_t x = 0; x < columns; ++x) out[x] = colour_table_[plane[c][x]];
  }
}

void PixelSource::PaletteRow(int row, float* const* channels) const {
  const auto columns = static_cast<size_t>(plane_.format.columns);
  for (size_t x = 0; x < columns; ++x) {
    const uint32_t masked = Masked(static_cast<size_t>(row) * columns + x);
    for (size_t c = 0; c < static_cast<size_t>(channels_); ++c)
      channels[c][x] = palette_tables_[c][masked];
  }
}

void PixelSource::ColourRow(int row, float* const* channels) const {
  const PixelFormat& f = plane_.format;
  if (!palette_tables_[0].empty()) return PaletteRow(row, channels);
  const bool palette = f.photometric == Photometric::kPalette;
  if (!palette && f.bits_allocated == 8 && f.bits_stored == 8) return ColourRow8(row, channels);
  const size_t samples = f.packed422 ? 2 : static_cast<size_t>(f.samples);
  const size_t row_sample = static_cast<size_t>(row) * static_cast<size_t>(f.columns) * samples;
  for (int x = 0; x < f.columns; ++x) {
    float values[3];
    ColourValues(Rgb(row_sample, x), values);
    for (int c = 0; c < channels_; ++c) channels[c][x] = values[c];
  }
}

void PixelSource::AppendValues(std::vector<std::pair<double, uint64_t>>& values) const {
  const PixelFormat& f = plane_.format;
  if (f.Monochrome() && Small()) {
    const std::vector<uint64_t> counts = Histogram();
    for (size_t i = 0; i < counts.size(); ++i) {
      const double stored = FromMasked(static_cast<uint32_t>(i));
      if (counts[i] != 0 && !IsPadding(stored)) values.emplace_back((*map_)(stored), counts[i]);
    }
    return;
  }
  const int planes = f.Monochrome() ? 1 : channels_;
  const std::vector<uint8_t> padding = PaddingMask();
  std::vector<float> block(static_cast<size_t>(channels_) * static_cast<size_t>(f.columns));
  std::vector<float*> rows;
  for (int c = 0; c < channels_; ++c)
    rows.push_back(block.data() + static_cast<ptrdiff_t>(c) * f.columns);
  for (int y = 0; y < f.rows; ++y) {
    Row(y, rows.data());
    for (int x = 0; x < f.columns; ++x) {
      const size_t pixel =
          static_cast<size_t>(y) * static_cast<size_t>(f.columns) + static_cast<size_t>(x);
      if (!padding.empty() && padding[pixel] != 0) continue;
      for (int c = 0; c < planes; ++c) values.emplace_back(rows[static_cast<size_t>(c)][x], 1);
    }
  }
}

std::vector<uint8_t> PixelSource::PaddingMask() const {
  const PixelFormat& f = plane_.format;
  std::vector<uint8_t> mask;
  if (!f.Monochrome() || (!plane_.interpretation.padding && !f.is_float)) return mask;
  mask.resize(static_cast<size_t>(f.rows) * static_cast<size_t>(f.columns));
  bool any = false;
  if (Small()) {
    for (int y = 0; y < f.rows; ++y)
      any |= PaddingRow(bits_, RowBytes(y), f.columns,
                        mask.data() + static_cast<ptrdiff_t>(y) * f.columns);
  } else {
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = IsPadding(Stored(i)) ? 1 : 0;
    any = std::find(mask.begin(), mask.end(), 1) != mask.end();
  }
  if (!any) mask.clear();
  return mask;
}

}  // namespace radserve
