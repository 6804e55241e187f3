// Pages whose pixels are known, and threads that compose the same page.
#include "picture/page.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "picture/marks.h"

using namespace radserve;
using namespace radserve::test;

namespace {

constexpr size_t kWidth = 70, kHeight = 60;

struct Sheet {
  std::vector<uint8_t> rgb;
  const uint8_t* at(size_t x, size_t y) const { return rgb.data() + (y * kWidth + x) * 3; }
};

Sheet Compose(const Page& page) {
  Sheet sheet{std::vector<uint8_t>(page.width * page.height * 3)};
  ComposePage(page, sheet.rgb);
  return sheet;
}

bool Is(const uint8_t* pixel, const Rgb& colour) {
  return std::equal(colour.begin(), colour.end(), pixel);
}

std::vector<uint8_t> Grey(size_t pixels, uint8_t value) {
  return std::vector<uint8_t>(3 * pixels, value);
}

bool Refuses(const Page& page) {
  try {
    Compose(page);
  } catch (const EngineError& error) {
    return error.code() == "internal";
  }
  return false;
}

Page PageOf(Panel panel) {
  Page page;
  page.width = kWidth;
  page.height = kHeight;
  page.background = {1, 2, 3};
  page.opacity = 0.3;
  page.panels.push_back(std::move(panel));
  return page;
}

/// A square of label 1 in the middle of 20 x 20 pixels.
std::vector<uint8_t> Square() {
  std::vector<uint8_t> mask(400);
  for (size_t y = 5; y < 15; ++y) {
    for (size_t x = 5; x < 15; ++x) mask[y * 20 + x] = 1;
  }
  return mask;
}

}  // namespace

TEST("pictures grow by whole pixels") {
  std::vector<uint8_t> rgb = Grey(6, 0);
  for (size_t i = 0; i < rgb.size(); ++i) rgb[i] = static_cast<uint8_t>(10 * i);
  const Sheet sheet = Compose(PageOf({{3, 2, rgb}, 5, 7, 12, 10, {}}));
  for (size_t y = 0; y < kHeight; ++y) {
    for (size_t x = 0; x < kWidth; ++x) {
      if (x < 5 || x >= 17 || y < 7 || y >= 17) {
        CHECK(Is(sheet.at(x, y), {1, 2, 3}));
      } else {
        const size_t source = (y - 7) / 5 * 3 + (x - 5) / 4;
        CHECK(std::equal(rgb.begin() + static_cast<ptrdiff_t>(3 * source),
                         rgb.begin() + static_cast<ptrdiff_t>(3 * source + 3), sheet.at(x, y)));
      }
    }
  }
}
END;

TEST("masks are tinted, and outlined in the full colour") {
  const std::vector<uint8_t> mask = Square(), rgb = Grey(400, 90);
  const Rgb colour = {86, 180, 233};
  const Sheet sheet =
      Compose(PageOf({{20, 20, rgb}, 10, 10, 20, 20, {{{{20, 20, mask, {colour}, {100}}}, {}}}}));
  for (size_t y = 0; y < 20; ++y) {
    for (size_t x = 0; x < 20; ++x) {
      const bool inside = x >= 5 && x < 15 && y >= 5 && y < 15;
      const bool edge = inside && (x == 5 || x == 14 || y == 5 || y == 14);
      const Rgb expected = edge     ? colour
                           : inside ? Tinted({90, 90, 90}, colour, 77)
                                    : Rgb{90, 90, 90};
      CHECK(Is(sheet.at(10 + x, 10 + y), expected));
    }
  }
}
END;

TEST("tints mix light") {
  for (int v = 0; v < 256; ++v) {
    const auto grey = static_cast<uint8_t>(v);
    const Rgb under = {grey, grey, grey};
    CHECK(Tinted(under, {1, 2, 3}, 0) == under);
    CHECK((Tinted(under, {86, 180, 233}, 255) == Rgb{86, 180, 233}));
  }
  // Half of white's light over black is 188 in sRGB, and not 128
  CHECK((Tinted({0, 0, 0}, {255, 255, 255}, 128)[0] == 188));
}
END;

