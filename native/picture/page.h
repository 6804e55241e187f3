#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// The picture for people, composed: panels with what a model marked, and a drawing over all of it.
/// Equal input gives equal pixels, on every processor and whatever was composed before.
namespace radserve {

/// sRGB.
using Rgb = std::array<uint8_t, 3>;

/// Rows top to bottom, three bytes a pixel. The bytes belong to the caller.
struct PictureView {
  size_t width = 0;
  size_t height = 0;
  std::span<const uint8_t> rgb;
};

/// Label numbers (0: no label) of `rows` x `columns` source pixels, and the colours of the labels
/// 1, 2, ...
struct MaskLayer {
  size_t rows = 0;
  size_t columns = 0;
  std::span<const uint8_t> mask;
  std::vector<Rgb> colours;
  /// Pixels of each label. Where a mask shrinks, the rarest label is the one that shows.
  std::vector<double> counts;
};

/// A heat map of `rows` x `columns` source pixels, from `low` to `high`.
struct HeatLayer {
  size_t rows = 0;
  size_t columns = 0;
  std::span<const float> values;
  float low = 0;
  float high = 1;
  /// Colours of 256 values from `low` to `high`.
  std::span<const uint8_t> colours;
};

/// The marks of one output of a model on a panel. Masks of one output may overlap.
struct PanelMarks {
  std::vector<MaskLayer> masks;
  std::vector<HeatLayer> heat;
};

/// A picture at a place of the page. It is no larger than its panel, and enlarged to whole pixels.
struct Panel {
  PictureView picture;
  size_t x = 0;
  size_t y = 0;
  size_t width = 0;
  size_t height = 0;
  /// In the order of the model's outputs.
  std::vector<PanelMarks> marks;
};

struct Page {
  size_t width = 0;
  size_t height = 0;
  Rgb background = {};
  std::vector<Panel> panels;
  /// Opacity of the tint of masks, 0 to 1.
  double opacity = 0;
  /// The commands that `Draw` takes.
  std::span<const double> drawing;
  std::span<const uint8_t> glyphs;
};

/// Fills `rgb`, which holds width x height pixels. Throws internal if something lies outside, or if
/// a size is not what it has to be.
void ComposePage(const Page& page, std::span<uint8_t> rgb);

}  // namespace radserve
