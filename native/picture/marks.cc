#include "picture/marks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/simd.h"

namespace radserve {
namespace {

// ---- Light.

/// sRGB to linear light and back (IEC 61966-2-1), in 16 bits.
struct Light {
  std::array<uint16_t, 256> linear;
  std::array<uint8_t, 65536> srgb;

  Light() {
    for (size_t v = 0; v < linear.size(); ++v) {
      const double value = static_cast<double>(v) / 255;
      const double light =
          value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
      linear[v] = static_cast<uint16_t>(light * 65535 + 0.5);
    }
    // The nearest
    for (size_t light = 0, v = 0; light < srgb.size(); ++light) {
      while (v < 255 && 2 * light >= static_cast<size_t>(linear[v]) + linear[v + 1]) ++v;
      srgb[light] = static_cast<uint8_t>(v);
    }
  }
};

const Light& TheLight() {
  static const Light light;
  return light;
}

uint8_t Mixed(const Light& light, uint8_t under, uint8_t over, uint32_t alpha) {
  return light.srgb[(light.linear[under] * (255 - alpha) + light.linear[over] * alpha + 127) / 255];
}

void Tint(const Light& light, uint8_t* pixel, const Rgb& colour, uint32_t alpha) {
  for (size_t c = 0; c < 3; ++c) pixel[c] = Mixed(light, pixel[c], colour[c], alpha);
}

// ---- Masks at the size of a panel.

/// Where each of `target` pixels begins and ends among `source` pixels; one whole pixel each if it
/// enlarges.
struct Span {
  size_t from, to;
};

std::vector<Span> Spans(size_t source, size_t target) {
  std::vector<Span> spans(target);
  for (size_t i = 0; i < target; ++i) {
    const size_t from = i * source / target;
    spans[i] = {from, std::max(from + 1, (i + 1) * source / target)};
  }
  return spans;
}

/// A mask at panel size: one label for each pixel (0: none), and the share of the pixel that it
/// covers, 1 to 255; no shares if every label covers its pixels whole.
struct Cover {
  std::vector<uint8_t> label;
  std::vector<uint8_t> share;
};

Cover Enlarged(const MaskLayer& layer, const std::vector<Span>& xs, const std::vector<Span>& ys) {
  const size_t width = xs.size();
  Cover cover{std::vector<uint8_t>(width * ys.size()), {}};
  for (size_t y = 0; y < ys.size(); ++y) {
    uint8_t* const to = cover.label.data() + y * width;
    if (y > 0 && ys[y].from == ys[y - 1].from) {
      std::memcpy(to, to - width, width);
      continue;
    }
    const uint8_t* const from = layer.mask.data() + ys[y].from * layer.columns;
    if (width == layer.columns) {
      std::memcpy(to, from, width);
      continue;
    }
    for (size_t x = 0; x < width; ++x) to[x] = from[xs[x].from];
  }
  return cover;
}

/// Nothing vanishes when a mask shrinks: a label counts from the first source pixel that a panel
/// pixel covers, and of several labels the one that is rarest in the whole mask.
Cover Shrunk(const MaskLayer& layer, const std::vector<Span>& xs, const std::vector<Span>& ys) {
  const size_t width = xs.size();
  Cover cover{std::vector<uint8_t>(width * ys.size()), std::vector<uint8_t>(width * ys.size())};
  std::array<double, 256> totals{};
  totals[0] = HUGE_VAL;
  std::copy_n(layer.counts.begin(), std::min<size_t>(layer.counts.size(), 255), totals.begin() + 1);
  for (size_t y = 0; y < ys.size(); ++y) {
    const auto rows =
        layer.mask.subspan(ys[y].from * layer.columns, (ys[y].to - ys[y].from) * layer.columns);
    if (std::all_of(rows.begin(), rows.end(), [](uint8_t value) { return value == 0; })) continue;
    for (size_t x = 0; x < width; ++x) {
      uint8_t best = 0;
      size_t count = 0;
      for (const uint8_t* row = rows.data(); row != rows.data() + rows.size();
           row += layer.columns) {
        for (size_t at = xs[x].from; at < xs[x].to; ++at) {
          if (row[at] == best) {
            ++count;
          } else if (totals[row[at]] < totals[best]) {
            best = row[at];
            count = 1;
          }
        }
      }
      if (best == 0) continue;
      const size_t all = (xs[x].to - xs[x].from) * (ys[y].to - ys[y].from);
      cover.label[y * width + x] = best;
      cover.share[y * width + x] = static_cast<uint8_t>((255 * count + all - 1) / all);
    }
  }
  return cover;
}

Cover CoverOf(const MaskLayer& layer, size_t width, size_t height) {
  const std::vector<Span> xs = Spans(layer.columns, width), ys = Spans(layer.rows, height);
  return width >= layer.columns && height >= layer.rows ? Enlarged(layer, xs, ys)
                                                        : Shrunk(layer, xs, ys);
}

// ---- Outlines.

/// Inside is 0, so that it can be skipped.
enum Where : uint8_t { kInside, kEdge, kThin };

/// Marks pixels whose neighbour has a lower label, or none: each border is drawn once, on the side
/// of the higher label.
RADSERVE_HOT_LOOP void MarkHigher(const uint8_t* __restrict label,
                                  const uint8_t* __restrict neighbour, size_t count,
                                  uint8_t* __restrict outline) {
  for (size_t i = 0; i < count; ++i) outline[i] |= neighbour[i] < label[i] ? kEdge : kInside;
}

/// Notes pixels whose neighbour has the same label and is inside.
RADSERVE_HOT_LOOP void NoteInside(const uint8_t* __restrict label,
                                  const uint8_t* __restrict neighbour,
                                  const uint8_t* __restrict outline, size_t count,
                                  uint8_t* __restrict found) {
  for (size_t i = 0; i < count; ++i) {
    found[i] |= static_cast<uint8_t>(neighbour[i] == label[i]) &
                static_cast<uint8_t>(outline[i] == kInside);
  }
}

/// An edge near which nothing is inside is that of a thin part.
RADSERVE_HOT_LOOP void ThinRow(const uint8_t* __restrict found, size_t count,
                               uint8_t* __restrict outline) {
  for (size_t i = 0; i < count; ++i) {
    outline[i] = outline[i] == kEdge && found[i] == 0 ? static_cast<uint8_t>(kThin) : outline[i];
  }
}

/// Pixels of a panel by label.
struct Plane {
  const std::vector<uint8_t>& label;
  size_t width, height, reach;

