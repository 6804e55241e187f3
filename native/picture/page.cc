#include "picture/page.h"

#include <cstring>

#include "base/error.h"
#include "picture/canvas.h"
#include "picture/drawing.h"
#include "picture/marks.h"

namespace radserve {
namespace {

void Fill(const Canvas& canvas, const Rgb& colour) {
  uint8_t* const first = canvas.rgb.data();
  for (size_t x = 0; x < canvas.width; ++x) std::memcpy(first + 3 * x, colour.data(), 3);
  for (size_t y = 1; y < canvas.height; ++y) std::memcpy(canvas.at(0, y), first, 3 * canvas.width);
}

/// Each pixel of the picture becomes whole pixels of the panel.
void Paste(const Panel& panel, const Canvas& canvas) {
  const PictureView& picture = panel.picture;
  std::vector<size_t> columns(panel.width);
  for (size_t x = 0; x < panel.width; ++x) columns[x] = 3 * (x * picture.width / panel.width);
  for (size_t y = 0; y < panel.height; ++y) {
    const uint8_t* const from =
        picture.rgb.data() + y * picture.height / panel.height * picture.width * 3;
    uint8_t* to = canvas.at(panel.x, panel.y + y);
    if (picture.width == panel.width) {
      std::memcpy(to, from, 3 * panel.width);
      continue;
    }
    for (size_t x = 0; x < panel.width; ++x, to += 3) std::memcpy(to, from + columns[x], 3);
  }
}

bool Fits(const Panel& panel, const Page& page) {
  const PictureView& picture = panel.picture;
  return picture.width > 0 && picture.height > 0 &&
         picture.rgb.size() == picture.width * picture.height * 3 && panel.width >= picture.width &&
         panel.height >= picture.height && panel.width <= page.width &&
         panel.height <= page.height && panel.x <= page.width - panel.width &&
         panel.y <= page.height - panel.height;
}

}  // namespace

void ComposePage(const Page& page, std::span<uint8_t> rgb) {
  const Canvas canvas = {page.width, page.height, rgb};
  if (rgb.empty() || rgb.size() != page.width * page.height * 3) {
    throw EngineError("internal", "Expected room for the pixels of a page.");
  }
  Fill(canvas, page.background);
  for (const Panel& panel : page.panels) {
    if (!Fits(panel, page)) {
      throw EngineError("internal",
                        "Expected panels on the page, each no smaller than its picture.");
    }
    Paste(panel, canvas);
    for (const PanelMarks& marks : panel.marks) LayMarks(marks, panel, page.opacity, canvas);
  }
  Draw(page.drawing, page.glyphs, canvas);
}

}  // namespace radserve
