#include "pixels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "error.h"
#include "simd.h"

namespace radserve {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Containers of one row to values: value = clamp(stored * a + b), or background in the padding range.
struct AffineLoop {
  uint32_t shift, mask, sign;
  int32_t padding_from, padding_to;
  float a, b, low, high, background;
};

template <typename Raw>
[[gnu::always_inline]] inline void AffineRow(const Raw* __restrict raw, int count, const AffineLoop p,
                                             float* __restrict out) {
  for (int i = 0; i < count; ++i) {
    const uint32_t masked = (static_cast<uint32_t>(raw[i]) >> p.shift) & p.mask;
    const int32_t stored = static_cast<int32_t>(masked ^ p.sign) - static_cast<int32_t>(p.sign);
    float value = static_cast<float>(stored) * p.a + p.b;
    value = value < p.low ? p.low : value;
    value = value > p.high ? p.high : value;
    out[i] = (stored >= p.padding_from) & (stored <= p.padding_to) ? p.background : value;
  }
}

RADSERVE_HOT_LOOP void AffineRow8(const uint8_t* raw, int count, const AffineLoop& p, float* out) {
  AffineRow(raw, count, p, out);
}

RADSERVE_HOT_LOOP void AffineRow16(const uint16_t* raw, int count, const AffineLoop& p, float* out) {
  AffineRow(raw, count, p, out);
}

template <typename Raw>
void TableRow(const Raw* raw, int count, uint32_t shift, uint32_t mask, const float* table, float* out) {
  for (int i = 0; i < count; ++i) out[i] = table[(static_cast<uint32_t>(raw[i]) >> shift) & mask];
}

/// Where odd addresses are given, the row is copied once so that the loops read aligned words.
class Row16 {
 public:
  Row16(const uint8_t* bytes, int count) {
    if (reinterpret_cast<uintptr_t>(bytes) % alignof(uint16_t) == 0) {
      words_ = reinterpret_cast<const uint16_t*>(bytes);
      return;
    }
    copy_.resize(static_cast<size_t>(count));
    std::memcpy(copy_.data(), bytes, copy_.size() * sizeof(uint16_t));
    words_ = copy_.data();
  }
  const uint16_t* words() const { return words_; }

 private:
  std::vector<uint16_t> copy_;
  const uint16_t* words_;
};

void CheckFormat(const PixelFormat& f) {
  const bool allocated =
      f.bits_allocated == 8 || f.bits_allocated == 16 || f.bits_allocated == 32 || f.bits_allocated == 64;
  const bool bits = f.is_float ? f.bits_allocated >= 32
                               : f.bits_stored >= 1 && f.bits_stored <= f.bits_allocated &&
                                     f.high_bit < f.bits_allocated && f.high_bit + 1 >= f.bits_stored;
  const int samples = f.Monochrome() || f.photometric == Photometric::kPalette ? 1 : 3;
  const bool packed = !f.packed422 || (f.photometric == Photometric::kYbrFull422 && f.bits_allocated == 8 &&
                                       f.columns % 2 == 0);
  const bool colour = f.Monochrome() || (!f.is_float && !f.is_signed && f.bits_allocated <= 16);
  if (f.rows < 1 || f.columns < 1 || !allocated || !bits || f.samples != samples || !packed || !colour) {
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

/// CCIR 601 (PS3.3 C.7.6.3.1.2), full or studio range, scaled to the sample's bits, rounded to stored values.
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
  const uint16_t entry = entries[static_cast<size_t>(std::clamp(index - palette.first_mapped, 0.0, last))];
  return palette.bits > 8 ? entry >> 8 : entry;
}

}  // namespace

PixelSource::PixelSource(const Plane& plane, const InputSpec& spec) : plane_(plane) {
  CheckFormat(plane.format);
  CheckLength(plane);
  channels_ = spec.Channels();
  const PixelFormat& f = plane.format;
  bits_.shift = f.is_float ? 0 : static_cast<uint32_t>(f.high_bit + 1 - f.bits_stored);
  bits_.mask = f.bits_stored >= 32 ? ~0u : (1u << f.bits_stored) - 1;
  bits_.sign = f.is_signed && f.bits_stored <= 32 ? 1u << (f.bits_stored - 1) : 0;
  if (f.Monochrome()) {
    PrepareGray(spec);
  } else {
    PrepareColour(spec);
  }
}

void PixelSource::PrepareGray(const InputSpec& spec) {
  bits_.padding_from = std::numeric_limits<int32_t>::max();
  bits_.padding_to = std::numeric_limits<int32_t>::min();
  if (const auto& padding = plane_.interpretation.padding) {
    const double least = std::numeric_limits<int32_t>::min();
    const double most = std::numeric_limits<int32_t>::max();
    const auto [from, to] = std::minmax(padding->from, padding->to);
    bits_.padding_from = static_cast<int32_t>(std::clamp(std::ceil(from), least, most));
    bits_.padding_to = static_cast<int32_t>(std::clamp(std::floor(to), least, most));
  }
  std::optional<Range> observed;
  if (ValueMap::NeedsObserved(plane_, spec)) {
    const bool stored = spec.values.kind == ValuesSpec::Kind::kStored;
    observed = ObservedRange(stored ? nullptr : &plane_.interpretation.modality);
  }
  map_.emplace(plane_, spec, observed);
  background_ = map_->background();
  affine_ = map_->AsAffine();
  if (!Small() || affine_) return;
  table_.resize(static_cast<size_t>(bits_.mask) + 1);
  for (size_t i = 0; i < table_.size(); ++i) {
    const double stored = FromMasked(static_cast<uint32_t>(i));
    table_[i] = IsPadding(stored) ? background_ : static_cast<float>((*map_)(stored));
  }
}

void PixelSource::PrepareColour(const InputSpec& spec) {
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
      throw EngineError(
          "corrupt_image",
          "Expected a Palette Color Lookup Table for PALETTE COLOR (PS3.3 C.7.6.3.1.5); found none.");
    }
  }
  const double full = palette ? 255 : StoredRange(plane_.format).high;
  colour_divisor_ = spec.values.kind == ValuesSpec::Kind::kVoi ? full : 1;
  colour_clip_ = spec.clip ? Range{spec.clip->first, spec.clip->second} : Range{-kInfinity, kInfinity};
  background_ = static_cast<float>(std::clamp(spec.background, colour_clip_.low, colour_clip_.high));
  for (int v = 0; v < 256; ++v) colour_table_.push_back(ColourValue(v));
}

