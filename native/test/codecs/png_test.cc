#include "codecs/png.h"

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "check.h"

using namespace radserve;
using namespace radserve::test;

namespace {

using Bytes = std::vector<uint8_t>;

/// Inflates by RFC 1951 to the letter, a bit at a time. Empty where the bytes are not sound.
class Inflater {
 public:
  explicit Inflater(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  Bytes All() {
    for (bool last = false; !last;) {
      last = Bits(1) == 1;
      if (Bits(2) != 2 || !Block()) return {};
    }
    return out_;
  }
  /// Where what follows begins.
  size_t end() const { return (at_ + 7) / 8; }

 private:
  size_t Bits(size_t count) {
    size_t value = 0;
    for (size_t i = 0; i < count; ++i, ++at_) {
      if (at_ / 8 >= bytes_.size()) return 0;
      value |= static_cast<size_t>(bytes_[at_ / 8] >> (at_ % 8) & 1) << i;
    }
    return value;
  }

  /// The symbol whose code comes next; codes of a length follow each other by symbol.
  size_t Symbol(const std::vector<uint8_t>& lengths) {
    size_t code = 0, first = 0, index = 0;
    for (size_t bits = 1; bits < 16; ++bits) {
      code = code << 1 | Bits(1);
      const auto count = static_cast<size_t>(
          std::count(lengths.begin(), lengths.end(), static_cast<uint8_t>(bits)));
      if (code < first + count) {
        index = code - first;
        for (size_t symbol = 0; symbol < lengths.size(); ++symbol) {
          if (lengths[symbol] == bits && index-- == 0) return symbol;
        }
      }
      first = (first + count) << 1;
    }
    sound_ = false;
    return 256;
  }

  bool Block() {
    const size_t literals = Bits(5) + 257, distances = Bits(5) + 1, written = Bits(4) + 4;
    constexpr std::array<uint8_t, 19> kOrder = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                11, 4,  12, 3, 13, 2, 14, 1, 15};
    std::vector<uint8_t> of_lengths(19);
    for (size_t i = 0; i < written; ++i) of_lengths[kOrder[i]] = static_cast<uint8_t>(Bits(3));
    std::vector<uint8_t> lengths;
    while (sound_ && lengths.size() < literals + distances) {
      const size_t symbol = Symbol(of_lengths);
      if (symbol < 16) lengths.push_back(static_cast<uint8_t>(symbol));
      if (symbol == 16) lengths.insert(lengths.end(), 3 + Bits(2), lengths.back());
      if (symbol == 17) lengths.insert(lengths.end(), 3 + Bits(3), 0);
      if (symbol == 18) lengths.insert(lengths.end(), 11 + Bits(7), 0);
    }
    const auto split = lengths.begin() + static_cast<ptrdiff_t>(literals);
    const std::vector<uint8_t> literal(lengths.begin(), split), distance(split, lengths.end());
    for (size_t symbol = 0; sound_ && (symbol = Symbol(literal)) != 256;) {
      if (symbol < 256) {
        out_.push_back(static_cast<uint8_t>(symbol));
        continue;
      }
      const size_t slot = symbol - 257;
      const size_t extra = slot < 8 || slot == 28 ? 0 : slot / 4 - 1;
      const size_t length =
          slot == 28 ? 258 : (slot < 8 ? slot : ((4 + slot % 4) << extra)) + 3 + Bits(extra);
      const size_t far = Symbol(distance), more = far < 2 ? 0 : far / 2 - 1;
      const size_t back = (far < 2 ? far : (2 + far % 2) << more) + 1 + Bits(more);
      if (back > out_.size() || back > 32768) return false;
      for (size_t i = 0; i < length; ++i) out_.push_back(out_[out_.size() - back]);
    }
    return sound_;
  }

  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  bool sound_ = true;
  Bytes out_;
};

uint32_t NumberAt(std::span<const uint8_t> bytes, size_t at) {
  return uint32_t{bytes[at]} << 24 | uint32_t{bytes[at + 1]} << 16 | uint32_t{bytes[at + 2]} << 8 |
         bytes[at + 3];
}

/// ISO/IEC 15948, annex D, a bit at a time.
uint32_t Crc(std::span<const uint8_t> bytes) {
  uint32_t crc = ~0U;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc % 2 == 1 ? 0xEDB88320 : 0);
  }
  return ~crc;
}

