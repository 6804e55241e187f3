#include "postprocess/masks.h"

#include <algorithm>
#include <functional>
#include <random>
#include <string>

#include "check.h"
#include "postprocess/regions.h"

using namespace radserve;
using namespace radserve::test;

namespace {

/// `slices` is 0 for an image.
struct Sides {
  int slices, rows, columns;
  size_t pixels() const { return static_cast<size_t>(std::max(1, slices) * rows * columns); }
};

/// A place in an image or volume, and the places beside it.
struct Place {
  int z, y, x;
};

Place PlaceOf(const Sides& s, size_t i) {
  const int at = static_cast<int>(i);
  return {at / (s.rows * s.columns), at / s.columns % s.rows, at % s.columns};
}

std::vector<size_t> Beside(const Sides& s, size_t i, bool corners) {
  const Place p = PlaceOf(s, i);
  std::vector<size_t> beside;
  for (size_t j = 0; j < s.pixels(); ++j) {
    const Place q = PlaceOf(s, j);
    const int dz = std::abs(p.z - q.z), dy = std::abs(p.y - q.y), dx = std::abs(p.x - q.x);
    if (i != j && (corners ? std::max({dz, dy, dx}) == 1 : dz + dy + dx == 1)) beside.push_back(j);
  }
  return beside;
}

/// Region numbers from 1 by flooding from each seed in raster order: the definition.
std::vector<int> Flooded(const Sides& s, const std::vector<bool>& member, bool corners) {
  std::vector<int> labels(member.size(), 0);
  int number = 0;
  for (size_t seed = 0; seed < member.size(); ++seed) {
    if (!member[seed] || labels[seed] != 0) continue;
    labels[seed] = ++number;
    std::vector<size_t> open = {seed};
    while (!open.empty()) {
      const size_t at = open.back();
      open.pop_back();
      for (const size_t next : Beside(s, at, corners)) {
        if (!member[next] || labels[next] != 0) continue;
        labels[next] = number;
        open.push_back(next);
      }
    }
  }
  return labels;
}

struct Picture {
  Sides sides;
  std::vector<uint8_t> pixels, padding;
  MaskView View() { return {pixels, sides.slices, sides.rows, sides.columns, padding}; }
};

/// Labels 0 to 2, alone or in stripes; with padding now and then.
Picture Any(std::mt19937& random, bool volume) {
  const unsigned least = 1 + random() % 3;
  const auto upto = [&](unsigned most) { return static_cast<int>(least + random() % most); };
  Picture p{{volume ? upto(4) : 0, upto(6), volume ? upto(5) : upto(18)}, {}, {}};
  const unsigned filled = random() % 101;
  const unsigned stripe = 1 + random() % 4;
  for (size_t i = 0; i < p.sides.pixels(); ++i) {
    const bool repeats = i % stripe != 0 && !p.pixels.empty();
    const auto fresh = static_cast<uint8_t>(random() % 100 < filled ? 1 + (random() % 5 == 0) : 0);
    p.pixels.push_back(repeats ? p.pixels.back() : fresh);
  }
  if (random() % 3 == 0) {
    for (size_t i = 0; i < p.pixels.size(); ++i) p.padding.push_back(random() % 12 == 0 ? 1 : 0);
  }
  return p;
}

std::vector<bool> MembersOf(const Picture& p, bool equal) {
  std::vector<bool> member;
  for (const uint8_t v : p.pixels) member.push_back((v == 1) == equal);
  return member;
}

bool OnBorder(const Sides& s, size_t i, bool ends) {
  const Place p = PlaceOf(s, i);
  return p.y == 0 || p.x == 0 || p.y == s.rows - 1 || p.x == s.columns - 1 ||
         (ends && s.slices > 1 && (p.z == 0 || p.z == s.slices - 1));
}

/// For each region, from 1 on, whether one of its pixels is so.
std::vector<bool> Any(const std::vector<int>& regions, const std::function<bool(size_t)>& is) {
  std::vector<bool> any(regions.size() + 1, false);
  for (size_t i = 0; i < regions.size(); ++i) {
    if (regions[i] != 0 && is(i)) any[static_cast<size_t>(regions[i])] = true;
  }
  return any;
}

std::vector<int64_t> Sizes(const std::vector<int>& regions) {
  std::vector<int64_t> sizes(regions.size() + 1, 0);
  for (const int region : regions) sizes[static_cast<size_t>(region)] += region != 0;
  return sizes;
}

void Keep(Picture& p, const std::vector<int>& regions,
          const std::function<bool(size_t region)>& stays) {
  for (size_t i = 0; i < regions.size(); ++i) {
    if (regions[i] != 0 && !stays(static_cast<size_t>(regions[i]))) p.pixels[i] = 0;
  }
}

/// The steps for label 1, word by word as masks.h describes them.
enum class Step { kDropBorder, kLargest, kSmall, kFill };

void Defined(Step step, Picture& p) {
  const std::vector<int> regions = Flooded(p.sides, MembersOf(p, step != Step::kFill), false);
  const std::vector<int64_t> sizes = Sizes(regions);
  const auto padded = [&](size_t i) { return !p.padding.empty() && p.padding[i] != 0; };
  if (step == Step::kDropBorder) {
    const std::vector<bool> drop = Any(regions, [&](size_t i) {
      const auto beside = Beside(p.sides, i, false);
      return OnBorder(p.sides, i, false) || padded(i) ||
             std::any_of(beside.begin(), beside.end(), padded);
    });
    Keep(p, regions, [&](size_t region) { return !drop[region]; });
  } else if (step == Step::kLargest) {
    const auto largest =
        static_cast<size_t>(std::max_element(sizes.begin(), sizes.end()) - sizes.begin());
    Keep(p, regions, [&](size_t region) { return region == largest; });
  } else if (step == Step::kSmall) {
    Keep(p, regions, [&](size_t region) { return sizes[region] >= 3; });
  } else {
    const std::vector<bool> open =
        Any(regions, [&](size_t i) { return OnBorder(p.sides, i, true); });
    for (size_t i = 0; i < regions.size(); ++i) {
      const bool hole = regions[i] != 0 && !open[static_cast<size_t>(regions[i])];
      if (hole && p.pixels[i] == 0 && !padded(i)) p.pixels[i] = 1;
    }
  }
}

void Product(Step step, const MaskView& mask) {
  if (step == Step::kDropBorder) return DropBorderConnected(mask, 1);
  if (step == Step::kLargest) return KeepLargestComponent(mask, 1);
  if (step == Step::kSmall) return DropSmallComponents(mask, 1, 3);
  FillHoles(mask, 1);
}

TEST("regions are those that flooding finds, with the same numbers") {
  std::mt19937 random(5);
  for (int round = 0; round < 600; ++round) {
    const Picture p = Any(random, round % 3 == 0);
    const bool equal = random() % 2 == 0;
    const bool corners = random() % 2 == 0;
    const Regions found = FindRegions(p.pixels, p.sides.rows, p.sides.columns, 1,
                                      equal ? Members::kEqual : Members::kOthers,
                                      corners ? Neighbours::kCorners : Neighbours::kEdges);
    std::vector<int> labels(p.pixels.size(), 0);
    found.ForRuns([&](size_t line, size_t run) {
      const size_t first = line * static_cast<size_t>(p.sides.columns);
      for (int x = found.runs[run].begin; x < found.runs[run].end; ++x) {
        labels[first + static_cast<size_t>(x)] = static_cast<int>(found.region[run]) + 1;
      }
    });
    CHECK(labels == Flooded(p.sides, MembersOf(p, equal), corners));
    EQUAL(found.count, labels.empty()
                           ? 0u
                           : static_cast<size_t>(*std::max_element(labels.begin(), labels.end())));
  }
}
END;

TEST("steps on images and volumes do what their definitions say") {
  std::mt19937 random(6);
  for (int round = 0; round < 4000; ++round) {
    Picture p = Any(random, round % 3 == 0);
    Picture q = p;
    const auto step = static_cast<Step>(round % 4);
    Product(step, p.View());
    Defined(step, q);
    CHECK(p.pixels == q.pixels);
  }
}
END;

TEST("labels are counted") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint8_t> pixels(random() % 60);
    const unsigned repeats = 1 + random() % 12;
    for (size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = i % repeats == 0 ? static_cast<uint8_t>(random() % 4) : pixels[i - 1];
    }
    std::vector<int64_t> counts = {0, 10, 100};
    std::vector<int64_t> expected = counts;
    for (const uint8_t v : pixels) {
      if (v != 0) ++expected[v - 1u];
    }
    CountLabels(pixels, counts);
    CHECK(counts == expected);
  }
}
END;

}  // namespace
