// Masks as they are made, against each pixel computed by itself from the definition in resample.h.
#include "postprocess/projection.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "check.h"
#include "postprocess/activation.h"

using namespace radserve;
using namespace radserve::test;

namespace {

/// One interpolated value: weighted along the rows first, then along the columns, sums in order
/// from zero.
float Interpolated(const float* plane, const Taps& rows, const Taps& columns, int map_columns,
                   size_t y, size_t x) {
  float sum = 0;
  for (int k = 0; k < columns.count[x]; ++k) {
    float mixed = 0;
    for (int j = 0; j < rows.count[y]; ++j) {
      const int at = (rows.first[y] + j) * map_columns + columns.first[x] + k;
      mixed += plane[at] * rows.weights[rows.start[y] + static_cast<size_t>(j)];
    }
    sum += mixed * columns.weights[columns.start[x] + static_cast<size_t>(k)];
  }
  return sum;
}

/// A map, where it goes, and what is to come out.
struct Scene {
  Axis rows, columns;
  std::vector<float> values;
  Tensor tensor;
  size_t channels = 1;
  /// Of each channel; several have the same.
  std::vector<uint8_t> labels;
  std::vector<double> thresholds;

  size_t pixels() const {
    return static_cast<size_t>(rows.output) * static_cast<size_t>(columns.output);
  }
  size_t samples() const {
    return static_cast<size_t>(rows.input) * static_cast<size_t>(columns.input);
  }