  const uint8_t* LabelRow(size_t y) const { return label.data() + y * width; }

  /// The panel's own border is no edge.
  void MarkEdges(size_t y, uint8_t* outline) const {
    const uint8_t* const row = LabelRow(y);
    for (size_t d = 1; d <= reach && d < width; ++d) {
      MarkHigher(row + d, row, width - d, outline + d);
      MarkHigher(row, row + d, width - d, outline);
    }
    for (size_t d = 1; d <= reach; ++d) {
      if (y >= d) MarkHigher(row, LabelRow(y - d), width, outline);
      if (y + d < height) MarkHigher(row, LabelRow(y + d), width, outline);
    }
  }

  /// For each pixel of a row, whether one of its label is inside within reach, also across corners.
  void FindInside(size_t y, const std::vector<uint8_t>& outline,
                  std::vector<uint8_t>& found) const {
    std::fill(found.begin(), found.end(), uint8_t{0});
    const uint8_t* const row = LabelRow(y);
    for (size_t v = y - std::min(y, reach); v <= std::min(height - 1, y + reach); ++v) {
      const uint8_t* const near = LabelRow(v);
      const uint8_t* const inside = outline.data() + v * width;
      NoteInside(row, near, inside, width, found.data());
      for (size_t d = 1; d <= reach && d < width; ++d) {
        NoteInside(row + d, near, inside, width - d, found.data() + d);
        NoteInside(row, near + d, inside + d, width - d, found.data());
      }
    }
  }

