#include "../bits.h"

#include <algorithm>
#include <random>
#include <vector>

#include "check.h"

using namespace radserve;
using namespace radserve::test;

namespace {

using Bytes = std::vector<uint8_t>;

Bytes Random(std::mt19937& chance, size_t count, unsigned values) {
  Bytes bytes(count);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<uint8_t>(chance() % values); });
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
