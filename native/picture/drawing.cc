#include "picture/drawing.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"

namespace radserve {
namespace {

/// Whole pixels, the last ones left out.
struct Area {
  ptrdiff_t left, top, right, bottom;
};

Area Common(const Area& a, const Area& b) {
  return {std::max(a.left, b.left), std::max(a.top, b.top), std::min(a.right, b.right),
          std::min(a.bottom, b.bottom)};
}

Area AreaOf(const Canvas& canvas) {
  return {0, 0, static_cast<ptrdiff_t>(canvas.width), static_cast<ptrdiff_t>(canvas.height)};
}

/// All pixels that a box touches.
Area Around(double left, double top, double right, double bottom) {
  const double kFar = 1e6;
  const auto whole = [kFar](double value) {
    return static_cast<ptrdiff_t>(std::clamp(value, -kFar, kFar));
  };
  return {whole(std::floor(left)), whole(std::floor(top)), whole(std::ceil(right)),
          whole(std::ceil(bottom))};
}

/// Calls `alpha(x, y)` for each pixel of the area and lays the colour over it.
template <typename Alpha>
void Paint(const Canvas& canvas, const Area& area, const Rgb& colour, const Alpha& alpha) {
  for (ptrdiff_t y = area.top; y < area.bottom; ++y) {
    for (ptrdiff_t x = area.left; x < area.right; ++x) {
      const uint32_t covered = alpha(x, y);
      if (covered != 0)
        Blend(canvas.at(static_cast<size_t>(x), static_cast<size_t>(y)), colour, covered);
    }
  }
}

uint32_t AlphaOf(double coverage, double opacity) {
  return static_cast<uint32_t>(std::clamp(coverage, 0.0, 1.0) * opacity * 255 + 0.5);
}

/// How much of the pixel at `at` lies between two places.
double Overlap(ptrdiff_t at, double from, double to) {
  const auto begin = static_cast<double>(at);
  return std::max(0.0, std::min(begin + 1, to) - std::max(begin, from));
}

/// Reads one number of the list after the other.
class Reader {
 public:
  explicit Reader(std::span<const double> list) : list_(list) {}

  bool AtEnd() const { return at_ == list_.size(); }

  double Next() {
    if (at_ == list_.size() || !std::isfinite(list_[at_])) Broken();
    return list_[at_++];
  }

  size_t Count() {
    const double value = Next();
    if (value < 0 || value > 1e9) Broken();
    return static_cast<size_t>(value);
  }

  Rgb Colour() {
    const size_t packed = Count();
    return {static_cast<uint8_t>(packed >> 16), static_cast<uint8_t>(packed >> 8),
            static_cast<uint8_t>(packed)};
  }

  [[noreturn]] static void Broken() {
    throw EngineError("internal", "Expected a whole drawing, whose glyphs are among those given.");
  }

