#include "resample/ends.h"

#include <cstdlib>

#include "check.h"

using namespace radserve;

namespace {

struct Expected {
  int low;
  int high;
  double high_weight;
};

void Same(const std::vector<EndsTap>& found, const std::vector<Expected>& expected) {
  EQUAL(found.size(), expected.size());
  for (size_t i = 0; i < expected.size() && i < found.size(); ++i) {
    EQUAL(found[i].low, expected[i].low);
    EQUAL(found[i].high, expected[i].high);
    EQUAL(found[i].high_weight, expected[i].high_weight);
    EQUAL(found[i].low_weight, 1 - expected[i].high_weight);
  }
}

TEST("the first and the last voxel of both grids lie at the same places") {
  Same(MakeEndsTaps(5, 3), {{0, 1, 0}, {2, 3, 0}, {4, 4, 0}});
  Same(MakeEndsTaps(3, 5), {{0, 1, 0}, {0, 1, 0.5}, {1, 2, 0}, {1, 2, 0.5}, {2, 2, 0}});
  Same(MakeEndsTaps(3, 3), {{0, 1, 0}, {1, 2, 0}, {2, 2, 0}});
}
END;

TEST("a single output is the first input, and a single input is all outputs") {
  Same(MakeEndsTaps(4, 1), {{0, 1, 0}});
  Same(MakeEndsTaps(1, 3), {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}});
  EQUAL(NearestByEnds(0, 4, 1), 0);
  EQUAL(NearestByEnds(2, 1, 3), 0);
}
END;

TEST("of two inputs as near as each other the higher one is the nearest") {
  const std::vector<int> expected = {0, 1, 1, 2, 2};
  for (int i = 0; i < 5; ++i) EQUAL(NearestByEnds(i, 3, 5), expected[static_cast<size_t>(i)]);
}
END;

TEST("whatever the sides are, no tap lies outside, and none before the one before") {
  for (int input = 1; input <= 130; ++input) {
    for (int output = 1; output <= 130; ++output) {
      const std::vector<EndsTap> taps = MakeEndsTaps(input, output);
      double before = -1;
      int nearest_before = 0;
      for (int i = 0; i < output; ++i) {
        const EndsTap& tap = taps[static_cast<size_t>(i)];
        CHECK(tap.low >= 0 && tap.high < input);
        CHECK(tap.high == tap.low || tap.high == tap.low + 1);
        CHECK(tap.low_weight > 0 && tap.low_weight <= 1 && tap.high_weight >= 0);
        const double at = tap.low * tap.low_weight + tap.high * tap.high_weight;
        CHECK(at >= before);
        before = at;
        const int nearest = NearestByEnds(i, input, output);
        CHECK(nearest >= nearest_before && nearest < input);
        CHECK(std::abs(nearest - at) < 0.5 + 1e-9);
        nearest_before = nearest;
      }
      if (output > 1) NEAR(before, input - 1, 1e-9);
      if (output > 1) EQUAL(nearest_before, input - 1);
    }
  }
}
END;

}  // namespace