/// Containers of one or two bytes have fast paths.
bool PixelSource::Small() const { return !plane_.format.is_float && plane_.format.bits_allocated <= 16; }

uint32_t PixelSource::Masked(size_t sample) const {
  if (plane_.format.bits_allocated == 8) return (plane_.data[sample] >> bits_.shift) & bits_.mask;
  uint16_t word;
  std::memcpy(&word, plane_.data.data() + sample * sizeof(word), sizeof(word));
  return (static_cast<uint32_t>(word) >> bits_.shift) & bits_.mask;
}

double PixelSource::FromMasked(uint32_t masked) const {
  return static_cast<double>(static_cast<int64_t>(masked ^ bits_.sign) - static_cast<int64_t>(bits_.sign));
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
  std::vector<uint64_t> counts(static_cast<size_t>(bits_.mask) + 1);
  const size_t pixels = static_cast<size_t>(plane_.format.rows) * static_cast<size_t>(plane_.format.columns);
  for (size_t i = 0; i < pixels; ++i) ++counts[Masked(i)];
  return counts;
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
  if (affine_) return ReadContainers(row, *affine_, background_, out);
  const bool bytes = plane_.format.bits_allocated == 8;
  const uint8_t* data = plane_.data.data() + first * (bytes ? 1 : 2);
  if (bytes) return TableRow(data, columns, bits_.shift, bits_.mask, table_.data(), out);
  TableRow(Row16(data, columns).words(), columns, bits_.shift, bits_.mask, table_.data(), out);
}

/// One row of containers of one or two bytes: clamp(stored * a + b), background in the padding range.
void PixelSource::ReadContainers(int row, const ValueMap::Affine& map, float background, float* out) const {
  const int columns = plane_.format.columns;
  const size_t first = static_cast<size_t>(row) * static_cast<size_t>(columns);
  const AffineLoop loop = {bits_.shift, bits_.mask, bits_.sign, bits_.padding_from, bits_.padding_to,
                           map.a,       map.b,      map.low,    map.high,           background};
  if (plane_.format.bits_allocated == 8) return AffineRow8(plane_.data.data() + first, columns, loop, out);
  AffineRow16(Row16(plane_.data.data() + first * 2, columns).words(), columns, loop, out);
}

void PixelSource::Rgb(size_t row_sample, int column, double rgb[3]) const {
  const PixelFormat& f = plane_.format;
  const size_t x = static_cast<size_t>(column);
  if (f.photometric == Photometric::kPalette) {
    const Palette& p = *plane_.interpretation.palette;
    const double index = Stored(row_sample + x);
    rgb[0] = PaletteEntry(p.red, p, index);
    rgb[1] = PaletteEntry(p.green, p, index);
    rgb[2] = PaletteEntry(p.blue, p, index);
    return;
  }
  double sample[3];
  if (f.packed422) {
    // Two pixels share four bytes: Y1 Y2 Cb Cr (PS3.3 C.7.6.3.1.2).
    const size_t pair = row_sample + x / 2 * 4;
    sample[0] = Stored(pair + x % 2);
    sample[1] = Stored(pair + 2);
    sample[2] = Stored(pair + 3);
  } else {
    for (size_t c = 0; c < 3; ++c) sample[c] = Stored(row_sample + x * 3 + c);
  }
  if (f.photometric == Photometric::kRgb) {
    std::copy_n(sample, 3, rgb);
  } else {
    YbrToRgb(f.photometric == Photometric::kYbrPartial420, StoredRange(f).high, sample, rgb);
  }
}

