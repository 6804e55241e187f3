#include "resample/resample.h"

#include <limits>
#include <numeric>

#include "check.h"

using namespace radserve;
using namespace radserve::test;

namespace {

Axis Whole(int input, int output) {
  return {input, output, 0, static_cast<double>(input) / output};
}

std::vector<float> Line(const std::vector<float>& in, int output, Interpolation how) {
  return ResamplePlane(in.data(), Whole(1, 1), Whole(static_cast<int>(in.size()), output), how);
}

void Same(const std::vector<float>& found, const std::vector<double>& expected,
          double tolerance = 1e-6) {
  EQUAL(found.size(), expected.size());
  for (size_t i = 0; i < expected.size() && i < found.size(); ++i)
    NEAR(found[i], expected[i], tolerance);
}

TEST("area averages the pixels covered") {
  Same(Line({1, 2, 3, 4, 5, 6}, 2, Interpolation::kArea), {2, 5});
  // 5 to 2: each output covers two and a half pixels.
  Same(Line({1, 2, 3, 4, 5}, 2, Interpolation::kArea), {(1 + 2 + 1.5) / 2.5, (1.5 + 4 + 5) / 2.5});
}
END;

TEST("halving both ways is the mean of four, and what one way after the other gives") {
  const int rows = 6, columns = 10;
  std::vector<float> in(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i * i % 37) * 0.3F - 4;
  const std::vector<float> both =
      ResamplePlane(in.data(), Whole(rows, 3), Whole(columns, 5), Interpolation::kArea);
  const std::vector<float> across =
      ResamplePlane(in.data(), Whole(rows, rows), Whole(columns, 5), Interpolation::kArea);
  const std::vector<float> down =
      ResamplePlane(across.data(), Whole(rows, 3), Whole(5, 5), Interpolation::kArea);
  Same(both, {down.begin(), down.end()}, 1e-6);
  for (size_t y = 0; y < 3; ++y) {
    for (size_t x = 0; x < 5; ++x) {
      const size_t at = 2 * y * columns + 2 * x;
      NEAR(both[y * 5 + x], (in[at] + in[at + 1] + in[at + columns] + in[at + columns + 1]) / 4,
           1e-6);
    }
  }
  // A crop that begins inside halves from there
  const std::vector<float> crop =
      ResamplePlane(in.data(), {rows, 2, 1, 2}, {columns, 4, 1, 2}, Interpolation::kArea);
  NEAR(crop[0], (in[11] + in[12] + in[21] + in[22]) / 4, 1e-6);
}
END;

TEST("linear is half-pixel centred and holds the border") {
  // numpy: interp((arange(4) + .5) / 2 - .5, [0, 1], [0, 10])
  Same(Line({0, 10}, 4, Interpolation::kLinear), {0, 2.5, 7.5, 10});
  // Shrinking by two widens the triangle to four pixels: weights 1, 3, 3, 1 of 8; at the border 3,
  // 3, 1 of 7.
  Same(Line({8, 0, 0, 0, 0, 8}, 3, Interpolation::kLinear), {24 / 7.0, 0, 24 / 7.0});
  Same(Line({0, 0, 8, 0, 0, 0, 0, 0}, 4, Interpolation::kLinear), {8 / 7.0, 3, 0, 0});
}
END;

TEST("cubic is Catmull-Rom") {
  // At a quarter between pixels: weights -9, 111, 29, -3 of 128.
  const std::vector<float> out = Line({0, 0, 128, 0, 0, 0}, 12, Interpolation::kCubic);
  NEAR(out[4], 111, 1e-4);
  NEAR(out[5], 111, 1e-4);
  NEAR(out[3], 29, 1e-4);
  NEAR(out[2], -9 * 128 / 131.0, 1e-4);  // One tap lies outside; the others share its weight.
  NEAR(out[7], -9, 1e-4);
}
END;

TEST("nearest takes the pixel under the centre") {
  Same(Line({1, 2, 3, 4}, 2, Interpolation::kNearest), {2, 4});
  Same(Line({1, 2}, 4, Interpolation::kNearest), {1, 1, 2, 2});
}
END;

TEST("the same grid gives the same bits") {
  std::vector<float> in(35);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i) * 0.37f - 3;
  for (const auto how : {Interpolation::kArea, Interpolation::kLinear, Interpolation::kCubic,
                         Interpolation::kNearest}) {
    CHECK(ResamplePlane(in.data(), Whole(5, 5), Whole(7, 7), how) == in);
  }
}
END;

TEST("a part of the same grid is copied, and an infinity stays where it is") {
  std::vector<float> in(35);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i) * 0.37f - 3;
  in[2 * 7 + 4] = std::numeric_limits<float>::infinity();
  std::vector<float> part;
  for (size_t y = 1; y < 4; ++y)
    part.insert(part.end(), in.begin() + y * 7 + 2, in.begin() + y * 7 + 6);
  for (const auto how : {Interpolation::kArea, Interpolation::kLinear, Interpolation::kCubic,
                         Interpolation::kNearest}) {
    CHECK(ResamplePlane(in.data(), {5, 3, 1, 1}, {7, 4, 2, 1}, how) == part);
  }
}
END;

TEST("weights sum to one, stay inside and move on, for any size") {
  for (const auto how : {Interpolation::kArea, Interpolation::kLinear, Interpolation::kCubic,
                         Interpolation::kNearest}) {
    for (int input = 1; input <= 40; input += 3) {
      for (int output = 1; output <= 90; output += 7) {
        for (const double shift : {0.0, -3.3, 2.25}) {
          const Taps taps =
              MakeTaps({input, output, shift, static_cast<double>(input) / output}, how);
          int first = 0;
          int end = 0;
          for (size_t i = 0; i < taps.size(); ++i) {
            const auto begin = taps.weights.begin() + static_cast<ptrdiff_t>(taps.start[i]);
            NEAR(std::accumulate(begin, begin + taps.count[i], 0.0), 1, 1e-5);
            CHECK(taps.first[i] >= first && taps.first[i] + taps.count[i] >= end);
            CHECK(taps.count[i] >= 1 && taps.first[i] + taps.count[i] <= input);
            first = taps.first[i];
            end = taps.first[i] + taps.count[i];
          }
        }
      }
    }
  }
}
END;

TEST("both axes agree with one after the other") {
  std::vector<float> in(12 * 9);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>((i * 7919) % 101);
  const auto both = ResamplePlane(in.data(), Whole(12, 5), Whole(9, 14), Interpolation::kLinear);
  const auto rows = ResamplePlane(in.data(), Whole(12, 5), Whole(9, 9), Interpolation::kLinear);
  const auto then = ResamplePlane(rows.data(), Whole(5, 5), Whole(9, 14), Interpolation::kLinear);
  for (size_t i = 0; i < both.size(); ++i) NEAR(both[i], then[i], 1e-4);
}
END;

TEST("each source row is asked for once, in order, and only if it counts") {
  std::vector<int> asked;
  const Taps rows = MakeTaps({10, 2, 4, 2}, Interpolation::kArea);
  Resample(
      rows, MakeTaps(Whole(1, 1), Interpolation::kArea), 1, 1,
      [&](int row, float* const* out) {
        asked.push_back(row);
        out[0][0] = static_cast<float>(row);
      },
      [&](int row, const float* const* out) { NEAR(out[0][0], row == 0 ? 4.5 : 6.5, 1e-6); });
  CHECK((asked == std::vector<int>{4, 5, 6, 7}));
}
END;

}  // namespace