 private:
  std::span<const double> list_;
  size_t at_ = 0;
};

void DrawRectangle(Reader& list, const Canvas& canvas, const Area& clip) {
  const double x = list.Next(), y = list.Next(), width = list.Next(), height = list.Next();
  const double radius = std::min({list.Next(), width / 2, height / 2});
  const double stroke = list.Next();
  const Rgb colour = list.Colour();
  const double opacity = std::clamp(list.Next(), 0.0, 1.0);
  const double half = stroke / 2;
  const Area area =
      Common(clip, Around(x - half - 1, y - half - 1, x + width + half + 1, y + height + half + 1));
  if (stroke == 0 && radius <= 0) {
    Paint(canvas, area, colour, [&](ptrdiff_t u, ptrdiff_t v) {
      return AlphaOf(Overlap(u, x, x + width) * Overlap(v, y, y + height), opacity);
    });
    return;
  }
  const double middle_x = x + width / 2, middle_y = y + height / 2;
  Paint(canvas, area, colour, [&](ptrdiff_t u, ptrdiff_t v) {
    // How far the pixel's middle lies outside the border, or, negative, inside
    const double dx = std::abs(static_cast<double>(u) + 0.5 - middle_x) - width / 2 + radius;
    const double dy = std::abs(static_cast<double>(v) + 0.5 - middle_y) - height / 2 + radius;
    const double corner =
        std::sqrt(std::max(dx, 0.0) * std::max(dx, 0.0) + std::max(dy, 0.0) * std::max(dy, 0.0));
    const double outside = corner + std::min(std::max(dx, dy), 0.0) - radius;
    return AlphaOf(stroke == 0 ? 0.5 - outside : 0.5 + half - std::abs(outside), opacity);
  });
}

void DrawLine(Reader& list, const Canvas& canvas, const Area& clip) {
  const double x0 = list.Next(), y0 = list.Next(), x1 = list.Next(), y1 = list.Next();
  const double half = list.Next() / 2;
  const Rgb colour = list.Colour();
  const double opacity = std::clamp(list.Next(), 0.0, 1.0);
  const Area area = Common(clip, Around(std::min(x0, x1) - half - 1, std::min(y0, y1) - half - 1,
                                        std::max(x0, x1) + half + 1, std::max(y0, y1) + half + 1));
  const double along_x = x1 - x0, along_y = y1 - y0;
  const double length = along_x * along_x + along_y * along_y;
  Paint(canvas, area, colour, [&](ptrdiff_t u, ptrdiff_t v) {
    const double dx = static_cast<double>(u) + 0.5 - x0, dy = static_cast<double>(v) + 0.5 - y0;
    const double part =
        length == 0 ? 0 : std::clamp((dx * along_x + dy * along_y) / length, 0.0, 1.0);
    const double off_x = dx - part * along_x, off_y = dy - part * along_y;
    return AlphaOf(0.5 + half - std::sqrt(off_x * off_x + off_y * off_y), opacity);
  });
}

void DrawGlyphs(Reader& list, std::span<const uint8_t> glyphs, const Canvas& canvas,
                const Area& clip) {
  const Rgb colour = list.Colour();
  for (size_t count = list.Count(); count > 0; --count) {
    const size_t place = list.Count(), width = list.Count(), height = list.Count();
    const double x = list.Next(), y = list.Next();
    if (width > 4096 || height > 4096 || place + width * height > glyphs.size()) Reader::Broken();
    const Area box = Around(x, y, x + static_cast<double>(width), y + static_cast<double>(height));
    const uint8_t* coverage = glyphs.data() + place;
    Paint(canvas, Common(clip, box), colour, [&](ptrdiff_t u, ptrdiff_t v) {
      return static_cast<uint32_t>(
          coverage[static_cast<size_t>(v - box.top) * width + static_cast<size_t>(u - box.left)]);
    });
  }
}

}  // namespace

void Draw(std::span<const double> drawing, std::span<const uint8_t> glyphs, const Canvas& canvas) {
  Area clip = AreaOf(canvas);
  for (Reader list(drawing); !list.AtEnd();) {
    switch (static_cast<Operation>(list.Count())) {
      case Operation::kClip: {
        const double x = list.Next(), y = list.Next(), width = list.Next(), height = list.Next();
        clip = Common(AreaOf(canvas), Around(x, y, x + width, y + height));
        break;
      }
      case Operation::kUnclip:
        clip = AreaOf(canvas);
        break;
      case Operation::kRectangle:
        DrawRectangle(list, canvas, clip);
        break;
      case Operation::kLine:
        DrawLine(list, canvas, clip);
        break;
      case Operation::kGlyphs:
        DrawGlyphs(list, glyphs, canvas, clip);
        break;
      default:
        Reader::Broken();
    }
  }
}

void FillOutline(std::span<const float> segments, double left, double top, size_t width,
                 size_t height, std::span<uint8_t> coverage) {
  if (segments.size() % 4 != 0 || coverage.size() != width * height) {
    throw EngineError("internal", "Expected whole segments and room for their coverage.");
  }
  // Each row of pixels is looked at along so many lines; along a line the coverage is exact
  constexpr size_t kLines = 16;
  std::vector<double> row(width);
  std::vector<std::pair<double, int>> crossings;
  for (size_t y = 0; y < height; ++y) {
    std::fill(row.begin(), row.end(), 0.0);
    for (size_t line = 0; line < kLines; ++line) {
      const double level =
          top + static_cast<double>(y) + (static_cast<double>(line) + 0.5) / kLines;
      crossings.clear();
      for (size_t i = 0; i < segments.size(); i += 4) {
        const double x0 = segments[i], y0 = segments[i + 1], x1 = segments[i + 2],
                     y1 = segments[i + 3];
        if ((y0 <= level) == (y1 <= level)) continue;
        const double x = x0 + (x1 - x0) * (level - y0) / (y1 - y0) - left;
        crossings.emplace_back(std::clamp(x, 0.0, static_cast<double>(width)), y0 < y1 ? 1 : -1);
      }
      std::sort(crossings.begin(), crossings.end());
      int winding = 0;
      for (size_t i = 0; i + 1 < crossings.size(); ++i) {
        winding += crossings[i].second;
        if (winding == 0) continue;
        const auto [from, to] = std::pair(crossings[i].first, crossings[i + 1].first);
        for (auto x = static_cast<size_t>(from); x < width && static_cast<double>(x) < to; ++x) {
          row[x] += Overlap(static_cast<ptrdiff_t>(x), from, to);
        }
      }
    }
    for (size_t x = 0; x < width; ++x) {
      coverage[y * width + x] = static_cast<uint8_t>(std::min(row[x] / kLines, 1.0) * 255 + 0.5);
    }
  }
}

}  // namespace radserve
