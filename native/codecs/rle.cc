#include "codecs/rle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/simd.h"
#include "base/word.h"

namespace radserve {
namespace {

constexpr size_t kHeader = 64;
/// Most bytes that a run or a literal stands for.
constexpr size_t kLongest = 128;
/// The control byte that stands for nothing (G.3.2).
constexpr uint8_t kNothing = 128;
/// Bytes are copied by so many, whatever lies behind the last one that counts: most literals and
/// runs are short.
constexpr size_t kStep = 32;
constexpr size_t kWord = sizeof(uint64_t);
constexpr uint64_t kOnes = 0x0101010101010101;
constexpr uint64_t kTops = 0x8080808080808080;

void CopySteps(const uint8_t* from, size_t count, uint8_t* to) {
  for (size_t i = 0; i < count; i += kStep) std::memcpy(to + i, from + i, kStep);
}

/// Numbers are little endian, as on every processor that this runs on.
void WriteNumber(uint8_t* at, size_t number) {
  const auto value = static_cast<uint32_t>(number);
  std::memcpy(at, &value, sizeof value);
}

uint32_t ReadNumber(const uint8_t* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// ---- Packing.

/// One byte of each of three, which is what pictures have.
RADSERVE_HOT_LOOP void GatherThird(const uint8_t* __restrict from, size_t count,
                                   uint8_t* __restrict to) {
  for (size_t x = 0; x < count; ++x) to[x] = from[3 * x];
}

void GatherPlane(const uint8_t* from, size_t planes, size_t count, uint8_t* to) {
  if (planes == 3) {
    GatherThird(from, count, to);
    return;
  }
  for (size_t x = 0; x < count; ++x) to[x] = from[planes * x];
}

/// Bytes behind a row's end that are read: by the searches a word and two bytes, by the last step
/// of a copy.
constexpr size_t kBehind = std::max(kWord + 2, kStep);

/// Ends a row for the searches below: no run goes on behind `end`.
void Seal(uint8_t* end) {
  end[0] = static_cast<uint8_t>(~end[-1]);
  end[1] = end[-1];
}

/// Where the run ends that begins at `at`, in a sealed row.
const uint8_t* RunEnd(const uint8_t* at) {
  const uint64_t run = kOnes * *at;
  for (++at;; at += kWord) {
    if (const uint64_t other = WordAt(at) ^ run) return at + std::countr_zero(other) / 8;
  }
}

/// Where three equal bytes begin in a sealed row, or its end.
const uint8_t* NextThree(const uint8_t* at, const uint8_t* stop) {
  for (; at < stop; at += kWord) {
    const uint64_t word = WordAt(at);
    const uint64_t other = (word ^ WordAt(at + 1)) | (word ^ WordAt(at + 2));
    // The lowest byte that this finds is zero; above it, it may find others
    if (const uint64_t zeros = (other - kOnes) & ~other & kTops) {
      return std::min(at + std::countr_zero(zeros) / 8, stop);
    }
  }
  return stop;
}

uint8_t* PackRun(uint8_t value, size_t length, uint8_t* out) {
  for (; length > 0; length -= std::min(length, kLongest)) {
    // For one byte alone this is 0: a literal.
    *out++ = static_cast<uint8_t>(257 - std::min(length, kLongest));
    *out++ = value;
  }
  return out;
}

uint8_t* PackLiterals(const uint8_t* at, const uint8_t* end, uint8_t* out) {
  while (at < end) {
    const size_t length = std::min(static_cast<size_t>(end - at), kLongest);
    *out++ = static_cast<uint8_t>(length - 1);
    CopySteps(at, length, out);
    out += length;
    at += length;
  }
  return out;
}

/// A sealed row.
uint8_t* PackRow(const uint8_t* at, const uint8_t* stop, uint8_t* out) {
  while (at < stop) {
    const uint8_t* end = RunEnd(at);
    if (end - at > 1) {
      out = PackRun(*at, static_cast<size_t>(end - at), out);
    } else {
      end = NextThree(end, stop);
      out = PackLiterals(at, end, out);
    }
    at = end;
  }
  return out;
}

// ---- Unpacking.

/// Bytes of each plane that are unpacked before they are laid among the others.
constexpr size_t kBlock = 4096;

/// One segment, unpacked block by block.
class Segment {
 public:
  void Open(std::span<const uint8_t> packed) {
    at_ = packed.data();
    end_ = at_ + packed.size();
  }

  const uint8_t* bytes() const { return bytes_.data(); }

  /// Drops `used` bytes and unpacks until there are `count`, of at most kBlock.
  RleFault Next(size_t used, size_t count) {
    filled_ -= used;
    std::memmove(bytes_.data(), bytes_.data() + used, filled_);
    while (filled_ < count) {
      if (const RleFault fault = Take(); fault != RleFault::kNone) return fault;
    }
    return RleFault::kNone;
  }

 private:
  /// Unpacks what one control byte stands for (G.3.2).
  RleFault Take() {
    if (at_ == end_) return RleFault::kShort;
    const size_t control = *at_++;
    if (control == kNothing) return RleFault::kNone;
    const auto left = static_cast<size_t>(end_ - at_);
    uint8_t* const to = bytes_.data() + filled_;
    if (control < kNothing) {
      const size_t length = control + 1;
      if (left < length) return RleFault::kCutRun;
      if (left < length + kStep) {
        std::memcpy(to, at_, length);
      } else {
        CopySteps(at_, length, to);
      }
      at_ += length;
      filled_ += length;
      return RleFault::kNone;
    }
    if (left == 0) return RleFault::kCutRun;
    const size_t length = 257 - control;
    const uint8_t value = *at_++;
    for (size_t i = 0; i < length; i += kStep) std::memset(to + i, value, kStep);
    filled_ += length;
    return RleFault::kNone;
  }

  const uint8_t* at_ = nullptr;
  const uint8_t* end_ = nullptr;
  size_t filled_ = 0;
  /// The last literal or run of a block goes beyond it.
  std::array<uint8_t, kBlock + kLongest + kStep> bytes_;
};

RADSERVE_HOT_LOOP void Interleave2(const uint8_t* __restrict a, const uint8_t* __restrict b,
                                   size_t count, uint8_t* __restrict out) {
  for (size_t x = 0; x < count; ++x) {
    out[2 * x] = a[x];
    out[2 * x + 1] = b[x];
  }
}

RADSERVE_HOT_LOOP void Interleave3(const uint8_t* __restrict a, const uint8_t* __restrict b,
                                   const uint8_t* __restrict c, size_t count,
                                   uint8_t* __restrict out) {
  for (size_t x = 0; x < count; ++x) {
    out[3 * x] = a[x];
    out[3 * x + 1] = b[x];
    out[3 * x + 2] = c[x];
  }
}

/// `planes` in the order of a pixel's bytes.
void Interleave(std::span<const uint8_t* const> planes, size_t count, uint8_t* out) {
  switch (planes.size()) {
    case 1:
      std::memcpy(out, planes[0], count);
      break;
    case 2:
      Interleave2(planes[0], planes[1], count, out);
      break;
    case 3:
      Interleave3(planes[0], planes[1], planes[2], count, out);
      break;
    default:
      for (size_t i = 0; i < planes.size(); ++i) {
        for (size_t x = 0; x < count; ++x) out[x * planes.size() + i] = planes[i][x];
      }
  }
}

/// Unpacks a frame into so many bytes of pixels, block by block: `take` gets the byte planes, in
/// the order of a pixel's bytes, of `count` pixels from `at` on, and says whether to go on.
template <typename Take>
RleVerdict Unpack(std::span<const uint8_t> frame, size_t samples, size_t sample_bytes, size_t bytes,
                  const Take& take) {
  const size_t planes = samples * sample_bytes;
  if (planes == 0 || planes > kMostRleSegments || frame.size() < kHeader || bytes % planes != 0) {
    throw EngineError("internal", "Expected an RLE header and room for whole pixels.");
  }
  std::vector<Segment> segments(planes);
  std::array<const uint8_t*, kMostRleSegments> by_byte{};
  RleVerdict verdict = {RleFault::kNone, planes};
  for (size_t i = 0; i < planes && verdict.fault == RleFault::kNone; ++i) {
    const size_t begin = ReadNumber(frame.data() + 4 * (i + 1));
    const size_t end = i + 1 < planes ? ReadNumber(frame.data() + 4 * (i + 2)) : frame.size();
    if (begin < kHeader || begin > frame.size() || end < begin) {
      verdict = {RleFault::kOutside, i};
    } else {
      segments[i].Open(frame.subspan(begin, std::min(end, frame.size()) - begin));
      by_byte[i / sample_bytes * sample_bytes + sample_bytes - 1 - i % sample_bytes] =
          segments[i].bytes();
    }
  }
  const size_t pixels = bytes / planes;
  for (size_t at = 0, used = 0, count = 0; at < pixels; at += count, used = count) {
    count = std::min(kBlock, pixels - at);
    // After a fault the segments before it go on: the first one that is not sound is told
    for (size_t i = 0; i < verdict.segment; ++i) {
      if (const RleFault fault = segments[i].Next(used, count); fault != RleFault::kNone)
        verdict = {fault, i};
    }
    if (verdict.fault == RleFault::kNone && !take({by_byte.data(), planes}, at, count)) break;
  }
  return verdict;
}

}  // namespace

size_t MostRleBytes(const RleShape& shape) {
  // A control byte for every 128 of a row, a segment's last byte to make it even, and the last
  // step's surplus
  const size_t row = shape.columns + (shape.columns + kLongest - 1) / kLongest;
  return kHeader + shape.planes * (shape.rows * row + 1) + kStep;
}

size_t PackRle(std::span<const uint8_t> pixels, const RleShape& shape, std::span<uint8_t> out) {
  const auto [planes, rows, columns] = shape;
  if (planes > kMostRleSegments || pixels.empty() || pixels.size() != shape.bytes() ||
      out.size() < MostRleBytes(shape)) {
    throw EngineError("internal", "Expected a frame's pixels and room for them in RLE.");
  }
  std::memset(out.data(), 0, kHeader);
  WriteNumber(out.data(), planes);
  std::vector<uint8_t> row(columns + kBehind);
  uint8_t* const stop = row.data() + columns;
  uint8_t* at = out.data() + kHeader;
  for (size_t plane = 0; plane < planes; ++plane) {
    WriteNumber(out.data() + 4 * (plane + 1), static_cast<size_t>(at - out.data()));
    for (size_t y = 0; y < rows; ++y) {
      GatherPlane(pixels.data() + y * columns * planes + plane, planes, columns, row.data());
      Seal(stop);
      at = PackRow(row.data(), stop, at);
    }
    // Segments are of even length (G.3.1)
    if ((at - out.data()) % 2 == 1) *at++ = 0;
  }
  return static_cast<size_t>(at - out.data());
}

RleVerdict UnpackRle(std::span<const uint8_t> frame, size_t samples, size_t sample_bytes,
                     std::span<uint8_t> out) {
  return Unpack(frame, samples, sample_bytes, out.size(),
                [&](std::span<const uint8_t* const> planes, size_t at, size_t count) {
                  Interleave(planes, count, out.data() + at * planes.size());
                  return true;
                });
}

bool RleHolds(std::span<const uint8_t> frame, std::span<const uint8_t> pixels, size_t planes) {
  bool same = true;
  std::array<uint8_t, kBlock * kMostRleSegments> block;
  const RleVerdict verdict =
      Unpack(frame, planes, 1, pixels.size(),
             [&](std::span<const uint8_t* const> by_byte, size_t at, size_t count) {
               Interleave(by_byte, count, block.data());
               same = std::memcmp(block.data(), pixels.data() + at * planes, count * planes) == 0;
               return same;
             });
  return same && verdict.fault == RleFault::kNone;
}

}  // namespace radserve