TEST("nothing vanishes when a mask shrinks") {
  std::vector<uint8_t> mask(400 * 400, 1);
  mask[123 * 400 + 321] = 2;
  const std::vector<uint8_t> rgb = Grey(1600, 0);
  const double counts[] = {400.0 * 400 - 1, 1};
  const MaskLayer layer = {400, 400, mask, {{255, 0, 0}, {0, 0, 255}}, {counts[0], counts[1]}};
  const Sheet sheet = Compose(PageOf({{40, 40, rgb}, 0, 0, 40, 40, {{{layer}, {}}}}));
  const uint8_t* const pixel = sheet.at(32, 12);
  CHECK(pixel[2] >= 120 && pixel[0] == 0);
}
END;

TEST("masks that overlap stand in stripes") {
  const std::vector<uint8_t> all(400, 1), rgb = Grey(400, 0);
  const Rgb red = {255, 0, 0}, blue = {0, 0, 255};
  const std::vector<MaskLayer> layers = {{20, 20, all, {red}, {400}}, {20, 20, all, {blue}, {400}}};
  const Sheet sheet = Compose(PageOf({{20, 20, rgb}, 0, 0, 20, 20, {{layers, {}}}}));
  size_t reds = 0, blues = 0;
  for (size_t y = 1; y < 19; ++y) {
    for (size_t x = 1; x < 19; ++x) {
      if (Is(sheet.at(x, y), Tinted({0, 0, 0}, red, 77))) ++reds;
      if (Is(sheet.at(x, y), Tinted({0, 0, 0}, blue, 77))) ++blues;
    }
  }
  CHECK(reds + blues == 18 * 18);
  CHECK(reds > 100 && blues > 100);
}
END;

TEST("heat is laid where it is high") {
  std::vector<float> values(400, 0.0F);
  std::fill(values.begin(), values.begin() + 200, 1.0F);
  values[0] = NAN;
  std::vector<uint8_t> colours(768, 0);
  colours[765] = 200;
  const std::vector<uint8_t> rgb = Grey(400, 100);
  const Sheet sheet =
      Compose(PageOf({{20, 20, rgb}, 0, 0, 20, 20, {{{}, {{20, 20, values, 0, 1, colours}}}}}));
  CHECK(Is(sheet.at(0, 0), {100, 100, 100}));
  CHECK(Is(sheet.at(5, 5), {150, 50, 50}));
  CHECK(Is(sheet.at(5, 15), {100, 100, 100}));
}
END;

TEST("what does not fit is refused") {
  const std::vector<uint8_t> mask(399), rgb = Grey(400, 0);
  const PictureView picture = {20, 20, rgb};
  CHECK(Refuses(PageOf({picture, 51, 0, 20, 20, {}})));
  CHECK(Refuses(PageOf({picture, 0, 41, 20, 20, {}})));
  CHECK(Refuses(PageOf({picture, 0, 0, 19, 20, {}})));
  CHECK(Refuses(PageOf({picture, 0, 0, 20, 1000, {}})));
  CHECK(Refuses(PageOf({{20, 21, rgb}, 0, 0, 20, 21, {}})));
  CHECK(Refuses(PageOf({{0, 0, {}}, 0, 0, 20, 20, {}})));
  CHECK(Refuses(PageOf({picture, 0, 0, 20, 20, {{{{20, 20, mask, {}, {}}}, {}}}})));
  Page page = PageOf({picture, 0, 0, 20, 20, {}});
  std::vector<uint8_t> small(10);
  bool refused = false;
  try {
    ComposePage(page, small);
  } catch (const EngineError&) {
    refused = true;
  }
  CHECK(refused);
}
END;

TEST("threads compose the same") {
  const std::vector<uint8_t> mask = Square(), rgb = Grey(400, 33);
  const Page page =
      PageOf({{20, 20, rgb}, 3, 4, 60, 50, {{{{20, 20, mask, {{200, 30, 99}}, {100}}}, {}}}});
  std::vector<Sheet> sheets(8);
  std::vector<std::thread> threads;
  for (Sheet& sheet : sheets) threads.emplace_back([&] { sheet = Compose(page); });
  for (std::thread& thread : threads) thread.join();
  for (const Sheet& sheet : sheets) CHECK(sheet.rgb == sheets[0].rgb);
}
END;
