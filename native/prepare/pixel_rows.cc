#include "prepare/pixel_rows.h"

#include <algorithm>
#include <cstring>

#include "base/simd.h"

namespace radserve {
namespace {

template <typename Raw>
[[gnu::always_inline]] inline int32_t Stored(Raw raw, const Containers& c) {
  const uint32_t masked = (static_cast<uint32_t>(raw) >> c.shift) & c.mask;
  return static_cast<int32_t>(masked ^ c.sign) - static_cast<int32_t>(c.sign);
}

template <bool kPadding, typename Number, typename Raw>
[[gnu::always_inline]] inline void MapAffine(const Containers c, const Raw* __restrict raw, int count,
                                             const ValueMap::Affine m, float background,
                                             float* __restrict out) {
  const auto a = static_cast<Number>(m.a);
  const auto b = static_cast<Number>(m.b);
  for (int i = 0; i < count; ++i) {
    const int32_t stored = Stored(raw[i], c);
    float value = static_cast<float>(static_cast<Number>(stored) * a + b);
    value = value < m.low ? m.low : value;
    value = value > m.high ? m.high : value;
    if (kPadding) value = (stored >= c.padding_from) & (stored <= c.padding_to) ? background : value;
    out[i] = value;
  }
}

RADSERVE_HOT_LOOP void AffineRow8(const Containers& c, const uint8_t* raw, int count,
                                  const ValueMap::Affine& map, float background, float* out) {
  MapAffine<true, double>(c, raw, count, map, background, out);
}

RADSERVE_HOT_LOOP void AffineRow16(const Containers& c, const uint16_t* raw, int count,
                                   const ValueMap::Affine& map, float background, float* out) {
  MapAffine<false, double>(c, raw, count, map, background, out);
}

RADSERVE_HOT_LOOP void AffinePaddedRow16(const Containers& c, const uint16_t* raw, int count,
                                         const ValueMap::Affine& map, float background, float* out) {
  MapAffine<true, double>(c, raw, count, map, background, out);
}

RADSERVE_HOT_LOOP void AffineFloatRow8(const Containers& c, const uint8_t* raw, int count,
                                       const ValueMap::Affine& map, float background, float* out) {
  MapAffine<true, float>(c, raw, count, map, background, out);
}

RADSERVE_HOT_LOOP void AffineFloatRow16(const Containers& c, const uint16_t* raw, int count,
                                        const ValueMap::Affine& map, float background, float* out) {
  MapAffine<false, float>(c, raw, count, map, background, out);
}

RADSERVE_HOT_LOOP void AffineFloatPaddedRow16(const Containers& c, const uint16_t* raw, int count,
                                              const ValueMap::Affine& map, float background, float* out) {
  MapAffine<true, float>(c, raw, count, map, background, out);
}

template <typename Raw>
[[gnu::always_inline]] inline bool MarkPadding(const Containers c, const Raw* __restrict raw, int count,
                                               uint8_t* __restrict out) {
  uint8_t any = 0;
  for (int i = 0; i < count; ++i) {
    const int32_t stored = Stored(raw[i], c);
    out[i] = (stored >= c.padding_from) & (stored <= c.padding_to);
    any |= out[i];
  }
  return any != 0;
}

RADSERVE_HOT_LOOP bool MarkPadding8(const Containers& c, const uint8_t* raw, int count, uint8_t* out) {
  return MarkPadding(c, raw, count, out);
}

RADSERVE_HOT_LOOP bool MarkPadding16(const Containers& c, const uint16_t* raw, int count, uint8_t* out) {
  return MarkPadding(c, raw, count, out);
}

/// Several tables take turns: a run of equal pixels would otherwise wait for its own last count.
template <typename Raw, size_t kTables>
std::vector<uint64_t> Count(const Containers& c, const uint8_t* bytes, size_t pixels) {
  const size_t values = static_cast<size_t>(c.mask) + 1;
  std::vector<uint32_t> tables(values * kTables);
  const auto count = [&](size_t pixel, size_t table) {
    Raw raw;
    std::memcpy(&raw, bytes + pixel * sizeof(Raw), sizeof(Raw));
    ++tables[table * values + ((static_cast<uint32_t>(raw) >> c.shift) & c.mask)];
  };
  size_t i = 0;
  for (; i + kTables <= pixels; i += kTables) {
    for (size_t t = 0; t < kTables; ++t) count(i + t, t);
  }
  for (; i < pixels; ++i) count(i, 0);
  std::vector<uint64_t> counts(values);
  for (size_t t = 0; t < kTables; ++t) {
    for (size_t v = 0; v < values; ++v) counts[v] += tables[t * values + v];
  }
  return counts;
}

template <typename Raw>
void LookUp(const Containers& c, const Raw* raw, int count, const float* table, float* out) {
  for (int i = 0; i < count; ++i) out[i] = table[(static_cast<uint32_t>(raw[i]) >> c.shift) & c.mask];
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

}  // namespace

void AffineRow(const Containers& containers, const uint8_t* bytes, int count, const ValueMap::Affine& map,
               bool in_float, float background, float* out) {
  if (!containers.wide) {
    (in_float ? AffineFloatRow8 : AffineRow8)(containers, bytes, count, map, background, out);
    return;
  }
  const Row16 row(bytes, count);
  if (containers.padding_from <= containers.padding_to) {
    (in_float ? AffineFloatPaddedRow16 : AffinePaddedRow16)(containers, row.words(), count, map, background,
                                                            out);
  } else {
    (in_float ? AffineFloatRow16 : AffineRow16)(containers, row.words(), count, map, background, out);
  }
}

void TableRow(const Containers& containers, const uint8_t* bytes, int count, const float* table, float* out) {
  if (!containers.wide) return LookUp(containers, bytes, count, table, out);
  LookUp(containers, Row16(bytes, count).words(), count, table, out);
}

bool PaddingRow(const Containers& containers, const uint8_t* bytes, int count, uint8_t* out) {
  if (!containers.wide) return MarkPadding8(containers, bytes, count, out);
  return MarkPadding16(containers, Row16(bytes, count).words(), count, out);
}

std::vector<uint64_t> CountContainers(const Containers& containers, const uint8_t* bytes, size_t pixels) {
  // More tables would not fit the first cache
  if (!containers.wide) return Count<uint8_t, 4>(containers, bytes, pixels);
  return (containers.mask < 4096 ? Count<uint16_t, 4> : Count<uint16_t, 2>)(containers, bytes, pixels);
}

RADSERVE_HOT_LOOP void YbrToRgbRow(bool partial, int count, uint8_t* __restrict first,
                                   uint8_t* __restrict second, uint8_t* __restrict third) {
  const double chroma = partial ? 255.0 / 224 : 1;
  const double black = partial ? 16 : 0;
  const double gain = partial ? 255 : 1;
  const double span = partial ? 219 : 1;
  for (int x = 0; x < count; ++x) {
    const double y = (first[x] - black) * gain / span;
    const double cb = (second[x] - 128.0) * chroma;
    const double cr = (third[x] - 128.0) * chroma;
    const double rgb[3] = {y + 1.402 * cr, y - (0.114 * 1.772 * cb + 0.299 * 1.402 * cr) / 0.587,
                           y + 1.772 * cb};
    // Clamped first, a half is rounded up by cutting off
    first[x] = static_cast<uint8_t>(static_cast<int>(std::min(std::max(rgb[0], 0.0), 255.0) + 0.5));
    second[x] = static_cast<uint8_t>(static_cast<int>(std::min(std::max(rgb[1], 0.0), 255.0) + 0.5));
    third[x] = static_cast<uint8_t>(static_cast<int>(std::min(std::max(rgb[2], 0.0), 255.0) + 0.5));
  }
}

RADSERVE_HOT_LOOP void LuminanceRow(const uint8_t* __restrict red, const uint8_t* __restrict green,
                                    const uint8_t* __restrict blue, int count, double divisor,
                                    const Range& clip, float* __restrict out) {
  for (int x = 0; x < count; ++x) {
    const double value = (0.299 * red[x] + 0.587 * green[x] + 0.114 * blue[x]) / divisor;
    out[x] = static_cast<float>(std::min(std::max(value, clip.low), clip.high));
  }
}

}  // namespace radserve
