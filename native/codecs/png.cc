#include "codecs/png.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/simd.h"
#include "base/word.h"

namespace radserve {
namespace {

/// Bytes of a pixel.
constexpr size_t kPixel = 3;
constexpr size_t kMostSide = 1 << 20;

// ---- Checksums.

constexpr std::array<std::array<uint32_t, 256>, 8> kCrcTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc % 2 == 1 ? 0xEDB88320 : 0);
    tables[0][i] = crc;
  }
  for (size_t t = 1; t < tables.size(); ++t) {
    for (size_t i = 0; i < 256; ++i) {
      const uint32_t before = tables[t - 1][i];
      tables[t][i] = (before >> 8) ^ tables[0][before & 255];
    }
  }
  return tables;
}();

/// CRC of a chunk's type and data (ISO/IEC 15948, annex D), eight bytes at once.
uint32_t Crc(std::span<const uint8_t> bytes) {
  uint32_t crc = ~0U;
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    const uint64_t word = WordAt(bytes.data() + at) ^ crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) crc ^= kCrcTables[7 - i][word >> (8 * i) & 255];
  }
  for (; at < bytes.size(); ++at) crc = (crc >> 8) ^ kCrcTables[0][(crc ^ bytes[at]) & 255];
  return ~crc;
}

/// The sum of some bytes, and that of each times the number of bytes from it to the end.
struct Sums {
  uint64_t plain = 0;
  uint64_t weighted = 0;
};

constexpr size_t kLanes = 32;
/// After so many steps the sums still fit 32 bits.
constexpr size_t kMostSteps = 1 << 11;

/// Adds up bytes in lanes: in `sums` the bytes of each lane, in `before` what its sum was before
/// each step. At most kMostSteps.
RADSERVE_HOT_LOOP void AddLanes(const uint8_t* __restrict bytes, size_t steps,
                                uint32_t* __restrict sums, uint32_t* __restrict before) {
  for (size_t step = 0; step < steps; ++step, bytes += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      before[lane] += sums[lane];
      sums[lane] += bytes[lane];
    }
  }
}

Sums SumsOf(std::span<const uint8_t> bytes) {
  Sums all;
  while (!bytes.empty()) {
    const size_t steps = std::min(bytes.size() / kLanes, kMostSteps);
    const size_t count = steps == 0 ? bytes.size() : steps * kLanes;
    Sums part;
    if (steps == 0) {
      for (size_t i = 0; i < count; ++i) {
        part.plain += bytes[i];
        part.weighted += part.plain;
      }
    } else {
      std::array<uint32_t, kLanes> sums{}, before{};
      AddLanes(bytes.data(), steps, sums.data(), before.data());
      for (size_t lane = 0; lane < kLanes; ++lane) {
        part.plain += sums[lane];
        part.weighted += kLanes * uint64_t{before[lane]} + (kLanes - lane) * uint64_t{sums[lane]};
      }
    }
    all.weighted += count * all.plain + part.weighted;
    all.plain += part.plain;
    bytes = bytes.subspan(count);
  }
  return all;
}

/// Adler-32 (RFC 1950, section 8.2) of rows with a filter byte of 0 before each.
class Adler {
 public:
  void AddRow(const Sums& row, size_t bytes) {
    // The filter byte changes the second sum alone
    b_ = (b_ + a_) % kModulus;
    b_ = (b_ + bytes * a_ + row.weighted) % kModulus;
    a_ = (a_ + row.plain) % kModulus;
  }
  uint32_t value() const { return static_cast<uint32_t>(b_ << 16 | a_); }

 private:
  static constexpr uint64_t kModulus = 65521;
  uint64_t a_ = 1, b_ = 0;
};

// ---- The alphabets of deflate (RFC 1951, section 3.2.5).

constexpr size_t kLiterals = 286, kDistances = 30, kEndOfBlock = 256;
constexpr size_t kShortest = 3, kLongest = 258, kWindow = 32768;

struct Slot {
  uint16_t base;
  uint8_t extra;
};

