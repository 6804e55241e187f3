#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "postprocess/output.h"

namespace radserve {

struct MaskStep {
  enum class Kind { kDropBorderConnected, kLargestComponent, kMinimumArea, kFillHoles } kind;
  /// Label indices, from 1.
  std::vector<int> labels;
  int pixels = 0;
  /// kLargestComponent: pixels that touch by corners are of one region.
  bool corners = false;
};

/// The fields of a segmentation.
struct SegmentationSpec {
  std::vector<MaskStep> steps;
  /// Gives the probabilities beside the mask.
  bool fractional = false;
  /// Of a volume: gives a mask on the grid of the tensor, too.
  bool model_grid = false;
  /// kPrototypes: the tensor of the detection table that finds the boxes.
  std::string boxes;
};

/// A mask on the source grid that the steps below change in place: 0 is background, `label` the
/// pixels in question. Regions are connected by edges, 4 neighbours in an image, 6 in a volume,
/// unless it says otherwise.
struct MaskView {
  std::span<uint8_t> pixels;
  /// 0 for an image.
  int slices = 0;
  int rows = 0;
  int columns = 0;
  /// One byte a pixel, or empty.
  std::span<const uint8_t> padding;
};

/// Regions of `label` that touch the image border (of a volume: the border of a slice), or a Pixel
/// Padding pixel, become background. The first and the last slice are no border: what a scan begins
/// or ends within is no less inside.
void DropBorderConnected(const MaskView& mask, uint8_t label);

/// The largest region of `label` stays, the first in raster order if several are as large.
/// `corners`: they connect too.
void KeepLargestComponent(const MaskView& mask, uint8_t label, bool corners = false);

/// Regions of `label` with fewer pixels become background.
void DropSmallComponents(const MaskView& mask, uint8_t label, int64_t pixels);

/// Background that `label` shuts off from the image border (of a volume: from all six faces)
/// becomes `label`; pixels of other labels and Pixel Padding stay what they are. A volume of one
/// slice is an image: both its faces would leave every hole open.
void FillHoles(const MaskView& mask, uint8_t label);

/// The number of each channel's label, where the first channel is background: 0 for that, and for
/// channels that are ignored. There may be more of these than a label's number can count.
std::vector<uint8_t> LabelsOfChannels(const OutputSpec& spec);

/// Adds to counts[v - 1] the pixels of each value v from 1 on; there is a count for each.
void CountLabels(std::span<const uint8_t> pixels, std::span<int64_t> counts);

}  // namespace radserve
