#include "../masks.h"

#include <algorithm>
#include <random>

#include "check.h"

using namespace radserve;
using namespace radserve::test;

namespace {

/// Region numbers by flooding from each seed in raster order: the definition.
std::vector<int32_t> Flooded(int rows, int columns, int neighbours, const std::vector<bool>& member) {
  std::vector<int32_t> labels(member.size(), 0);
  int32_t number = 0;
  for (size_t seed = 0; seed < member.size(); ++seed) {
    if (!member[seed] || labels[seed] != 0) continue;
    labels[seed] = ++number;
    std::vector<size_t> open = {seed};
    while (!open.empty()) {
      const int y = static_cast<int>(open.back()) / columns;
      const int x = static_cast<int>(open.back()) % columns;
      open.pop_back();
      for (int ny = std::max(0, y - 1); ny <= std::min(rows - 1, y + 1); ++ny) {
        for (int nx = std::max(0, x - 1); nx <= std::min(columns - 1, x + 1); ++nx) {
          const auto next = static_cast<size_t>(ny * columns + nx);
          if ((neighbours == 4 && ny != y && nx != x) || !member[next] || labels[next] != 0) continue;
          labels[next] = number;
          open.push_back(next);
        }
      }
    }
  }
  return labels;
}

TEST("regions are those that flooding finds, with the same numbers, sizes and bounds") {
  std::mt19937 random(5);
  for (int round = 0; round < 600; ++round) {
    const int rows = 1 + static_cast<int>(random() % 12);
    const int columns = 1 + static_cast<int>(random() % 12);
    std::vector<bool> member(static_cast<size_t>(rows * columns));
    const unsigned filled = random() % 101;
    for (size_t i = 0; i < member.size(); ++i) member[i] = random() % 100 < filled;
    const int neighbours = round % 2 == 0 ? 4 : 8;
    const Components found = FindComponents(rows, columns, neighbours, [&](size_t i) { return member[i]; });
    const auto expected = Flooded(rows, columns, neighbours, member);
    CHECK(found.labels == expected);
    std::vector<Components::Region> regions;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] == 0) continue;
      const auto number = static_cast<size_t>(expected[i]);
      while (regions.size() < number) regions.push_back({0, rows, columns, -1, -1, false});
      Components::Region& region = regions[number - 1];
      const int y = static_cast<int>(i) / columns;
      const int x = static_cast<int>(i) % columns;
      ++region.pixels;
      region.top = std::min(region.top, y);
      region.bottom = std::max(region.bottom, y);
      region.left = std::min(region.left, x);
      region.right = std::max(region.right, x);
      region.touches_border |= y == 0 || x == 0 || y == rows - 1 || x == columns - 1;
    }
    EQUAL(found.regions.size(), regions.size());
    for (size_t i = 0; i < regions.size() && i < found.regions.size(); ++i) {
      const auto& a = found.regions[i];
      const auto& b = regions[i];
      CHECK(a.pixels == b.pixels && a.top == b.top && a.bottom == b.bottom && a.left == b.left &&
            a.right == b.right && a.touches_border == b.touches_border);
    }
  }
}
END;

}  // namespace
