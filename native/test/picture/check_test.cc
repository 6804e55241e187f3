// Pages that show their masks, and each way in which they may not.
#include "picture/check.h"

#include <vector>

#include "base/error.h"
#include "check.h"

using namespace radserve;
using namespace radserve::test;

namespace {

struct Sizes {
  size_t rows, columns, width, height;
};

/// An area at the upper left and a bar at the right border, unlike in every direction.
std::vector<uint8_t> Mask(const Sizes& at) {
  std::vector<uint8_t> mask(at.rows * at.columns);
  for (size_t y = 0; y < at.rows; ++y) {
    for (size_t x = 0; x < at.columns; ++x) {
      const bool area =
          y * 10 > at.rows && y * 2 < at.rows && x * 10 > at.columns && x * 3 < at.columns;
      mask[y * at.columns + x] = area ? 1 : x * 10 > 9 * at.columns && y * 10 < at.rows ? 2 : 0;
    }
  }
  return mask;
}

template <typename From>
std::vector<uint8_t> Moved(const std::vector<uint8_t>& mask, const Sizes& at, const From& from) {
  std::vector<uint8_t> moved(mask.size());
  for (size_t y = 0; y < at.rows; ++y) {
    for (size_t x = 0; x < at.columns; ++x) moved[y * at.columns + x] = mask[from(y, x)];
  }
  return moved;
}

void FaultsAreCaught(const Sizes& at) {
  const std::vector<uint8_t> mask = Mask(at);
  std::vector<uint8_t> rgb;
  const size_t columns = std::min(at.columns, at.width), rows = std::min(at.rows, at.height);
  for (size_t i = 0; i < rows * columns * 3; ++i)
    rgb.push_back(static_cast<uint8_t>(40 + i / 3 * 7 % 60));
  const auto panel = [&](const std::vector<uint8_t>& values) {
    return Panel{
        {columns, rows, rgb},
        9,
        5,
        at.width,
        at.height,
        {{{{at.rows, at.columns, values, {{240, 80, 60}, {90, 200, 250}}, {100, 10}}}, {}}}};
  };
  const auto fault = [&](const std::vector<uint8_t>& drawn) {
    Page page;
    page.width = at.width + 20;
    page.height = at.height + 20;
    page.opacity = 0.3;
    page.panels = {panel(drawn)};
    std::vector<uint8_t> pixels(page.width * page.height * 3);
    ComposePage(page, pixels);
    return CheckPanel({page.width, page.height, pixels}, panel(mask));
  };
  CHECK(fault(mask) == PictureFault::kNone);
  const size_t far = std::max(at.rows, at.columns) / 12 + 1;
  CHECK(fault(Moved(mask, at, [&](size_t y, size_t x) {
          return y * at.columns + at.columns - 1 - x;
        })) == PictureFault::kBeside);
  CHECK(fault(Moved(mask, at, [&](size_t y, size_t x) {
          return (at.rows - 1 - y) * at.columns + x;
        })) == PictureFault::kBeside);
  CHECK(fault(Moved(mask, at, [&](size_t y, size_t x) {
          return y * at.columns + (x + far) % at.columns;
        })) == PictureFault::kBeside);
  CHECK(fault(std::vector<uint8_t>(mask.size())) == PictureFault::kLeftOut);
  std::vector<uint8_t> without = mask;
  for (uint8_t& value : without) value = value == 1 ? 0 : value;
  CHECK(fault(without) == PictureFault::kLeftOut);
}

}  // namespace

TEST("a page is compared with its masks, and each fault is caught") {
  for (const Sizes& at :
       {Sizes{40, 30, 600, 800}, {200, 300, 300, 200}, {900, 700, 350, 450}, {64, 64, 128, 192}}) {
    FaultsAreCaught(at);
  }
}
END;

TEST("what is no panel is refused") {
  const std::vector<uint8_t> rgb(48), page(300);
  bool refused = false;
  try {
    CheckPanel({10, 10, page}, {{4, 4, rgb}, 7, 0, 4, 4, {}});
  } catch (const EngineError& error) {
    refused = error.code() == "internal";
  }
  CHECK(refused);
}
END;
