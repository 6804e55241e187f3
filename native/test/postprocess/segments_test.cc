#include "postprocess/segments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "check.h"
#include "steps.h"

using namespace radserve;
using namespace radserve::test;

namespace {

struct Made {
  size_t slices, rows, columns, labels;
  std::vector<uint8_t> mask;
  std::vector<std::vector<uint8_t>> pixels;
  SegmentedImage image;

  uint8_t At(int z, int y, int x) const {
    const bool inside = z >= 0 && y >= 0 && x >= 0 && z < static_cast<int>(slices) &&
                        y < static_cast<int>(rows) && x < static_cast<int>(columns);
    return inside ? mask[(static_cast<size_t>(z) * rows + static_cast<size_t>(y)) * columns +
                         static_cast<size_t>(x)]
                  : uint8_t{0};
  }
};

/// Lumps of labels, so that runs are long and short.
Made Random(std::mt19937& random, size_t word_bytes) {
  Made made{1 + random() % 5, 1 + random() % 9, 1 + random() % 30, 1 + random() % 3, {}, {}, {}};
  made.mask.resize(made.slices * made.rows * made.columns);
  for (size_t i = 0; i < made.mask.size(); ++i) {
    made.mask[i] = i == 0 || random() % 4 == 0 ? static_cast<uint8_t>(random() % (made.labels + 1))
                                               : made.mask[i - 1];
  }
  made.image.mask = made.mask;
  made.image.labels = made.labels;
  made.image.rows = made.rows;
  made.image.columns = made.columns;
  made.image.word_bytes = word_bytes;
  made.image.spacing = {0.7, 0.9, 2.5};
  for (size_t z = 0; z < made.slices; ++z) {
    std::vector<uint8_t> pixels(made.rows * made.columns * word_bytes);
    for (uint8_t& byte : pixels) byte = static_cast<uint8_t>(random() % 3);
    made.pixels.push_back(pixels);
    made.image.meanings.push_back(static_cast<double>(z / 2));
  }
  for (const std::vector<uint8_t>& pixels : made.pixels) made.image.slices.emplace_back(pixels);
  return made;
}

/// Places half way between a voxel of the label and a neighbour that is none, in half steps.
std::vector<std::array<int, 3>> Surface(const Made& made, int label) {
  std::vector<std::array<int, 3>> places;
  for (int z = 0; z < static_cast<int>(made.slices); ++z) {
    for (int y = 0; y < static_cast<int>(made.rows); ++y) {
      for (int x = 0; x < static_cast<int>(made.columns); ++x) {
        if (made.At(z, y, x) != label) continue;
        for (const int way : {-1, 1}) {
          if (made.At(z, y, x + way) != label) places.push_back({2 * x + way, 2 * y, 2 * z});
          if (made.At(z, y + way, x) != label) places.push_back({2 * x, 2 * y + way, 2 * z});
          if (made.At(z + way, y, x) != label) places.push_back({2 * x, 2 * y, 2 * z + way});
        }
      }
    }
  }
  return places;
}

double Longest(const Made& made, int label, bool in_plane) {
  const std::vector<std::array<int, 3>> places = Surface(made, label);
  double longest = 0;
  for (const auto& a : places) {
    for (const auto& b : places) {
      // Half way between two slices lies in none
      if (in_plane && (a[2] != b[2] || a[2] % 2 != 0)) continue;
      double square = 0;
      for (size_t i = 0; i < 3; ++i) {
        const double d = (a[i] - b[i]) * made.image.spacing[i] / 2;
        square += d * d;
      }
      longest = std::max(longest, square);
    }
  }
  return std::sqrt(longest);
}

std::array<double, 256> Cells(const Made& made, int label) {
  std::array<double, 256> cells{};
  for (int z = -1; z < static_cast<int>(made.slices); ++z) {
    for (int y = -1; y < static_cast<int>(made.rows); ++y) {
      for (int x = -1; x < static_cast<int>(made.columns); ++x) {
        size_t pattern = 0;
        for (int i = 0; i < 8; ++i) {
          if (made.At(z + (i >> 2), y + (i >> 1 & 1), x + (i & 1)) == label)
            pattern |= size_t{1} << i;
        }
        if (pattern != 0 && pattern != 255) ++cells[pattern];
      }
    }
  }
  return cells;
}

TEST("values, cells and distances of segments are those that every voxel counted by itself gives") {
  std::mt19937 random(3);
  for (int step = 0; step < Steps(300); ++step) {
    const Made made = Random(random, size_t{1} << (step % 4));
    const std::vector<SegmentCounts> all = CountSegments(made.image, true);
    EQUAL(all.size(), made.labels);
    for (size_t label = 1; label <= made.labels; ++label) {
      const SegmentCounts& found = all[label - 1];
      std::map<std::pair<double, uint64_t>, double> expected;
      for (size_t i = 0; i < made.mask.size(); ++i) {
        if (made.mask[i] != label) continue;
        const size_t z = i / (made.rows * made.columns);
        uint64_t word = 0;
        std::memcpy(&word,
                    made.pixels[z].data() + i % (made.rows * made.columns) * made.image.word_bytes,
                    made.image.word_bytes);
        ++expected[{made.image.meanings[z], word}];
      }
      std::map<std::pair<double, uint64_t>, double> words;
      for (const WordCounts& some : found.words) {
        CHECK(std::is_sorted(some.words.begin(), some.words.end()));
        for (size_t i = 0; i < some.words.size(); ++i)
          words[{some.meaning, some.words[i]}] += some.counts[i];
      }
      CHECK(words == expected);
      const int number = static_cast<int>(label);
      CHECK(found.cells == Cells(made, number));
      NEAR(found.in_plane, Longest(made, number, true), 1e-9);
      NEAR(found.anywhere, Longest(made, number, false), 1e-9);
    }
  }
}
END;

TEST("labels that overlap are counted one by one, and nothing of what is not asked for") {
  std::mt19937 random(4);
  for (int step = 0; step < Steps(100); ++step) {
    Made made = Random(random, 2);
    std::vector<uint8_t> planes;
    for (size_t label = 1; label <= made.labels; ++label) {
      for (const uint8_t value : made.mask) planes.push_back(value == label);
    }
    const std::vector<SegmentCounts> apart = CountSegments(made.image, true);
    made.image.mask = planes;
    made.image.overlapping = true;
    const std::vector<SegmentCounts> over = CountSegments(made.image, true);
    for (size_t i = 0; i < made.labels; ++i) {
      CHECK(apart[i].cells == over[i].cells);
      EQUAL(apart[i].anywhere, over[i].anywhere);
      EQUAL(apart[i].words.size(), over[i].words.size());
    }
    for (std::span<const uint8_t>& slice : made.image.slices) slice = {};
    for (const SegmentCounts& none : CountSegments(made.image, false)) {
      CHECK(none.words.empty());
      EQUAL(none.anywhere, 0.0);
      CHECK(none.cells == (std::array<double, 256>{}));
    }
  }
}
END;

TEST("of words longer than two bytes there are so many that they are not kept") {
  const size_t side = 4096;
  std::vector<uint8_t> mask(side * side + side, 1);
  std::vector<uint8_t> pixels(mask.size() * 4);
  SegmentedImage image;
  image.mask = mask;
  image.labels = 1;
  image.rows = side + 1;
  image.columns = side;
  image.word_bytes = 4;
  image.slices = {pixels};
  image.meanings = {0};
  CHECK(CountSegments(image, false)[0].words.empty());
  mask.resize(side * side);
  image.mask = mask;
  image.rows = side;
  image.slices = {std::span(pixels).first(mask.size() * 4)};
  const std::vector<WordCounts> words = CountSegments(image, false)[0].words;
  EQUAL(words.size(), 1u);
  EQUAL(words[0].counts[0], static_cast<double>(side * side));
}
END;

}  // namespace