uint32_t Adler(std::span<const uint8_t> bytes) {
  uint32_t a = 1, b = 0;
  for (const uint8_t byte : bytes) {
    a = (a + byte) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

/// The pixels of a file of ours; empty if anything of it is not as the standard has it.
Bytes Unpacked(const Bytes& png, size_t width, size_t height) {
  constexpr std::array<uint8_t, 8> kSignature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  if (!std::equal(kSignature.begin(), kSignature.end(), png.begin())) return {};
  const std::span<const uint8_t> all = png;
  Bytes pixels;
  size_t at = kSignature.size();
  for (const std::string type : {"IHDR", "IDAT", "IEND"}) {
    const size_t length = NumberAt(all, at);
    if (at + 12 + length > all.size()) return {};
    const auto data = all.subspan(at + 8, length);
    const auto named = all.subspan(at + 4, 4 + length);
    if (!std::equal(type.begin(), type.end(), named.begin())) return {};
    if (NumberAt(all, at + 8 + length) != Crc(named)) return {};
    if (type == "IHDR") {
      const Bytes expected = {8, 2, 0, 0, 0};
      if (NumberAt(data, 0) != width || NumberAt(data, 4) != height ||
          !std::equal(expected.begin(), expected.end(), data.begin() + 8))
        return {};
    }
    if (type == "IDAT") {
      if (NumberAt(data, 0) >> 16 != 0x7801) return {};
      const auto packed = data.subspan(2);
      Inflater inflater(packed);
      const Bytes rows = inflater.All();
      if (rows.size() != height * (3 * width + 1) || inflater.end() + 4 != packed.size() ||
          NumberAt(packed, inflater.end()) != Adler(rows))
        return {};
      for (size_t y = 0; y < height; ++y) {
        const auto row = rows.begin() + static_cast<ptrdiff_t>(y * (3 * width + 1));
        if (*row != 0) return {};
        pixels.insert(pixels.end(), row + 1, row + static_cast<ptrdiff_t>(3 * width + 1));
      }
    }
    at += 12 + length;
  }
  return at == all.size() ? pixels : Bytes{};
}

bool IsSame(const Bytes& pixels, size_t width, size_t height) {
  return Unpacked(PackPng(pixels, width, height), width, height) == pixels;
}

/// Pixels of `colours` greys, each of which goes on for some pixels.
Bytes Drawn(size_t width, size_t height, uint32_t colours, double longest, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes pixels(3 * width * height);
  std::array<uint8_t, 3> pixel{};
  size_t left = 0;
  for (size_t i = 0; i < pixels.size(); i += 3, --left) {
    if (left == 0) {
      left = 1 + static_cast<size_t>(longest * (random() % 1000) / 1000);
      const auto value = static_cast<uint8_t>(random() % colours);
      pixel = {value, random() % 2 == 0 ? value : static_cast<uint8_t>(255 - value), value};
    }
    std::copy(pixel.begin(), pixel.end(), pixels.begin() + static_cast<ptrdiff_t>(i));
  }
  return pixels;
}

}  // namespace

TEST("a picture reads back pixel by pixel, whatever is in it") {
  for (uint32_t colours : {1U, 2U, 9U, 256U}) {
    for (double longest : {0.0, 3.0, 40.0, 5000.0}) {
      for (const auto& [width, height] : {std::pair<size_t, size_t>{1, 1},
                                          {1, 300},
                                          {300, 1},
                                          {2, 2},
                                          {7, 5},
                                          {86, 9},
                                          {87, 9},
                                          {301, 211}}) {
        CHECK(IsSame(Drawn(width, height, colours, longest, colours), width, height));
      }
    }
  }
}
END;

TEST("rows that are longer than a match reaches read back") {
  for (size_t width : {10922U, 10923U, 30000U}) {
    Bytes pixels = Drawn(width, 2, 256, 2, 7);
    const Bytes first(pixels.begin(), pixels.begin() + static_cast<ptrdiff_t>(3 * width));
    pixels.insert(pixels.end(), first.begin(), first.end());
    CHECK(IsSame(pixels, width, 3));
  }
}
END;

TEST("a picture of many blocks reads back, and what repeats beside itself takes little") {
  const size_t width = 700, height = 300;
  Bytes pixels = Drawn(width, height, 256, 0, 3);
  CHECK(IsSame(pixels, width, height));
  const size_t once = PackPng(pixels, width, height).size();
  for (size_t y = 0; y < height; ++y) {
    const auto row = pixels.begin() + static_cast<ptrdiff_t>(3 * y * width);
    std::copy(row, row + 3 * width / 2, row + 3 * width / 2);
  }
  CHECK(IsSame(pixels, width, height));
  CHECK(PackPng(pixels, width, height).size() < once * 6 / 10);
}
END;

TEST("equal pixels give equal bytes") {
  const Bytes pixels = Drawn(320, 200, 40, 6, 1);
  CHECK(PackPng(pixels, 320, 200) == PackPng(pixels, 320, 200));
}
END;

TEST("what is no picture is refused") {
  const Bytes pixels(12);
  EQUAL(CodeOf([&] { PackPng(pixels, 2, 1); }), "internal");
  EQUAL(CodeOf([&] { PackPng({}, 0, 5); }), "internal");
  EQUAL(CodeOf([&] { PackPng(pixels, size_t{1} << 21, 0); }), "internal");
}
END;
