#include "codecs/rle.h"

#include <algorithm>
#include <random>
#include <vector>

#include "check.h"

using namespace radserve;
using namespace radserve::test;

namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kHeader = 64;

Bytes Packed(const Bytes& pixels, const RleShape& shape) {
  Bytes out(MostRleBytes(shape));
  out.resize(PackRle(pixels, shape, out));
  return out;
}

size_t NumberAt(const Bytes& frame, size_t index) {
  const uint8_t* at = frame.data() + 4 * index;
  return at[0] | at[1] << 8 | at[2] << 16 | static_cast<size_t>(at[3]) << 24;
}

/// A frame of segments that lie one behind the other.
Bytes FrameOf(const std::vector<Bytes>& segments) {
  Bytes frame(kHeader);
  frame[0] = static_cast<uint8_t>(segments.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    for (size_t byte = 0; byte < 4; ++byte) {
      frame[4 * (i + 1) + byte] = static_cast<uint8_t>(frame.size() >> (8 * byte));
    }
    frame.insert(frame.end(), segments[i].begin(), segments[i].end());
  }
  return frame;
}

/// G.3.2 to the letter: what a segment stands for, of which `count` bytes are wanted.
RleFault Defined(const Bytes& segment, size_t count, Bytes& plane) {
  for (size_t at = 0; plane.size() < count;) {
    if (at == segment.size()) return RleFault::kShort;
    const int control = static_cast<int8_t>(segment[at++]);
    if (control == -128) continue;
    const size_t bytes = control >= 0 ? static_cast<size_t>(control) + 1 : 1;
    if (at + bytes > segment.size()) return RleFault::kCutRun;
    if (control >= 0) {
      plane.insert(plane.end(), segment.begin() + at, segment.begin() + at + bytes);
    } else {
      plane.insert(plane.end(), static_cast<size_t>(1 - control), segment[at]);
    }
    at += bytes;
  }
  plane.resize(count);
  return RleFault::kNone;
}

/// What the encoder decides, byte by byte: runs of three, runs of two where no literal is open.
Bytes DefinedRow(const Bytes& row) {
  Bytes out;
  size_t literal = 0;
  for (size_t at = 0; at < row.size();) {
    size_t end = at;
    while (end < row.size() && row[end] == row[at]) ++end;
    if (end - at < (literal == 0 ? 2u : 3u)) {
      if (literal % 128 == 0) out.push_back(0);
      out[out.size() - 1 - literal % 128] = static_cast<uint8_t>(literal % 128);
      out.push_back(row[at++]);
      ++literal;
      continue;
    }
    literal = 0;
    for (; at < end; at += std::min<size_t>(128, end - at)) {
      const size_t length = std::min<size_t>(128, end - at);
      out.push_back(static_cast<uint8_t>(length == 1 ? 0 : 257 - length));
      out.push_back(row[at]);
    }
  }
  return out;
}

/// Bytes as pictures have them: runs of every length, and noise of few and of many values between
/// them.
Bytes Structured(std::mt19937& chance, size_t count) {
  const std::vector<size_t> lengths = {1,  2,  3,   4,   7,   8,   9,   31,
                                       32, 33, 127, 128, 129, 130, 256, 257};
  Bytes bytes;
  while (bytes.size() < count) {
    const size_t length = lengths[chance() % lengths.size()];
    const auto values = static_cast<uint32_t>(chance() % 2 == 0 ? 2 : 256);
    const auto value = static_cast<uint8_t>(chance());
    const bool noise = chance() % 2 == 0;
    for (size_t i = 0; i < length; ++i) {
      bytes.push_back(noise ? static_cast<uint8_t>(chance() % values) : value);
    }
  }
  bytes.resize(count);
  return bytes;
}

/// PackBits that no encoder writes: short literals, bytes that stand for nothing, padding.
Bytes AnySegment(std::mt19937& chance, const Bytes& plane) {
  Bytes out;
  for (size_t at = 0; at < plane.size();) {
    size_t end = at;
    while (end < plane.size() && end - at < 128 && plane[end] == plane[at]) ++end;
    if (chance() % 5 == 0) {
      out.push_back(128);
    } else if (end - at > 1 && chance() % 4 > 0) {
      out.insert(out.end(), {static_cast<uint8_t>(257 - (end - at)), plane[at]});
      at = end;
    } else {
      const size_t length = std::min<size_t>(1 + chance() % 128, plane.size() - at);
      out.push_back(static_cast<uint8_t>(length - 1));
      out.insert(out.end(), plane.begin() + at, plane.begin() + at + length);
      at += length;
    }
  }
  if (chance() % 3 == 0) out.insert(out.end(), {static_cast<uint8_t>(129 + chance() % 127), 9});
  return out;
}

struct Layout {
  size_t samples, sample_bytes;
  size_t planes() const { return samples * sample_bytes; }
};

