#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "base/thread_team.h"
#include "postprocess/boxes.h"
#include "postprocess/output.h"
#include "prepare/geometry.h"
#include "prepare/volume.h"
#include "tiling/tiling.h"

namespace radserve {

/// A segmentation on some grid.
struct MaskResult {
  /// Sides of the grid; slices is 0 for an image.
  int slices = 0;
  int rows = 0;
  int columns = 0;
  bool overlapping = false;
  std::vector<uint8_t> mask;
  std::vector<int64_t> counts;
  /// Where the spec is fractional: for each label a plane (of a volume, its slices) with the
  /// probability of each pixel of the grid in steps of 1/255; 0 where the mask cannot be set.
  std::vector<uint8_t> fractions;

  size_t Plane() const { return static_cast<size_t>(rows) * static_cast<size_t>(columns); }
  /// Pixels of one label that may overlap others.
  size_t Voxels() const { return Plane() * static_cast<size_t>(slices > 0 ? slices : 1); }
};

/// A segmentation of a volume on the grid of the tensor, as far as that lies within the source:
/// turned as the source's slices, rows and columns are.
struct ModelMask : MaskResult {
  /// Along slices, rows and columns.
  std::array<MapSpan, 3> spans;
};

/// A point of the source, counted from the outer edge of its first pixel, whose middle is at 0.5.
/// `score` is NaN where the model gives none; `label` is the label's index from 0.
struct Point {
  double x = 0, y = 0;
  float score = 0;
  int label = 0;
};

/// One output as src/engine/types.ts describes EngineOutput; which fields are filled depends on
/// `kind`: those of MaskResult, on the source's grid, are of segmentations, its sides of heat maps
/// too.
struct OutputResult : MaskResult {
  const OutputKind* kind = nullptr;
  std::string tensor;
  /// classification, regression, heatmap.
  std::vector<float> values;
  /// Where the spec asks for the grid of the model.
  std::optional<ModelMask> model;
  /// segmentation of a volume, if it was asked for: float32 [channels, slices, rows, columns],
  /// every channel on the source's grid as the label was chosen from it. Where the model did not
  /// look, background has 1 and labels have 0.
  std::optional<Tensor> probabilities;
  std::vector<Box> boxes;
  /// Boxes at or above their threshold whose middle lies outside of what the model was given, that
  /// are smaller than a pixel of it, or that end before they begin: most likely their unit or their
  /// format is not what the manifest says. Or all points of a table, where they lie within one
  /// pixel.
  size_t implausible = 0;
  std::vector<Point> points;
};

/// The result of an output of which nothing is known yet.
inline OutputResult ResultOf(const OutputSpec& spec) {
  OutputResult out;
  out.kind = spec.kind;
  out.tensor = spec.tensor;
  return out;
}

/// Where the results go back to: how the image was placed, and its padding, which is empty if there
/// is no padding.
struct SourceGrid {
  const Geometry& geometry;
  std::span<const uint8_t> padding;
  /// Prefer [1,H,W,C] where a shape fits both readings.
  bool channels_last = false;
};

using TensorByName = std::function<const Tensor&(const std::string&)>;

/// Raw tensors of one image to one output. `thresholds` has one number a label (NaN: none).
/// - classification: temperature divides the logits; activation; then Platt, 1 / (1 + exp(a * s +
///   b)) (Platt 1999), or isotonic (linear between points, constant outside).
/// - segmentation: probabilities are resampled to the source grid (linear; antialiased when they
///   shrink) and decided there; label maps take the nearest. Pixels outside the model's view, and
///   Pixel Padding, are background.
/// - heatmap: activated, resampled to the source grid (linear); 0 outside the model's view and on
///   Pixel Padding.
///
/// Throws output_invalid for shapes that do not fit the manifest and for values that are not finite
/// numbers.
OutputResult Postprocess(const OutputSpec& spec, const TensorByName& tensors,
                         const SourceGrid& grid, std::span<const double> thresholds);

/// Number of the detection table that finds the boxes of a segmentation by prototypes.
size_t TableOf(const OutputSpec& spec, std::span<const OutputSpec> outputs);

/// Boxes of a detection table, and the thresholds of its labels.
struct TableOfBoxes {
  const OutputSpec& spec;
  std::span<const double> thresholds;
};

/// Masks by prototypes (Bolya et al. 2019, YOLACT, section 3): a box's mask is the sum of the
/// prototypes [1, K, h, w], each times the box's coefficient, resampled to the source grid
/// (linear), where its sigmoid is at or above the label's threshold and a pixel's centre lies in
/// the box. A label's plane is the union over its boxes. Throws output_invalid as Postprocess does.
OutputResult PostprocessPrototypes(const OutputSpec& spec, const TableOfBoxes& boxes,
                                   const TensorByName& tensors, const SourceGrid& grid,
                                   std::span<const double> thresholds);

/// Finishes a mask that is on its grid: the spec's steps, each label by itself, and the counts.
/// Throws `cancelled` once `stop` is requested.
void FinishMask(const OutputSpec& spec, std::span<const uint8_t> padding,
                const std::stop_token& stop, MaskResult& out);

/// How maps of volumes are read.
struct VolumeView {
  /// Prefer [1,D,H,W,C] where a shape fits both readings.
  bool channels_last = false;
  /// Maps go back to the source before they are activated, as OutputSpec::activate_last.
  bool activate_last = false;
  /// Fill OutputResult::probabilities.
  bool probabilities = false;
  /// Helps the thread that calls; null for none.
  ThreadTeam* team = nullptr;
};

/// Raw tensors of one volume to one output, by the rules of Postprocess: scores and regressions as
/// there; segmentations go back to the slices as given, by the placement that PrepareVolume made.
/// Maps are read one slice of the source at a time, so that only a few planes of each channel are
/// in memory beside the tensor and the mask.
///
/// Where the spec asks for the grid of the model, each of its voxels is decided by its own values,
/// too, and nothing is resampled for it. Of that grid there are the voxels whose centres lie within
/// the source; one is Pixel Padding where the source's voxel round its centre is, and kMinimumArea
/// counts as many as have the volume of so many of the source's.
///
/// Throws output_invalid for shapes that do not fit the manifest and for values that are no finite
/// numbers, `cancelled` once `stop` is requested, model_unavailable for kinds that have no volumes.
OutputResult PostprocessVolume(const OutputSpec& spec, const TensorByName& tensors,
                               const PreparedVolume& volume, const VolumeView& view,
                               std::span<const double> thresholds, const std::stop_token& stop);

/// Boxes that windows over a volume found (OutputKind::collect) as one output.
OutputResult PostprocessCuboids(const OutputSpec& spec, FoundCuboids found,
                                std::span<const SeenWindow> windows,
                                const VolumePlacement& placement,
                                std::span<const double> thresholds);

/// Channels of a segmentation's tensor: a background before the labels where they exclude each
/// other, and those that are ignored.
size_t ChannelsOf(const OutputSpec& spec);

/// The same, to the bit, for a segmentation whose maps come slice by slice across the source's
/// slices; windows run meanwhile. `digests` is set to what stands for the raw tensor
/// (TiledSlices::Finish).
OutputResult PostprocessSlices(const OutputSpec& spec, TiledSlices& slices,
                               const PreparedVolume& volume, const VolumeView& view,
                               std::span<const double> thresholds, const std::stop_token& stop,
                               Tensor& digests);

}  // namespace radserve