constexpr std::array<Slot, 29> kLengthSlots = [] {
  std::array<Slot, 29> slots{};
  size_t base = kShortest;
  for (size_t i = 0; i < 28; ++i) {
    const size_t extra = i < 8 ? 0 : i / 4 - 1;
    slots[i] = {static_cast<uint16_t>(base), static_cast<uint8_t>(extra)};
    base += size_t{1} << extra;
  }
  slots[28] = {kLongest, 0};
  return slots;
}();

constexpr std::array<Slot, kDistances> kDistanceSlots = [] {
  std::array<Slot, kDistances> slots{};
  size_t base = 1;
  for (size_t i = 0; i < kDistances; ++i) {
    const size_t extra = i < 2 ? 0 : i / 2 - 1;
    slots[i] = {static_cast<uint16_t>(base), static_cast<uint8_t>(extra)};
    base += size_t{1} << extra;
  }
  return slots;
}();

/// The slot of each length.
constexpr std::array<uint8_t, kLongest + 1> kSlotOfLength = [] {
  std::array<uint8_t, kLongest + 1> slots{};
  for (size_t length = kShortest, slot = 0; length <= kLongest; ++length) {
    while (slot + 1 < kLengthSlots.size() && kLengthSlots[slot + 1].base <= length) ++slot;
    slots[length] = static_cast<uint8_t>(slot);
  }
  return slots;
}();

size_t SlotOfDistance(size_t distance) {
  const size_t from_zero = distance - 1;
  if (from_zero < 2) return from_zero;
  const auto bits = static_cast<size_t>(std::bit_width(from_zero)) - 1;
  return 2 * bits + (from_zero >> (bits - 1) & 1);
}

// ---- Codes.

class BitWriter {
 public:
  explicit BitWriter(std::vector<uint8_t>& out) : out_(out) {}

  /// Sees that so many bytes have room.
  void Room(size_t bytes) {
    if (out_.size() < at_ + bytes + sizeof bits_) out_.resize(2 * (at_ + bytes + sizeof bits_));
  }
  /// Of the room that there is; at most 56 bits.
  void Put(uint64_t bits, size_t count) {
    bits_ |= bits << filled_;
    filled_ += count;
    std::memcpy(out_.data() + at_, &bits_, sizeof bits_);
    at_ += filled_ / 8;
    bits_ >>= filled_ & ~size_t{7};
    filled_ %= 8;
  }
  void Byte(uint8_t byte) {
    Room(1);
    out_[at_++] = byte;
  }
  void Number(uint32_t number) {
    for (int shift = 24; shift >= 0; shift -= 8) Byte(static_cast<uint8_t>(number >> shift));
  }
  void Text(std::string_view text) {
    for (const char letter : text) Byte(static_cast<uint8_t>(letter));
  }
  /// Fills the last byte with zeros.
  void Align() {
    Room(1);
    if (filled_ > 0) Put(0, 8 - filled_);
  }
  size_t at() const { return at_; }
  std::span<uint8_t> From(size_t begin) { return {out_.data() + begin, at_ - begin}; }

 private:
  std::vector<uint8_t>& out_;
  size_t at_ = 0;
  uint64_t bits_ = 0;
  /// Fewer than eight between calls.
  size_t filled_ = 0;
};

/// A prefix code: lengths by frequency, and codes by lengths (RFC 1951, section 3.2.2), with the
/// first bit lowest.
template <size_t kSymbols>
struct PrefixCode {
  std::array<uint16_t, kSymbols> code{};
  std::array<uint8_t, kSymbols> length{};

  /// Of codes of at most `most` bits; a symbol that never comes has none.
  void Make(const std::array<uint32_t, kSymbols>& counts, size_t most);

 private:
  void Lengths(const std::array<uint32_t, kSymbols>& counts, size_t most);
};