const std::vector<Layout> kLayouts = {{1, 1}, {1, 2}, {3, 1}, {1, 4}, {3, 2}, {1, 8}, {3, 4}};

/// Decodes a frame of these segments both ways and compares.
void SameAsDefined(const std::vector<Bytes>& segments, const Layout& layout, size_t pixels) {
  Bytes expected(pixels * layout.planes());
  RleVerdict fault = {RleFault::kNone, 0};
  for (size_t i = 0; i < segments.size() && fault.fault == RleFault::kNone; ++i) {
    Bytes plane;
    fault = {Defined(segments[i], pixels, plane), i};
    if (fault.fault != RleFault::kNone) break;
    const size_t sample = i / layout.sample_bytes;
    // The most significant byte comes first, and stands last
    const size_t byte = layout.sample_bytes - 1 - i % layout.sample_bytes;
    for (size_t x = 0; x < pixels; ++x) {
      expected[x * layout.planes() + sample * layout.sample_bytes + byte] = plane[x];
    }
  }
  Bytes out(expected.size());
  // Exactly as large as it is, so that sanitizers see what is read beyond
  const Bytes made = FrameOf(segments);
  const Bytes frame(made.begin(), made.end());
  const RleVerdict found = UnpackRle(frame, layout.samples, layout.sample_bytes, out);
  CHECK(found.fault == fault.fault);
  if (fault.fault == RleFault::kNone) {
    CHECK(out == expected);
  } else {
    EQUAL(found.segment, fault.segment);
  }
}

}  // namespace

TEST("known bytes: runs, literals, a run of two with a literal, each row and plane by itself") {
  // Grey, two rows of nine
  const Bytes pixels = {1, 1, 2, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5};
  const Bytes frame = Packed(pixels, {1, 2, 9});
  const Bytes segment = {255, 1, 2, 2, 3, 3, 253, 4, 249, 4, 0, 5};
  CHECK(Bytes(frame.begin() + kHeader, frame.end()) == segment);
  EQUAL(NumberAt(frame, 0), 1u);
  EQUAL(NumberAt(frame, 1), kHeader);
  EQUAL(NumberAt(frame, 2), 0u);
}
END;

TEST("a run of 129 is a run and a literal; segments are even and begin where the header says") {
  const Bytes frame = Packed(Bytes(129 * 3, 9), {3, 1, 129});
  CHECK(Bytes(frame.begin() + kHeader, frame.end()) ==
        Bytes({129, 9, 0, 9, 129, 9, 0, 9, 129, 9, 0, 9}));
  const Bytes odd = Packed({1, 2, 3, 4, 5, 6}, {3, 1, 2});
  CHECK(Bytes(odd.begin() + kHeader, odd.end()) == Bytes({1, 1, 4, 0, 1, 2, 5, 0, 1, 3, 6, 0}));
  for (size_t plane = 0; plane < 3; ++plane) EQUAL(NumberAt(odd, plane + 1), kHeader + 4 * plane);
}
END;

TEST("every row is packed as decided byte by byte, whatever its length") {
  std::mt19937 chance(1);
  for (size_t round = 0; round < 600; ++round) {
    const RleShape shape = {1 + chance() % 4, 1 + chance() % 3,
                            1 + chance() % (round % 10 == 0 ? 3000 : 300)};
    const Bytes pixels = Structured(chance, shape.bytes());
    Bytes expected;
    for (size_t plane = 0; plane < shape.planes; ++plane) {
      for (size_t y = 0; y < shape.rows; ++y) {
        Bytes row;
        for (size_t x = 0; x < shape.columns; ++x) {
          row.push_back(pixels[(y * shape.columns + x) * shape.planes + plane]);
        }
        const Bytes packed = DefinedRow(row);
        expected.insert(expected.end(), packed.begin(), packed.end());
      }
      if (expected.size() % 2 == 1) expected.push_back(0);
    }
    const Bytes frame = Packed(pixels, shape);
    CHECK(Bytes(frame.begin() + kHeader, frame.end()) == expected);
    Bytes back(pixels.size());
    CHECK(UnpackRle(frame, shape.planes, 1, back).fault == RleFault::kNone);
    CHECK(back == pixels);
  }
}
END;

TEST("what packs worst has room") {
  for (const size_t columns : {1, 2, 127, 128, 129, 256, 257, 1000}) {
    Bytes row;
    while (row.size() < columns) row.push_back(static_cast<uint8_t>(row.size() * 7));
    const RleShape shape = {1, 1, columns};
    Bytes out(MostRleBytes(shape));
    EQUAL(PackRle(row, shape, out), (kHeader + columns + (columns + 127) / 128 + 1) / 2 * 2);
  }
}
END;

