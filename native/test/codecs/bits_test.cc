#include "codecs/bits.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "check.h"

using namespace radserve;
using namespace radserve::test;

namespace {

using Bytes = std::vector<uint8_t>;

Bytes Random(std::mt19937& chance, size_t count, unsigned values) {
  Bytes bytes(count);
  std::generate(bytes.begin(), bytes.end(),
                [&] { return static_cast<uint8_t>(chance() % values); });
  return bytes;
}

}  // namespace

TEST("bytes of a value are marked, or all others; what has no byte stays as it is") {
  std::mt19937 chance(1);
  for (size_t count = 0; count < 200; ++count) {
    const Bytes bytes = Random(chance, count, 3);
    for (const bool flip : {false, true}) {
      Bytes plane(count + 2, 7);
      MarkEqual(bytes, 2, flip, plane);
      for (size_t i = 0; i < count; ++i) EQUAL(plane[i] == 1, (bytes[i] == 2) != flip);
      EQUAL(plane[count], 7);
      Bytes part(count / 2, 7);
      MarkEqual(bytes, 2, flip, part);
      CHECK(std::equal(part.begin(), part.end(), plane.begin()));
    }
  }
}
END;

TEST("known bits: the first pixel is the lowest bit, and planes follow each other within a byte") {
  Bytes bits(2);
  PackPlane(Bytes({1, 0, 1}), bits, 0);
  PackPlane(Bytes({1, 0, 0, 0, 0, 0, 0, 1, 1}), bits, 3);
  CHECK(bits == Bytes({0b00001101, 0b00001100}));
  Bytes plane(9, 7);
  UnpackPlane(bits, 3, plane);
  CHECK(plane == Bytes({1, 0, 0, 0, 0, 0, 0, 1, 1}));
}
END;

TEST("planes of any length are packed and unpacked bit by bit, from any bit on") {
  std::mt19937 chance(2);
  for (size_t round = 0; round < 2000; ++round) {
    const size_t at = chance() % 40;
    const Bytes plane = Random(chance, chance() % 100, 2);
    const Bytes before = Random(chance, at, 2);
    Bytes bits((at + plane.size() + 7) / 8);
    PackPlane(before, bits, 0);
    PackPlane(plane, bits, at);
    for (size_t i = 0; i < at + plane.size(); ++i) {
      EQUAL(bits[i / 8] >> (i % 8) & 1, i < at ? before[i] : plane[i - at]);
    }
    Bytes back(plane.size(), 7);
    UnpackPlane(bits, at, back);
    CHECK(back == plane);
  }
}
END;

TEST("beyond the last bit there are zeros; a plane without room is refused") {
  Bytes plane(20, 7);
  UnpackPlane(Bytes({0xff}), 3, plane);
  CHECK(plane == Bytes({1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  UnpackPlane(Bytes(), 1000, plane);
  CHECK(plane == Bytes(20));
  Bytes bits(2);
  CHECK(CodeOf([&] { PackPlane(Bytes(9), bits, 8); }) == "internal");
  CHECK(CodeOf([&] { PackPlane(Bytes(), bits, 17); }) == "internal");
}
END;

TEST("the first value with bits outside its own is found, and a sign is none") {
  std::mt19937 chance(3);
  const auto expected = [](const Bytes& bytes, const Container& c) -> std::optional<uint32_t> {
    for (size_t i = 0; i + c.bytes <= bytes.size(); i += c.bytes) {
      uint32_t value = 0;
      for (size_t b = 0; b < c.bytes; ++b) value |= uint32_t{bytes[i + b]} << 8 * b;
      const uint32_t found = value & c.outside;
      const bool negative = c.sign && (value >> *c.sign & 1) != 0;
      if (found != 0 && !(negative && found == c.outside)) return value;
    }
    return std::nullopt;
  };
  for (const size_t width : {1, 2, 4}) {
    const auto bits = static_cast<unsigned>(8 * width);
    for (unsigned round = 0; round < 400; ++round) {
      const unsigned high = round % (bits - 1);
      const auto outside = static_cast<uint32_t>((uint64_t{1} << bits) - (uint64_t{2} << high));
      Bytes bytes(width * (1 + chance() % 9000));
      const std::optional<unsigned> sign = round % 2 == 0 ? std::nullopt : std::optional(high);
      // Good values, and in most rounds one by chance.
      for (size_t i = 0; i < bytes.size(); i += width) {
        auto value = static_cast<uint32_t>(chance()) & ~outside;
        if (sign && (value >> high & 1) != 0) value |= outside;
        std::memcpy(&bytes[i], &value, width);
      }
      if (round % 4 > 0) bytes[chance() % bytes.size()] = static_cast<uint8_t>(chance());
      const Container container = {width, outside, sign};
      CHECK(FirstStray(bytes, container) == expected(bytes, container));
    }
  }
  EQUAL(CodeOf([] { FirstStray({}, {3, 1, std::nullopt}); }), "internal");
}
END;