template <size_t kSymbols>
void PrefixCode<kSymbols>::Lengths(const std::array<uint32_t, kSymbols>& counts, size_t most) {
  length.fill(0);
  std::array<uint16_t, kSymbols> order{};
  size_t used = 0;
  for (size_t symbol = 0; symbol < kSymbols; ++symbol) {
    if (counts[symbol] > 0) order[used++] = static_cast<uint16_t>(symbol);
  }
  if (used <= 1) {
    // One bit, as decoders expect
    if (used == 1) length[order[0]] = 1;
    return;
  }
  std::sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(used),
            [&](auto a, auto b) { return counts[a] != counts[b] ? counts[a] < counts[b] : a < b; });
  // Huffman's tree from two queues: leaves by frequency, and nodes in the order they are made
  std::array<uint64_t, 2 * kSymbols> weight{};
  std::array<uint16_t, 2 * kSymbols> parent{};
  for (size_t i = 0; i < used; ++i) weight[i] = counts[order[i]];
  size_t leaf = 0, node = used;
  for (size_t made = used; made < 2 * used - 1; ++made) {
    for (int side = 0; side < 2; ++side) {
      const bool is_leaf = leaf < used && (node >= made || weight[leaf] <= weight[node]);
      const size_t taken = is_leaf ? leaf++ : node++;
      weight[made] += weight[taken];
      parent[taken] = static_cast<uint16_t>(made);
    }
  }
  std::array<uint8_t, 2 * kSymbols> depth{};
  std::array<size_t, 64> of_length{};
  for (size_t i = 2 * used - 2; i-- > 0;) {
    depth[i] = static_cast<uint8_t>(std::min<size_t>(depth[parent[i]] + 1, 63));
    if (i < used) ++of_length[std::min<size_t>(depth[i], most)];
  }
  // Codes that were cut to `most` bits are too many: deeper ones make room for them
  size_t room = 0;
  for (size_t bits = 1; bits <= most; ++bits) room += of_length[bits] << (most - bits);
  for (; room > size_t{1} << most; --room) {
    size_t bits = most - 1;
    while (of_length[bits] == 0) --bits;
    --of_length[bits];
    of_length[bits + 1] += 2;
    --of_length[most];
  }
  for (size_t bits = most, i = 0; bits > 0; --bits) {
    for (size_t n = of_length[bits]; n > 0; --n) length[order[i++]] = static_cast<uint8_t>(bits);
  }
}

template <size_t kSymbols>
void PrefixCode<kSymbols>::Make(const std::array<uint32_t, kSymbols>& counts, size_t most) {
  Lengths(counts, most);
  std::array<uint16_t, 17> next{};
  for (const uint8_t bits : length) ++next[bits + 1U];
  next[1] = 0;
  for (size_t bits = 1, first = 0; bits < next.size(); ++bits) {
    first = (first + next[bits]) << (bits > 1 ? 1 : 0);
    next[bits] = static_cast<uint16_t>(first);
  }
  for (size_t symbol = 0; symbol < kSymbols; ++symbol) {
    uint32_t forward = length[symbol] == 0 ? 0 : next[length[symbol]]++;
    uint32_t backward = 0;
    for (size_t bit = 0; bit < length[symbol]; ++bit, forward >>= 1) {
      backward = backward << 1 | (forward & 1);
    }
    code[symbol] = static_cast<uint16_t>(backward);
  }
}

// ---- A block.

class Blocks {
 public:
  explicit Blocks(BitWriter& out) : out_(out), tokens_(kMostTokens) {}

  void Byte(uint8_t byte) { Add(byte | kOneByte, &literals_[byte]); }

  void Pixel(const uint8_t* at) {
    ++literals_[at[0]];
    ++literals_[at[1]];
    Add(uint32_t{at[0]} | uint32_t{at[1]} << 8 | uint32_t{at[2]} << 16, &literals_[at[2]]);
  }

  /// Of any length from 3 on.
  void Match(size_t length, size_t distance) {
    const size_t slot = SlotOfDistance(distance);
    const uint32_t far = kMatch | static_cast<uint32_t>(slot << 24 | (distance - 1) << 9);
    while (length > 0) {
      // Two short ones where the rest would be too short
      size_t part = std::min(length, kLongest);
      if (length > part && length - part < kShortest) part = length - kShortest;
      ++distances_[slot];
      Add(far | static_cast<uint32_t>(part), &literals_[257 + kSlotOfLength[part]]);
      length -= part;
    }
  }

