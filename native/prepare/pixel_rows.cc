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
[[gnu::always_inline]] inline void MapAffine(const Containers c, const Raw* __restrict raw,
                                             int count, const ValueMap::Affine m, float background,
                                             float* __restrict out) {
  const auto a = static_cast<Number>(m.a);
  const auto b = static_cast<Number>(m.b);
  for (int i = 0; i < count; ++i) {
    const int32_t stored = Stored(raw[i], c);
    float value = static_cast<float>(static_cast<Number>(stored) * a + b);
    value = value < m.low ? m.low : value;
    value = value > m.high ? m.high : value;
    if (kPadding)
      value = (stored >= c.padding_from) & (stored <= c.padding_to) ? background : value;
    out[i] = value;
  }
}

template <typename Raw>
[[gnu::always_inline]] inline void MapRowOf(const Containers& c, const Raw* raw, int count,
                                            const ValueMap::Affine& map, bool in_float,
                                            float background, float* out) {
  const bool padded = c.padding_from <= c.padding_to;
  if (in_float && padded) return MapAffine<true, float>(c, raw, count, map, background, out);
  if (in_float) return MapAffine<false, float>(c, raw, count, map, background, out);
  if (padded) return MapAffine<true, double>(c, raw, count, map, background, out);
  MapAffine<false, double>(c, raw, count, map, background, out);
}

RADSERVE_HOT_LOOP void MapRow(const Containers& c, const void* raw, int count,
                              const ValueMap::Affine& map, bool in_float, float background,
                              float* out) {
  if (c.wide)
    return MapRowOf(c, static_cast<const uint16_t*>(raw), count, map, in_float, background, out);
  MapRowOf(c, static_cast<const uint8_t*>(raw), count, map, in_float, background, out);
}

template <typename Raw>
[[gnu::always_inline]] inline bool MarkPaddingOf(const Containers c, const Raw* __restrict raw,
                                                 int count, uint8_t* __restrict out) {
  uint8_t any = 0;
  for (int i = 0; i < count; ++i) {
    const int32_t stored = Stored(raw[i], c);
    out[i] = (stored >= c.padding_from) & (stored <= c.padding_to);
    any |= out[i];
  }
  return any != 0;
}

RADSERVE_HOT_LOOP bool MarkPadding(const Containers& c, const void* raw, int count, uint8_t* out) {
  if (c.wide) return MarkPaddingOf(c, static_cast<const uint16_t*>(raw), count, out);
  return MarkPaddingOf(c, static_cast<const uint8_t*>(raw), count, out);
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
  for (int i = 0; i < count; ++i)
    out[i] = table[(static_cast<uint32_t>(raw[i]) >> c.shift) & c.mask];
}

/// Where odd addresses are given, a row of words is copied once so that the loops read aligned
/// ones.
class Row {
 public:
  Row(const Containers& containers, const uint8_t* bytes, int count) : raw_(bytes) {
    if (!containers.wide || reinterpret_cast<uintptr_t>(bytes) % alignof(uint16_t) == 0) return;
    copy_.resize(static_cast<size_t>(count));
    std::memcpy(copy_.data(), bytes, copy_.size() * sizeof(uint16_t));
    raw_ = copy_.data();
  }
  const void* raw() const { return raw_; }

 private:
  std::vector<uint16_t> copy_;
  const void* raw_;
};

}  // namespace

void AffineRow(const Containers& containers, const uint8_t* bytes, int count,
               const ValueMap::Affine& map, bool in_float, float background, float* out) {
  MapRow(containers, Row(containers, bytes, count).raw(), count, map, in_float, background, out);
}

void TableRow(const Containers& containers, const uint8_t* bytes, int count, const float* table,
              float* out) {
  if (!containers.wide) return LookUp(containers, bytes, count, table, out);
  const Row row(containers, bytes, count);
  LookUp(containers, static_cast<const uint16_t*>(row.raw()), count, table, out);
}

bool PaddingRow(const Containers& containers, const uint8_t* bytes, int count, uint8_t* out) {
  return MarkPadding(containers, Row(containers, bytes, count).raw(), count, out);
}

std::vector<uint64_t> CountContainers(const Containers& containers, const uint8_t* bytes,
                                      size_t pixels) {
  // More tables would not fit the first cache
  if (!containers.wide) return Count<uint8_t, 4>(containers, bytes, pixels);
  return (containers.mask < 4096 ? Count<uint16_t, 4> : Count<uint16_t, 2>)(containers, bytes,
                                                                            pixels);
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
    second[x] =
        static_cast<uint8_t>(static_cast<int>(std::min(std::max(rgb[1], 0.0), 255.0) + 0.5));
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