TEST("any sound segments are unpacked by the definition, in every layout, over many blocks") {
  std::mt19937 chance(2);
  for (size_t round = 0; round < 400; ++round) {
    const Layout& layout = kLayouts[round % kLayouts.size()];
    const size_t pixels = 1 + chance() % (round % 5 == 0 ? 20000 : 500);
    std::vector<Bytes> segments;
    for (size_t i = 0; i < layout.planes(); ++i) {
      segments.push_back(AnySegment(chance, Structured(chance, pixels)));
    }
    SameAsDefined(segments, layout, pixels);
  }
}
END;

TEST("of damaged segments the first one is told, wherever its fault lies") {
  std::mt19937 chance(3);
  size_t faults = 0;
  for (size_t round = 0; round < 1000; ++round) {
    const Layout& layout = kLayouts[round % kLayouts.size()];
    const size_t pixels = 1 + chance() % (round % 5 == 0 ? 12000 : 500);
    std::vector<Bytes> segments;
    for (size_t i = 0; i < layout.planes(); ++i) {
      Bytes segment = AnySegment(chance, Structured(chance, pixels));
      if (chance() % 3 == 0) segment.resize(chance() % (segment.size() + 1));
      if (!segment.empty() && chance() % 3 == 0) {
        segment[chance() % segment.size()] = static_cast<uint8_t>(chance());
      }
      segments.push_back(std::move(segment));
    }
    SameAsDefined(segments, layout, pixels);
    Bytes out(pixels * layout.planes());
    if (UnpackRle(FrameOf(segments), layout.samples, layout.sample_bytes, out).fault !=
        RleFault::kNone) {
      ++faults;
    }
  }
  CHECK(faults > 300);
}
END;

TEST("segments that lie outside their frame, or the wrong way round") {
  const Bytes sound = FrameOf({{1, 1, 2}, {1, 3, 4}, {1, 5, 6}});
  Bytes out(6);
  CHECK(UnpackRle(sound, 3, 1, out).fault == RleFault::kNone);
  const auto with = [&](size_t segment, uint8_t offset) {
    Bytes frame = sound;
    frame[4 * (segment + 1)] = offset;
    return UnpackRle(frame, 3, 1, out);
  };
  const auto outside = [&](const RleVerdict& found, size_t segment) {
    CHECK(found.fault == RleFault::kOutside);
    EQUAL(found.segment, segment);
  };
  outside(with(0, 63), 0);
  outside(with(1, 63), 0);
  outside(with(1, 71), 1);
  outside(with(2, 74), 2);
  CHECK(with(2, 73).fault == RleFault::kShort);
  Bytes beyond = sound;
  beyond[4 * 2] = 200;
  beyond[4 * 3] = 210;
  outside(UnpackRle(beyond, 3, 1, out), 1);
  // The first is cut, which is told before the second lies outside
  Bytes frame = FrameOf({{5, 1, 2}, {1, 3, 4}, {1, 5, 6}});
  frame[4 * 3] = 200;
  const RleVerdict found = UnpackRle(frame, 3, 1, out);
  CHECK(found.fault == RleFault::kCutRun);
  EQUAL(found.segment, 0u);
}
END;

TEST("a frame holds its pixels and no others") {
  std::mt19937 random(5);
  const RleShape shape = {3, 70, 301};
  Bytes pixels(shape.bytes());
  for (uint8_t& value : pixels) value = static_cast<uint8_t>(random() % 3);
  const Bytes frame = Packed(pixels, shape);
  CHECK(RleHolds(frame, pixels, 3));
  for (size_t at : {size_t{0}, size_t{12287}, size_t{12288}, pixels.size() - 1}) {
    Bytes other = pixels;
    other[at] ^= 1;
    CHECK(!RleHolds(frame, other, 3));
  }
  CHECK(!RleHolds(Bytes(frame.begin(), frame.end() - 40), pixels, 3));
  CHECK(RleHolds(frame, Bytes(pixels.begin(), pixels.end() - 3), 3));
}
END;

TEST("sizes that do not fit together are refused") {
  Bytes out(10), pixels(6);
  CHECK(CodeOf([&] { PackRle(pixels, {3, 1, 2}, out); }) == "internal");
  CHECK(CodeOf([&] { PackRle(pixels, {3, 1, 1}, out); }) == "internal");
  CHECK(CodeOf([&] { UnpackRle(Bytes(63), 1, 1, out); }) == "internal");
  CHECK(CodeOf([&] { UnpackRle(Bytes(64), 3, 1, out); }) == "internal");
  CHECK(CodeOf([&] { UnpackRle(Bytes(200), 8, 2, out); }) == "internal");
  CHECK(CodeOf([&] { RleHolds(Bytes(63), out, 1); }) == "internal");
  CHECK(CodeOf([&] { RleHolds(Bytes(64), out, 3); }) == "internal");
}
END;