  void End() { Write(true); }

 private:
  static constexpr size_t kMostTokens = 1 << 15;
  /// A match: its length from bit 0 on, its distance less 1 from 9, the slot of that from 24.
  static constexpr uint32_t kMatch = 1U << 31;
  static constexpr uint32_t kOneByte = 1U << 30;

  void Add(uint32_t token, uint32_t* count) {
    ++*count;
    tokens_[filled_] = token;
    if (++filled_ == kMostTokens) Write(false);
  }

  void Write(bool last);
  void WriteCodes();
  void WriteTokens();

  BitWriter& out_;
  std::vector<uint32_t> tokens_;
  size_t filled_ = 0;
  std::array<uint32_t, kLiterals> literals_{};
  std::array<uint32_t, kDistances> distances_{};
  PrefixCode<kLiterals> literal_code_;
  PrefixCode<kDistances> distance_code_;
};

/// The order in which lengths of the code for lengths are written (RFC 1951, section 3.2.7).
constexpr std::array<uint8_t, 19> kLengthOrder = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                  11, 4,  12, 3, 13, 2, 14, 1, 15};

void Blocks::WriteCodes() {
  std::array<uint8_t, kLiterals + kDistances> lengths{};
  std::ranges::copy(literal_code_.length, lengths.begin());
  std::ranges::copy(distance_code_.length, lengths.begin() + kLiterals);
  // Runs: 16 repeats the last length 3 to 6 times, 17 and 18 zeros 3 to 10 and 11 to 138 times
  struct Step {
    uint8_t symbol, extra, bits;
  };
  std::vector<Step> steps;
  std::array<uint32_t, 19> counts{};
  for (size_t i = 0; i < lengths.size();) {
    size_t run = 1;
    while (i + run < lengths.size() && lengths[i + run] == lengths[i]) ++run;
    Step step = {lengths[i], 0, 0};
    size_t taken = 1;
    if (lengths[i] == 0 && run >= 3) {
      taken = std::min<size_t>(run, 138);
      step = taken > 10 ? Step{18, static_cast<uint8_t>(taken - 11), 7}
                        : Step{17, static_cast<uint8_t>(taken - 3), 3};
    } else if (i > 0 && lengths[i] == lengths[i - 1] && run >= 3) {
      taken = std::min<size_t>(run, 6);
      step = {16, static_cast<uint8_t>(taken - 3), 2};
    }
    ++counts[step.symbol];
    steps.push_back(step);
    i += taken;
  }
  PrefixCode<19> code;
  code.Make(counts, 7);
  size_t written = kLengthOrder.size();
  while (written > 4 && code.length[kLengthOrder[written - 1]] == 0) --written;
  out_.Room(8 + 3 * lengths.size());
  out_.Put(kLiterals - 257, 5);
  out_.Put(kDistances - 1, 5);
  out_.Put(written - 4, 4);
  for (size_t i = 0; i < written; ++i) out_.Put(code.length[kLengthOrder[i]], 3);
  for (const Step& step : steps) {
    const size_t bits = code.length[step.symbol];
    out_.Put(code.code[step.symbol] | uint64_t{step.extra} << bits, bits + step.bits);
  }
}

