#include "picture/check.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/simd.h"

namespace radserve {
namespace {

/// A label of the image's own grey cannot be seen on it; colours nearer than this in every channel
/// count as that.
constexpr int kAlike = 64;
/// The share of the marked pixels that could be seen which has to be seen.
constexpr double kDrawn = 0.9;

/// 0 or 1 for each pixel of a panel.
using Bits = std::vector<uint8_t>;

RADSERVE_HOT_LOOP void OrRow(const uint8_t* __restrict from, size_t count, uint8_t* __restrict to) {
  for (size_t x = 0; x < count; ++x) to[x] |= from[x];
}

/// With the eight neighbours of each.
Bits Grown(const Bits& bits, size_t width) {
  const size_t height = bits.size() / width;
  Bits wide = bits;
  for (size_t y = 0; y < height; ++y) {
    OrRow(bits.data() + y * width, width - 1, wide.data() + y * width + 1);
    OrRow(bits.data() + y * width + 1, width - 1, wide.data() + y * width);
  }
  Bits grown = wide;
  for (size_t y = 0; y + 1 < height; ++y) {
    OrRow(wide.data() + y * width, width, grown.data() + (y + 1) * width);
    OrRow(wide.data() + (y + 1) * width, width, grown.data() + y * width);
  }
  return grown;
}

/// First and last panel pixels, the last ones left out, that a source pixel covers; at least one.
size_t First(size_t i, size_t source, size_t target) { return i * target / source; }
size_t End(size_t i, size_t source, size_t target) {
  return std::max(First(i, source, target) + 1, ((i + 1) * target + source - 1) / source);
}

/// Sets the panel pixels that cover a marked source pixel.
void Project(const MaskLayer& layer, size_t width, size_t height, Bits& bits) {
  for (size_t row = 0; row < layer.rows; ++row) {
    const uint8_t* const begin = layer.mask.data() + row * layer.columns;
    const uint8_t* const end = begin + layer.columns;
    const size_t top = First(row, layer.rows, height), bottom = End(row, layer.rows, height);
    for (const uint8_t* at = begin; at != end;) {
      const uint8_t* const from = std::find_if(at, end, [](uint8_t value) { return value != 0; });
      // Pixels that neighbours cover leave no gap between them
      at = std::find(from, end, uint8_t{0});
      if (from == at) continue;
      const size_t left = First(static_cast<size_t>(from - begin), layer.columns, width);
      const size_t right = End(static_cast<size_t>(at - begin - 1), layer.columns, width);
      for (size_t y = top; y < bottom; ++y) {
        std::fill_n(bits.begin() + static_cast<ptrdiff_t>(y * width + left), right - left,
                    uint8_t{1});
      }
    }
  }
}

/// The picture's pixel under a pixel of its panel.
const uint8_t* PlainAt(const Panel& panel, size_t x, size_t y) {
  const PictureView& picture = panel.picture;
  const size_t row = y * picture.height / panel.height, column = x * picture.width / panel.width;
  return picture.rgb.data() + (row * picture.width + column) * 3;
}

/// Whether each pixel differs, of rows of three bytes a pixel.
RADSERVE_HOT_LOOP void CompareRow(const uint8_t* __restrict before, const uint8_t* __restrict now,
                                  size_t count, uint8_t* __restrict changed) {
  for (size_t x = 0; x < count; ++x) {
    const int differs = (before[3 * x] ^ now[3 * x]) | (before[3 * x + 1] ^ now[3 * x + 1]) |
                        (before[3 * x + 2] ^ now[3 * x + 2]);
    changed[x] = differs != 0 ? 1 : 0;
  }
}

Bits Changed(const PictureView& page, const Panel& panel) {
  Bits changed(panel.width * panel.height);
  std::vector<size_t> columns(panel.width);
  for (size_t x = 0; x < panel.width; ++x) columns[x] = PlainAt(panel, x, 0) - PlainAt(panel, 0, 0);
  for (size_t y = 0; y < panel.height; ++y) {
    const uint8_t* now = page.rgb.data() + ((panel.y + y) * page.width + panel.x) * 3;
    const uint8_t* const row = PlainAt(panel, 0, y);
    uint8_t* const out = changed.data() + y * panel.width;
    if (panel.width == panel.picture.width) {
      CompareRow(row, now, panel.width, out);
    } else {
      for (size_t x = 0; x < panel.width; ++x, now += 3) {
        const uint8_t* const before = row + columns[x];
        out[x] = before[0] != now[0] || before[1] != now[1] || before[2] != now[2];
      }
    }
  }
  return changed;
}

bool IsAlike(const std::vector<Rgb>& colours, const uint8_t* pixel) {
  return std::any_of(colours.begin(), colours.end(), [&](const Rgb& colour) {
    return std::abs(colour[0] - pixel[0]) < kAlike && std::abs(colour[1] - pixel[1]) < kAlike &&
           std::abs(colour[2] - pixel[2]) < kAlike;
  });
}

/// How many pixels of a row are so.
struct Found {
  /// Changed where nothing near is expected.
  uint32_t beside = 0;
  uint32_t expected = 0;
  /// Expected, and nothing near is changed.
  uint32_t unseen = 0;
};

/// Each byte is 0 or 1, for one pixel.
RADSERVE_HOT_LOOP Found CountRow(const uint8_t* __restrict changed,
                                 const uint8_t* __restrict near_changed,
                                 const uint8_t* __restrict expected,
                                 const uint8_t* __restrict near_expected, size_t count) {
  Found found;
  for (size_t x = 0; x < count; ++x) {
    found.beside += static_cast<uint32_t>(changed[x] & (near_expected[x] ^ 1));
    found.expected += expected[x];
    found.unseen += static_cast<uint32_t>(expected[x] & (near_changed[x] ^ 1));
  }
  return found;
}

}  // namespace

PictureFault CheckPanel(const PictureView& page, const Panel& panel) {
  const PictureView& picture = panel.picture;
  if (page.rgb.size() != page.width * page.height * 3 || panel.width == 0 || panel.height == 0 ||
      picture.width == 0 || picture.height == 0 ||
      picture.rgb.size() != picture.width * picture.height * 3 ||
      panel.x + panel.width > page.width || panel.y + panel.height > page.height) {
    throw EngineError("internal", "Expected a panel on its page.");
  }
  Bits expected(panel.width * panel.height);
  std::vector<Rgb> colours;
  for (const PanelMarks& marks : panel.marks) {
    for (const MaskLayer& layer : marks.masks) {
      if (layer.rows == 0 || layer.columns == 0 ||
          layer.mask.size() != layer.rows * layer.columns) {
        throw EngineError("internal", "Expected a mask's pixels.");
      }
      Project(layer, panel.width, panel.height, expected);
      colours.insert(colours.end(), layer.colours.begin(), layer.colours.end());
    }
  }
  const Bits changed = Changed(page, panel);
  const Bits near_expected = Grown(expected, panel.width);
  const Bits near_changed = Grown(changed, panel.width);
  size_t marked = 0, drawn = 0;
  for (size_t y = 0; y < panel.height; ++y) {
    const size_t row = y * panel.width;
    const Found found = CountRow(changed.data() + row, near_changed.data() + row,
                                 expected.data() + row, near_expected.data() + row, panel.width);
    if (found.beside > 0) return PictureFault::kBeside;
    drawn += found.expected - found.unseen;
    marked += found.expected;
    // A mark of the image's own colour cannot be seen on it
    for (size_t x = 0; found.unseen > 0 && x < panel.width; ++x) {
      if (expected[row + x] != 0 && near_changed[row + x] == 0 &&
          IsAlike(colours, PlainAt(panel, x, y)))
        --marked;
    }
  }
  return static_cast<double>(drawn) < kDrawn * static_cast<double>(marked) ? PictureFault::kLeftOut
                                                                           : PictureFault::kNone;
}

}  // namespace radserve