float PixelSource::ColourValue(double value) const {
  return static_cast<float>(std::clamp(value / colour_divisor_, colour_clip_.low, colour_clip_.high));
}

/// RGB of eight bits, the usual colour: the same values as ColourRow without its detours.
void PixelSource::RgbRow8(int row, float* const* channels) const {
  const int columns = plane_.format.columns;
  const uint8_t* rgb = plane_.data.data() + static_cast<ptrdiff_t>(row) * columns * 3;
  for (int c = 0; c < 3; ++c) {
    float* out = channels[order_ == ChannelOrder::kBgr ? 2 - c : c];
    for (int x = 0; x < columns; ++x) out[x] = colour_table_[rgb[x * 3 + c]];
  }
}

void PixelSource::ColourRow(int row, float* const* channels) const {
  const PixelFormat& f = plane_.format;
  const bool eight = f.photometric == Photometric::kRgb && f.bits_allocated == 8 && f.bits_stored == 8;
  if (eight && order_ != ChannelOrder::kGrayscale) return RgbRow8(row, channels);
  const size_t samples = f.packed422 ? 2 : static_cast<size_t>(f.samples);
  const size_t row_sample = static_cast<size_t>(row) * static_cast<size_t>(f.columns) * samples;
  const int red = order_ == ChannelOrder::kBgr ? 2 : 0;
  for (int x = 0; x < f.columns; ++x) {
    double rgb[3];
    Rgb(row_sample, x, rgb);
    if (order_ == ChannelOrder::kGrayscale) {
      channels[0][x] = ColourValue(0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]);
    } else {
      channels[red][x] = ColourValue(rgb[0]);
      channels[1][x] = ColourValue(rgb[1]);
      channels[2 - red][x] = ColourValue(rgb[2]);
    }
  }
}

Statistics PixelSource::Measure(double low, double high) const {
  std::vector<std::pair<double, uint64_t>> values;
  const PixelFormat& f = plane_.format;
  if (f.Monochrome() && Small()) {
    const std::vector<uint64_t> counts = Histogram();
    for (size_t i = 0; i < counts.size(); ++i) {
      const double stored = FromMasked(static_cast<uint32_t>(i));
      if (counts[i] != 0 && !IsPadding(stored)) values.emplace_back((*map_)(stored), counts[i]);
    }
    return Summary(values, low, high);
  }
  const int planes = f.Monochrome() ? 1 : channels_;
  const std::vector<uint8_t> padding = PaddingMask();
  std::vector<float> block(static_cast<size_t>(channels_) * static_cast<size_t>(f.columns));
  std::vector<float*> rows;
  for (int c = 0; c < channels_; ++c) rows.push_back(block.data() + static_cast<ptrdiff_t>(c) * f.columns);
  for (int y = 0; y < f.rows; ++y) {
    Row(y, rows.data());
    for (int x = 0; x < f.columns; ++x) {
      const size_t pixel = static_cast<size_t>(y) * static_cast<size_t>(f.columns) + static_cast<size_t>(x);
      if (!padding.empty() && padding[pixel] != 0) continue;
      for (int c = 0; c < planes; ++c) values.emplace_back(rows[static_cast<size_t>(c)][x], 1);
    }
  }
  return Summary(values, low, high);
}

std::vector<uint8_t> PixelSource::PaddingMask() const {
  const PixelFormat& f = plane_.format;
  std::vector<uint8_t> mask;
  if (!f.Monochrome() || (!plane_.interpretation.padding && !f.is_float)) return mask;
  mask.resize(static_cast<size_t>(f.rows) * static_cast<size_t>(f.columns));
  if (Small()) {
    // With a value of 0 and a background of 1 the reading loop gives the mask itself.
    const ValueMap::Affine nothing = {0, 0, 0, 0};
    std::vector<float> row(static_cast<size_t>(f.columns));
    for (int y = 0; y < f.rows; ++y) {
      ReadContainers(y, nothing, 1, row.data());
      std::copy(row.begin(), row.end(), mask.begin() + static_cast<ptrdiff_t>(y) * f.columns);
    }
  } else {
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = IsPadding(Stored(i)) ? 1 : 0;
  }
  const bool any = std::find(mask.begin(), mask.end(), 1) != mask.end();
  if (!any) mask.clear();
  return mask;
}

}  // namespace radserve