void Blocks::WriteTokens() {
  // A token takes 48 bits at most
  out_.Room(6 * filled_ + 8);
  const auto& literals = literal_code_;
  const auto& distances = distance_code_;
  for (const uint32_t token : std::span(tokens_).first(filled_)) {
    if ((token & kMatch) != 0) {
      const size_t length = token & 511, distance = (token >> 9 & (kWindow - 1)) + 1;
      const size_t length_slot = kSlotOfLength[length], slot = token >> 24 & 31;
      const Slot& of_length = kLengthSlots[length_slot];
      const Slot& of_distance = kDistanceSlots[slot];
      uint64_t bits = literals.code[257 + length_slot];
      size_t count = literals.length[257 + length_slot];
      bits |= uint64_t{length - of_length.base} << count;
      count += of_length.extra;
      bits |= uint64_t{distances.code[slot]} << count;
      count += distances.length[slot];
      bits |= uint64_t{distance - of_distance.base} << count;
      out_.Put(bits, count + of_distance.extra);
    } else {
      const size_t first = token & 255;
      uint64_t bits = literals.code[first];
      size_t count = literals.length[first];
      if ((token & kOneByte) == 0) {
        const size_t second = token >> 8 & 255, third = token >> 16 & 255;
        bits |= uint64_t{literals.code[second]} << count;
        count += literals.length[second];
        bits |= uint64_t{literals.code[third]} << count;
        count += literals.length[third];
      }
      out_.Put(bits, count);
    }
  }
  out_.Put(literals.code[kEndOfBlock], literals.length[kEndOfBlock]);
}

void Blocks::Write(bool last) {
  literals_[kEndOfBlock] = 1;
  literal_code_.Make(literals_, 15);
  distance_code_.Make(distances_, 15);
  out_.Room(8);
  // A block with codes of its own
  out_.Put((last ? 1 : 0) | 2 << 1, 3);
  WriteCodes();
  WriteTokens();
  filled_ = 0;
  literals_.fill(0);
  distances_.fill(0);
}

// ---- Matches.

/// Finds what repeats. All that matches may reach is in one small piece of memory, which stays in
/// the processor's cache: the last 32 KiB and the row, with the filter bytes.
class Matcher {
 public:
  Matcher(size_t width, Blocks& out)
      : stride_(kPixel * width + 1),
        out_(out),
        window_(2 * kWindow + stride_ + sizeof(uint64_t)),
        pairs_(kPlaces, kNowhere),
        pixels_(kPlaces, kNowhere) {}

  /// Returns whether the row repeats the one above.
  bool AddRow(std::span<const uint8_t> row) {
    if (filled_ + stride_ + sizeof(uint64_t) > window_.size()) Slide();
    uint8_t* at = window_.data() + filled_;
    *at++ = 0;
    std::memcpy(at, row.data(), row.size());
    filled_ += stride_;
    const uint8_t* const end = at + row.size();
    if (filled_ >= 2 * stride_ && stride_ <= kWindow &&
        std::memcmp(at, at - stride_, row.size()) == 0) {
      out_.Match(stride_, stride_);
      return true;
    }
    out_.Byte(0);
    at += Step(at, end, true);
    while (at < end) at += Step(at, end, false);
    return false;
  }

 private:
  static constexpr size_t kBits = 12, kPlaces = size_t{1} << kBits;
  /// Farther than a match may reach.
  static constexpr uint32_t kNowhere = ~0U - kWindow;
  static constexpr uint64_t kOnePixel = (uint64_t{1} << 24) - 1,
                            kTwoPixels = (uint64_t{1} << 48) - 1;

  void Slide() {
    const size_t dropped = filled_ - std::min(filled_, kWindow);
    std::memmove(window_.data(), window_.data() + dropped, filled_ - dropped);
    dropped_ += static_cast<uint32_t>(dropped);
    filled_ -= dropped;
  }

  static size_t Hash(uint64_t bytes) { return bytes * 0x9E3779B97F4A7C15 >> (64 - kBits); }

  /// How far back the last place with this hash is; this place takes its place.
  uint32_t Distance(std::vector<uint32_t>& places, uint64_t bytes, const uint8_t* at) {
    const uint32_t now = dropped_ + static_cast<uint32_t>(at - window_.data());
    return now - std::exchange(places[Hash(bytes)], now);
  }