  /// For each pixel of a region whether it is inside, on its edge, or on that of a part so thin
  /// that no pixel near it is inside.
  std::vector<uint8_t> Outline() const {
    std::vector<uint8_t> outline(width * height, kInside);
    for (size_t y = 0; y < height; ++y) MarkEdges(y, outline.data() + y * width);
    // The inside does not change any more
    std::vector<uint8_t> found(width);
    for (size_t y = 0; y < height; ++y) {
      uint8_t* const row = outline.data() + y * width;
      if (std::memchr(row, kEdge, width) == nullptr) continue;
      FindInside(y, outline, found);
      ThinRow(found.data(), width, row);
    }
    return outline;
  }
};

/// A mask as it is laid over its panel.
struct Mark {
  Cover cover;
  std::vector<uint8_t> outline;
  const std::vector<Rgb>* colours;

  /// Null where the label has no colour.
  const Rgb* ColourAt(size_t at) const {
    const uint8_t label = cover.label[at];
    return label == 0 || label > colours->size() ? nullptr : colours->data() + label - 1;
  }
  uint32_t ShareAt(size_t at) const { return cover.share.empty() ? 255 : cover.share[at]; }
};

/// Opacity of an outline: weaker on what is too thin for an inside, so that a vessel stays visible.
constexpr uint32_t kEdgeOpacity = 255;
constexpr uint32_t kThinOpacity = 128;
/// The least opacity of an outline, however little of the pixel is covered.
constexpr uint32_t kFaintest = 128;
/// Width of a stripe, in pixels along a row.
constexpr size_t kStripe = 4;

/// The blend of a colour with each value that may lie under it, in red, green and blue, at one
/// opacity.
using TintTable = std::array<std::array<uint8_t, 256>, 3>;

TintTable TableOf(const Light& light, const Rgb& colour, uint32_t alpha) {
  TintTable table;
  for (size_t c = 0; c < 3; ++c) {
    for (size_t under = 0; under < 256; ++under) {
      table[c][under] = Mixed(light, static_cast<uint8_t>(under), colour[c], alpha);
    }
  }
  return table;
}

/// The tint of one mask whose labels cover their pixels whole.
void LayWholeTints(const Mark& mark, const Panel& panel, uint32_t opacity, const Canvas& canvas) {
  std::vector<TintTable> tables;
  for (const Rgb& colour : *mark.colours) tables.push_back(TableOf(TheLight(), colour, opacity));
  for (size_t y = 0; y < panel.height; ++y) {
    const uint8_t* const labels = mark.cover.label.data() + y * panel.width;
    const uint8_t* const outline = mark.outline.data() + y * panel.width;
    uint8_t* const row = canvas.at(panel.x, panel.y + y);
    for (size_t x = 0; (x = NextSet(labels, x, panel.width)) < panel.width; ++x) {
      if (labels[x] > tables.size() || outline[x] != kInside) continue;
      const TintTable& table = tables[labels[x] - 1U];
      for (size_t c = 0; c < 3; ++c) row[3 * x + c] = table[c][row[3 * x + c]];
    }
  }
}

void LayTints(const std::vector<Mark>& marks, const Panel& panel, uint32_t opacity,
              const Canvas& canvas) {
  if (marks.size() == 1 && marks.front().cover.share.empty()) {
    return LayWholeTints(marks.front(), panel, opacity, canvas);
  }
  const Light& light = TheLight();
  std::vector<const Mark*> here;
  for (size_t y = 0, at = 0; y < panel.height; ++y) {
    uint8_t* pixel = canvas.at(panel.x, panel.y + y);
    for (size_t x = 0; x < panel.width; ++x, ++at, pixel += 3) {
      here.clear();
      for (const Mark& each : marks) {
        if (each.cover.label[at] != 0) here.push_back(&each);
      }
      if (here.empty()) continue;
      const Mark* const mark = here[(x + y) / kStripe % here.size()];
      const Rgb* const colour = mark->ColourAt(at);
      if (colour == nullptr || mark->outline[at] != kInside) continue;
      Tint(light, pixel, *colour, (opacity * mark->ShareAt(at) + 127) / 255);
    }
  }
}

void LayOutline(const Mark& mark, const Panel& panel, const Canvas& canvas) {
  for (size_t y = 0; y < panel.height; ++y) {
    const size_t begin = y * panel.width;
    const uint8_t* const outline = mark.outline.data() + begin;
    uint8_t* const row = canvas.at(panel.x, panel.y + y);
    for (size_t x = 0; (x = NextSet(outline, x, panel.width)) < panel.width; ++x) {
      const Rgb* const colour = mark.ColourAt(begin + x);
      if (colour == nullptr) continue;
      const uint32_t full = outline[x] == kEdge ? kEdgeOpacity : kThinOpacity;
      Blend(row + 3 * x, *colour, std::max(full * mark.ShareAt(begin + x) / 255, kFaintest));
    }
  }
}

/// Lays a heat map, more opaque the higher the value.
void LayHeat(const HeatLayer& heat, const Panel& panel, const Canvas& canvas) {
  constexpr float kHighest = 0.5F * 255;
  for (size_t y = 0; y < panel.height; ++y) {
    // The source pixel under the middle of the panel's
    const size_t row = (2 * y + 1) * heat.rows / (2 * panel.height);
    uint8_t* pixel = canvas.at(panel.x, panel.y + y);
    for (size_t x = 0; x < panel.width; ++x, pixel += 3) {
      const size_t column = (2 * x + 1) * heat.columns / (2 * panel.width);
      const float value = heat.values[row * heat.columns + column];
      const float part = (value - heat.low) / (heat.high - heat.low);
      // Not a number is nothing
      if (!(part > 0)) continue;
      const float bounded = std::min(part, 1.0F);
      const uint8_t* const colour =
          heat.colours.data() + static_cast<size_t>(bounded * 255 + 0.5F) * 3;
      Blend(pixel, {colour[0], colour[1], colour[2]},
            static_cast<uint32_t>(bounded * kHighest + 0.5F));
    }
  }
}

[[noreturn]] void Unlike(const char* what) { throw EngineError("internal", what); }

}  // namespace

Rgb Tinted(const Rgb& under, const Rgb& colour, uint32_t opacity) {
  Rgb out = under;
  Tint(TheLight(), out.data(), colour, opacity);
  return out;
}

void LayMarks(const PanelMarks& marks, const Panel& panel, double opacity, const Canvas& canvas) {
  for (const HeatLayer& heat : marks.heat) {
    if (heat.values.size() != heat.rows * heat.columns || heat.values.empty() ||
        heat.colours.size() != 768) {
      Unlike("Expected a heat map's values and 256 colours.");
    }
    LayHeat(heat, panel, canvas);
  }
  std::vector<Mark> laid;
  for (const MaskLayer& layer : marks.masks) {
    if (layer.mask.size() != layer.rows * layer.columns || layer.mask.empty()) {
      Unlike("Expected a mask's pixels.");
    }
    Cover cover = CoverOf(layer, panel.width, panel.height);
    const size_t reach = panel.width >= 3 * layer.columns ? 2 : 1;
    std::vector<uint8_t> outline = Plane{cover.label, panel.width, panel.height, reach}.Outline();
    laid.push_back({std::move(cover), std::move(outline), &layer.colours});
  }
  if (laid.empty()) return;
  LayTints(laid, panel, static_cast<uint32_t>(std::clamp(opacity, 0.0, 1.0) * 255 + 0.5), canvas);
  for (const Mark& mark : laid) LayOutline(mark, panel, canvas);
}

}  // namespace radserve
