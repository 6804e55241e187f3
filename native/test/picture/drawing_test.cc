// Drawings whose pixels are known, and lists of numbers that are no drawing.
#include "picture/drawing.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "steps.h"

using namespace radserve;
using namespace radserve::test;

namespace {

constexpr size_t kWidth = 32, kHeight = 24;

std::vector<uint8_t> Drawn(const std::vector<double>& list,
                           const std::vector<uint8_t>& glyphs = {}) {
  std::vector<uint8_t> rgb(kWidth * kHeight * 3);
  Draw(list, glyphs, {kWidth, kHeight, rgb});
  return rgb;
}

uint8_t Red(const std::vector<uint8_t>& rgb, size_t x, size_t y) {
  return rgb[(y * kWidth + x) * 3];
}

}  // namespace

TEST("rectangles cover their pixels, and parts of them") {
  const auto rgb = Drawn({2, 3, 4.5, 10, 2, 0, 0, 0xff0000, 1});
  for (size_t y = 0; y < kHeight; ++y) {
    for (size_t x = 0; x < kWidth; ++x) {
      const bool across = x >= 3 && x < 13;
      const int expected = !across ? 0 : y == 4 || y == 6 ? 128 : y == 5 ? 255 : 0;
      CHECK(Red(rgb, x, y) == expected);
    }
  }
}
END;

TEST("clips hold until they end") {
  const auto rgb = Drawn({0,        5, 5, 3, 3,  2,  -99, -99, 999, 999, 0,        0,
                          0xff0000, 1, 1, 2, 20, 20, 1,   1,   0,   0,   0xff0000, 1});
  size_t filled = 0;
  for (size_t y = 0; y < kHeight; ++y) {
    for (size_t x = 0; x < kWidth; ++x) filled += Red(rgb, x, y) == 255 ? 1 : 0;
  }
  CHECK(filled == 10);
  CHECK(Red(rgb, 20, 20) == 255);
}
END;

TEST("glyphs lie where they are told to") {
  const std::vector<uint8_t> glyphs = {9, 255, 0, 128, 64};
  const auto rgb = Drawn({4, 0xff0000, 2, 1, 2, 2, 30, 22, 1, 2, 2, 31, -1}, glyphs);
  CHECK(Red(rgb, 30, 22) == 255 && Red(rgb, 31, 22) == 0 && Red(rgb, 30, 23) == 128 &&
        Red(rgb, 31, 23) == 64);
  CHECK(Red(rgb, 31, 0) == 128);
}
END;

TEST("outlines are filled by the non-zero rule") {
  const auto box = [](float x, float y, float side, bool back) {
    std::vector<float> lines = {x,        y, x + side, y, x + side, y, x + side, y + side, x + side,
                                y + side, x, y + side, x, y + side, x, y};
    if (back) {
      for (size_t i = 0; i < lines.size(); i += 4) {
        std::swap(lines[i], lines[i + 2]);
        std::swap(lines[i + 1], lines[i + 3]);
      }
    }
    return lines;
  };
  std::vector<float> lines = box(1.25F, 1.5F, 4, false);
  std::vector<uint8_t> coverage(64);
  FillOutline(lines, 0, 0, 8, 8, coverage);
  CHECK(coverage[3 * 8 + 3] == 255 && coverage[3 * 8 + 1] == 191 && coverage[1 * 8 + 3] == 128);
  CHECK(coverage[3 * 8 + 5] == 64 && coverage[3 * 8 + 6] == 0 && coverage[0] == 0);
  const std::vector<float> hole = box(3, 3, 1, true), again = box(3, 3, 1, false);
  std::vector<float> with = lines;
  with.insert(with.end(), again.begin(), again.end());
  FillOutline(with, 0, 0, 8, 8, coverage);
  CHECK(coverage[3 * 8 + 3] == 255);
  with = lines;
  with.insert(with.end(), hole.begin(), hole.end());
  FillOutline(with, 0, 0, 8, 8, coverage);
  CHECK(coverage[3 * 8 + 3] == 0 && coverage[4 * 8 + 4] == 255);
  FillOutline(lines, 1, 1, 8, 8, coverage);
  CHECK(coverage[2 * 8 + 2] == 255 && coverage[2 * 8 + 0] == 191);
}
END;

TEST("random lists are drawn or refused") {
  std::mt19937 random(7);
  const std::vector<uint8_t> glyphs(500, 77);
  size_t refused = 0;
  for (int i = 0; i < Steps(20000); ++i) {
    std::vector<double> list(random() % 40);
    for (double& value : list) {
      switch (random() % 5) {
        case 0:
          value = static_cast<double>(random() % 6);
          break;
        case 1:
          value = static_cast<double>(random()) * (random() % 2 == 0 ? 1e30 : -1);
          break;
        case 2:
          value = random() % 9 == 0 ? NAN : -1.5;
          break;
        default:
          value = static_cast<double>(random() % 4000) / 100;
      }
    }
    try {
      Drawn(list, glyphs);
    } catch (const EngineError&) {
      ++refused;
    }
  }
  CHECK(refused > 0);
}
END;