  /// A match of all pixels that are equal so far back; returns its bytes.
  size_t Match(const uint8_t* at, const uint8_t* end, size_t distance) {
    const uint8_t* const begin = at;
    for (; at < end; at += sizeof(uint64_t)) {
      if (const uint64_t other = WordAt(at) ^ WordAt(at - distance)) {
        at += static_cast<size_t>(std::countr_zero(other)) / 8;
        break;
      }
    }
    const auto bytes = static_cast<size_t>(std::min(at, end) - begin);
    out_.Match(bytes - bytes % kPixel, distance);
    return bytes - bytes % kPixel;
  }

  /// Codes the pixel at a place and those that repeat with it; returns how many bytes.
  size_t Step(const uint8_t* at, const uint8_t* end, bool first) {
    const uint64_t word = WordAt(at);
    if (!first && ((word ^ WordAt(at - kPixel)) & kOnePixel) == 0) return Match(at, end, kPixel);
    if (end - at > static_cast<ptrdiff_t>(kPixel)) {
      const uint32_t distance = Distance(pairs_, word & kTwoPixels, at);
      if (distance <= kWindow && ((word ^ WordAt(at - distance)) & kTwoPixels) == 0)
        return Match(at, end, distance);
    }
    const uint32_t distance = Distance(pixels_, word & kOnePixel, at);
    if (distance <= kWindow && ((word ^ WordAt(at - distance)) & kOnePixel) == 0) {
      out_.Match(kPixel, distance);
    } else {
      out_.Pixel(at);
    }
    return kPixel;
  }

  size_t stride_;
  Blocks& out_;
  std::vector<uint8_t> window_;
  size_t filled_ = 0;
  /// Bytes before the window; a few of 2^32 places may come twice, which costs a match at
  /// most.
  uint32_t dropped_ = 0;
  /// The last place of each hash of two pixels and of one.
  std::vector<uint32_t> pairs_, pixels_;
};

// ---- The file.

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";

/// Ends a chunk whose length field is at `begin`.
void EndChunk(size_t begin, BitWriter& out) {
  const uint32_t crc = Crc(out.From(begin + 4));
  const std::span<uint8_t> chunk = out.From(begin);
  const auto length = static_cast<uint32_t>(chunk.size() - 8);
  for (size_t i = 0; i < 4; ++i) chunk[i] = static_cast<uint8_t>(length >> (24 - 8 * i));
  out.Number(crc);
}

size_t BeginChunk(std::string_view type, BitWriter& out) {
  const size_t begin = out.at();
  out.Number(0);
  out.Text(type);
  return begin;
}

}  // namespace

std::vector<uint8_t> PackPng(std::span<const uint8_t> rgb, size_t width, size_t height) {
  if (width == 0 || height == 0 || width > kMostSide || height > kMostSide ||
      rgb.size() != width * height * kPixel) {
    throw EngineError("internal", "Expected the pixels of a picture.");
  }
  std::vector<uint8_t> bytes(rgb.size() / 8 + 4096);
  BitWriter out(bytes);
  out.Text(kSignature);
  size_t chunk = BeginChunk("IHDR", out);
  out.Number(static_cast<uint32_t>(width));
  out.Number(static_cast<uint32_t>(height));
  // Eight bits, RGB; deflate, no filters but the five of PNG, no interlacing
  for (const uint8_t field : {8, 2, 0, 0, 0}) out.Byte(field);
  EndChunk(chunk, out);
  chunk = BeginChunk("IDAT", out);
  // RFC 1950: deflate with a window of 32 KiB, made fast
  out.Byte(0x78);
  out.Byte(0x01);
  Blocks blocks(out);
  Matcher matcher(width, blocks);
  Adler adler;
  Sums sums;
  for (size_t row = 0; row < height; ++row) {
    const std::span<const uint8_t> pixels = rgb.subspan(row * kPixel * width, kPixel * width);
    if (!matcher.AddRow(pixels)) sums = SumsOf(pixels);
    adler.AddRow(sums, pixels.size());
  }
  blocks.End();
  out.Align();
  out.Number(adler.value());
  EndChunk(chunk, out);
  EndChunk(BeginChunk("IEND", out), out);
  bytes.resize(out.at());
  return bytes;
}

}  // namespace radserve