  /// Every interpolated value, a plane for each channel.
  std::vector<float> All() const {
    const Taps along_rows = MakeTaps(rows, Interpolation::kLinear);
    const Taps along_columns = MakeTaps(columns, Interpolation::kLinear);
    std::vector<float> all;
    for (size_t c = 0; c < channels; ++c) {
      for (size_t y = 0; y < along_rows.size(); ++y) {
        for (size_t x = 0; x < along_columns.size(); ++x) {
          all.push_back(Interpolated(values.data() + c * samples(), along_rows, along_columns,
                                     columns.input, y, x));
        }
      }
    }
    return all;
  }
};

/// The map is as large as the output, larger, or several times smaller; it may lie beyond it or
/// within it.
Axis AnyAxis(std::mt19937& random) {
  const int output = 1 + static_cast<int>(random() % 70);
  const int input = random() % 4 == 0   ? output
                    : random() % 3 == 0 ? 1 + static_cast<int>(random() % 40)
                                        : 1 + output / (2 + static_cast<int>(random() % 8));
  const double scale = static_cast<double>(input) / output;
  if (random() % 2 == 0) return {input, output, 0, scale};
  return {input, output, scale * (static_cast<int>(random() % 21) - 10),
          scale * (0.5 + (random() % 16) / 16.0)};
}

/// Fields as segmentations have them: smooth, in steps, noisy, or all the same.
float Field(std::mt19937& random, unsigned style, size_t i, size_t width) {
  const auto x = static_cast<float>(i % width);
  const auto y = static_cast<float>(i / width);
  const float smooth =
      0.5F + 0.5F * std::sin(x * 0.4F + static_cast<float>(style)) * std::cos(y * 0.3F);
  const float noise = static_cast<float>(random() % 1000) / 999;
  switch (style % 6) {
    case 0:
      return noise;
    case 1:
      return smooth > 0.5F ? 1 : 0;
    case 2:
      return 0.5F;
    case 3:
      return smooth > 0.5F ? 0.5F + noise * 1e-7F : 0.5F - noise * 1e-7F;
    case 4:
      return -0.0F;
    default:
      return smooth;
  }
}

Scene AnyScene(std::mt19937& random, size_t channels) {
  Scene s;
  s.rows = AnyAxis(random);
  s.columns = AnyAxis(random);
  s.channels = channels;
  for (size_t c = 0; c < channels; ++c) {
    const unsigned style = static_cast<unsigned>(random());
    for (size_t i = 0; i < s.samples(); ++i) {
      s.values.push_back(Field(random, style, i, static_cast<size_t>(s.columns.input)));
    }
    const double any[] = {0.5,
                          0,
                          1,
                          static_cast<double>(s.values.back()),
                          (random() % 1000) / 999.0,
                          std::nextafter(0.5, 1),
                          std::numeric_limits<double>::quiet_NaN(),
                          -std::numeric_limits<double>::infinity()};
    s.thresholds.push_back(any[random() % 8]);
    s.labels.push_back(static_cast<uint8_t>(c % 3 == 1 ? 0 : c % 251));
  }
  s.tensor = MakeTensor("y", Dtype::kFloat32,
                        {1, static_cast<int64_t>(channels), s.rows.input, s.columns.input});
  return s;
}

Maps MapsOf(Scene& s) {
  std::memcpy(s.tensor.data, s.values.data(), s.values.size() * sizeof(float));
  return Maps(s.tensor, s.channels, false);
}

/// The label of the highest of each pixel's values, the first of equal ones.
std::vector<uint8_t> HighestOf(const Scene& s, const std::vector<float>& all) {
  std::vector<uint8_t> labels;
  for (size_t i = 0; i < s.pixels(); ++i) {
    size_t highest = 0;
    for (size_t c = 1; c < s.channels; ++c) {
      if (all[c * s.pixels() + i] > all[highest * s.pixels() + i]) highest = c;
    }
    labels.push_back(s.labels[highest]);
  }
  return labels;
}

std::vector<uint8_t> StepsOf(const std::vector<float>& all, size_t from) {
  std::vector<uint8_t> steps;
  for (size_t i = from; i < all.size(); ++i) {
    steps.push_back(
        static_cast<uint8_t>(std::lround(std::clamp(static_cast<double>(all[i]), 0.0, 1.0) * 255)));
  }
  return steps;
}

/// Where each of the interpolated values reaches its threshold.
std::vector<uint8_t> OverThresholds(const Scene& s, const std::vector<float>& all) {
  std::vector<uint8_t> over;
  for (size_t i = 0; i < all.size(); ++i)
    over.push_back(all[i] >= static_cast<float>(s.thresholds[i / s.pixels()]) ? 1 : 0);
  return over;
}

/// The mask is the same with fractions and without them, and these are so many steps.
void CheckThresholds(Scene& s, Activation last, const std::vector<uint8_t>& expected,
                     const std::vector<uint8_t>& steps) {
  const Maps maps = MapsOf(s);
  std::vector<uint8_t> mask, beside, fractions;
  ProjectOverThresholds(maps, s.rows, s.columns, last, s.thresholds, mask, nullptr);
  CHECK(mask == expected);
  ProjectOverThresholds(maps, s.rows, s.columns, last, s.thresholds, beside, &fractions);
  CHECK(beside == expected);
  CHECK(fractions == steps);
}

void CheckHighest(Scene& s, Activation last, const std::vector<uint8_t>& expected,
                  const std::vector<uint8_t>& steps) {
  const Maps maps = MapsOf(s);
  std::vector<uint8_t> mask, beside, fractions;
  ProjectHighest(maps, s.rows, s.columns, last, s.labels, mask, nullptr);
  CHECK(mask == expected);
  ProjectHighest(maps, s.rows, s.columns, last, s.labels, beside, &fractions);
  CHECK(beside == expected);
  CHECK(fractions == steps);
}

TEST("thresholds decide each pixel as its own interpolated value does") {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    Scene s = AnyScene(random, 1 + random() % 3);
    const std::vector<float> all = s.All();
    CheckThresholds(s, Activation::kNone, OverThresholds(s, all), StepsOf(all, 0));
  }
}
END;

TEST("the label is that of the highest of each pixel's own interpolated values") {
  std::mt19937 random(12);
  for (int round = 0; round < 2000; ++round) {
    Scene s = AnyScene(random, 2 + random() % 4);
    const bool even = random() % 8 == 0;
    const float times = random() % 6 == 0   ? std::numeric_limits<float>::max()
                        : random() % 6 == 0 ? 1e-42F
                                            : 1;
    for (size_t i = 0; i < s.values.size(); ++i) s.values[i] = even ? 0.25F : s.values[i] * times;
    const std::vector<float> all = s.All();
    CheckHighest(s, Activation::kNone, HighestOf(s, all), StepsOf(all, s.pixels()));
  }
}
END;

TEST("of more channels than labels have numbers the highest is told as well") {
  std::mt19937 random(16);
  for (int round = 0; round < 40; ++round) {
    Scene s = AnyScene(random, 300);
    // Each is the highest somewhere, in several samples beside each other.
    for (size_t i = 0; i < s.values.size(); ++i) {
      const size_t channel = i / s.samples();
      const size_t highest = (i % s.samples()) / 3 * 7 % s.channels;
      s.values[i] = channel == highest ? 1 : s.values[i] / 2;
    }
    const std::vector<float> all = s.All();
    CheckHighest(s, Activation::kNone, HighestOf(s, all), StepsOf(all, s.pixels()));
  }
}
END;

TEST("logits are interpolated, and activated on the grid of the source") {
  std::mt19937 random(15);
  for (int round = 0; round < 1000; ++round) {
    Scene s = AnyScene(random, 2 + random() % 3);
    const float times = random() % 4 == 0 ? 1e30F : 24;
    for (float& value : s.values) value = (value - 0.5F) * times;
    std::vector<float> all = s.All();
    const std::vector<uint8_t> highest = HighestOf(s, all);
    std::vector<float> shares = all;
    SoftmaxPlanes(shares, s.pixels());
    Sigmoid(all);
    CheckThresholds(s, Activation::kSigmoid, OverThresholds(s, all), StepsOf(all, 0));
    CheckHighest(s, Activation::kSoftmax, highest, StepsOf(shares, s.pixels()));
  }
}
END;

TEST(
    "channels as high as floats go are told apart as each pixel's own values are, though these "
    "overflow") {
  std::mt19937 random(14);
  constexpr float kMost = std::numeric_limits<float>::max();
  for (int round = 0; round < 2000; ++round) {
    Scene s = AnyScene(random, 3);
    const float levels[] = {0.999F * kMost, kMost, -kMost};
    for (size_t i = 0; i < s.values.size(); ++i) s.values[i] = levels[i / s.samples()];
    const Maps maps = MapsOf(s);
    std::vector<uint8_t> mask;
    ProjectHighest(maps, s.rows, s.columns, Activation::kNone, s.labels, mask, nullptr);
    CHECK(mask == HighestOf(s, s.All()));
  }
}
END;

TEST("labels go to the pixels whose centres they hold") {
  std::mt19937 random(13);
  for (int round = 0; round < 500; ++round) {
    const Axis rows = AnyAxis(random);
    const Axis columns = AnyAxis(random);
    std::vector<uint8_t> labels(static_cast<size_t>(rows.input * columns.input));
    for (uint8_t& label : labels) label = static_cast<uint8_t>(random() % 5);
    const auto under = [](const Axis& axis, int i) {
      const double centre =
          std::clamp(axis.offset + (i + 0.5) * axis.scale, 0.0, static_cast<double>(axis.input));
      return std::clamp(static_cast<int>(std::floor(centre)), 0, axis.input - 1);
    };
    std::vector<uint8_t> expected;
    for (int y = 0; y < rows.output; ++y) {
      for (int x = 0; x < columns.output; ++x) {
        expected.push_back(
            labels[static_cast<size_t>(under(rows, y) * columns.input + under(columns, x))]);
      }
    }
    CHECK(ProjectNearest(labels, rows, columns) == expected);
  }
}
END;

}  // namespace
