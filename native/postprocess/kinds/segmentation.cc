#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "postprocess/activation.h"
#include "postprocess/detections.h"
#include "postprocess/kind.h"
#include "postprocess/maps.h"
#include "postprocess/masks.h"
#include "postprocess/projection.h"
#include "postprocess/source_grid.h"
#include "resample/resample.h"

namespace radserve {
namespace {

/// `names` are those of the output's labels, in their order.
MaskStep ReadStep(const Description& o, const std::vector<std::string>& names) {
  using Kind = MaskStep::Kind;
  MaskStep step{};
  step.kind = o.OneOf<Kind>("step", {{"drop_border_connected", Kind::kDropBorderConnected},
                                     {"largest_component", Kind::kLargestComponent},
                                     {"minimum_area", Kind::kMinimumArea},
                                     {"fill_holes", Kind::kFillHoles}});
  for (const std::string& label : o.Texts("labels")) {
    const auto found = std::ranges::find(names, label);
    if (found == names.end()) Unexpected("labels");
    step.labels.push_back(static_cast<int>(found - names.begin()) + 1);
  }
  if (step.kind == Kind::kMinimumArea) step.pixels = o.Int("pixels");
  if (o.Has("connected_by")) step.corners = o.Text("connected_by") == "corners";
  return step;
}

void ReadSegmentation(const Description& output, OutputSpec& spec) {
  auto& own = spec.Set<SegmentationSpec>();
  const std::vector<std::string> names =
      output.List("labels", [](const Description& label) { return label.Text("label"); });
  own.steps =
      output.List("postprocess", [&](const Description& step) { return ReadStep(step, names); });
  own.fractional = output.Has("segment_type") && output.Text("segment_type") == "fractional";
  own.model_grid = output.Has("segment_grid") && output.Text("segment_grid") == "model";
  if (output.Has("boxes")) own.boxes = output.Text("boxes");
}

/// The labels of a map at each source pixel, the nearest. Returns where the map lies.
MapGrid DecideLabels(const OutputSpec& spec, const Tensor& tensor, const SourceGrid& grid,
                     OutputResult& out) {
  const Maps maps(tensor, 1, grid.channels_last);
  std::vector<uint8_t> labels(maps.pixels());
  ToLabels(maps.values(), spec.labels, tensor.name, labels.data());
  const MapGrid lies = GridOf(spec, maps, grid.geometry);
  out.mask = ProjectNearest(std::move(labels), lies.rows.Back(lies.antialias),
                            lies.columns.Back(lies.antialias));
  return lies;
}

/// The mask of probabilities: the highest channel, or for labels that may overlap a plane each.
/// Returns where the map lies.
MapGrid DecideProbabilities(const OutputSpec& spec, const Tensor& tensor, const SourceGrid& grid,
                            std::span<const double> thresholds, OutputResult& out) {
  Maps maps(tensor, ChannelsOf(spec), grid.channels_last);
  if (out.overlapping) maps.Drop(spec.ignored);
  const Activation last = spec.activate_last ? spec.activation : Activation::kNone;
  // Before the sigmoid, which makes 1 of an infinity
  CheckFinite(maps.values(), tensor.name);
  if (!spec.activate_last) maps.Activate(spec.activation);
  if (out.overlapping && last == Activation::kNone) CheckProbabilities(maps.values(), tensor.name);
  const MapGrid lies = GridOf(spec, maps, grid.geometry);
  const Axis rows = lies.rows.Back(lies.antialias);
  const Axis columns = lies.columns.Back(lies.antialias);
  std::vector<uint8_t>* const fractions =
      spec.Own<SegmentationSpec>().fractional ? &out.fractions : nullptr;
  if (out.overlapping) {
    ProjectOverThresholds(maps, rows, columns, last, thresholds, out.mask, fractions);
    return lies;
  }
  ProjectHighest(maps, rows, columns, last, LabelsOfChannels(spec), out.mask, fractions);
  const auto plane = static_cast<ptrdiff_t>(out.Plane());
  for (auto channel = spec.ignored.rbegin(); fractions && channel != spec.ignored.rend();
       ++channel) {
    const auto first = fractions->begin() + (*channel - 1) * plane;
    fractions->erase(first, first + plane);
  }
  return lies;
}

void Segmentation(const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
                  std::span<const double> thresholds, OutputResult& out) {
  const Tensor& tensor = tensors(spec.tensor);
  out.overlapping = MayOverlap(spec.activation);
  const MapGrid lies = spec.activation == Activation::kLabelMap
                           ? DecideLabels(spec, tensor, grid, out)
                           : DecideProbabilities(spec, tensor, grid, thresholds, out);
  const size_t plane = out.Plane();
  for (std::vector<uint8_t>* const values : {&out.mask, &out.fractions}) {
    for (size_t at = 0; at < values->size(); at += plane)
      ClearHidden(grid, lies, std::span(*values).subspan(at, plane));
  }
  FinishMask(spec, grid.padding, {}, out);
}

void ApplyStep(const MaskStep& step, int label, const MaskView& view, uint8_t value) {
  if (std::find(step.labels.begin(), step.labels.end(), label) == step.labels.end()) return;
  switch (step.kind) {
    case MaskStep::Kind::kDropBorderConnected:
      return DropBorderConnected(view, value);
    case MaskStep::Kind::kLargestComponent:
      return KeepLargestComponent(view, value, step.corners);
    case MaskStep::Kind::kMinimumArea:
      return DropSmallComponents(view, value, step.pixels);
    case MaskStep::Kind::kFillHoles:
      return FillHoles(view, value);
  }
}

}  // namespace

const OutputKind kinds::segmentation = {.name = "segmentation",
                                        .gives = "segmentation",
                                        .placed = true,
                                        .gridded = true,
                                        .masks = true,
                                        .read = ReadSegmentation,
                                        .decode = Segmentation};

void FinishMask(const OutputSpec& spec, std::span<const uint8_t> padding,
                const std::stop_token& stop, MaskResult& out) {
  const size_t plane = out.Voxels();
  const auto part = [&](size_t p) { return std::span(out.mask).subspan(p * plane, plane); };
  for (const MaskStep& step : spec.Own<SegmentationSpec>().steps) {
    for (int label = 1; label <= spec.labels; ++label) {
      CheckStop(stop);
      const size_t p = out.overlapping ? static_cast<size_t>(label - 1) : 0;
      ApplyStep(step, label, {part(p), out.slices, out.rows, out.columns, padding},
                out.overlapping ? uint8_t{1} : static_cast<uint8_t>(label));
    }
  }
  out.counts.assign(static_cast<size_t>(spec.labels), 0);
  const std::span<int64_t> counts(out.counts);
  for (size_t p = 0; p < out.mask.size() / plane; ++p) {
    CountLabels(part(p), out.overlapping ? counts.subspan(p, 1) : counts);
  }
}

size_t TableOf(const OutputSpec& spec, std::span<const OutputSpec> outputs) {
  const std::string& tensor = spec.Own<SegmentationSpec>().boxes;
  const auto found = std::ranges::find_if(outputs, [&](const OutputSpec& one) {
    return one.kind == &kinds::detection_table && one.tensor == tensor;
  });
  return static_cast<size_t>(found - outputs.begin());
}

OutputResult PostprocessPrototypes(const OutputSpec& spec, const TableOfBoxes& boxes,
                                   const TensorByName& tensors, const SourceGrid& grid,
                                   std::span<const double> thresholds) {
  const Geometry& g = grid.geometry;
  OutputResult out = ResultOf(spec);
  out.rows = g.rows.source;
  out.columns = g.columns.source;
  out.overlapping = true;
  const size_t plane = out.Plane();
  out.mask.assign(plane * static_cast<size_t>(spec.labels), 0);
  const auto part = [&](size_t p) { return std::span(out.mask).subspan(p * plane, plane); };
  RawDetections raw = ReadTable(tensors(boxes.spec.tensor), boxes.spec);
  const std::vector<float> coefficients = std::move(raw.coefficients);
  CheckFinite(coefficients, boxes.spec.tensor);
  const auto kinds = static_cast<size_t>(boxes.spec.Own<DetectionSpec>().table->coefficient_count);
  const Maps prototypes(tensors(spec.tensor), kinds, grid.channels_last);
  CheckFinite(prototypes.values(), spec.tensor);
  const MapGrid lies = GridOf(spec, prototypes, g);
  const Axis rows = lies.rows.Back(lies.antialias);
  const Axis columns = lies.columns.Back(lies.antialias);
  for (const Box& box : DecodeDetections(std::move(raw), boxes.spec, g, boxes.thresholds)) {
    std::vector<float> sum(prototypes.pixels());
    for (size_t k = 0; k < kinds; ++k) {
      const float coefficient = coefficients[box.row * kinds + k];
      const float* prototype = prototypes.Channel(k);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += coefficient * prototype[i];
    }
    const std::vector<float> logits =
        ResamplePlane(sum.data(), rows, columns, Interpolation::kLinear);
    const double threshold = thresholds[static_cast<size_t>(box.label)];
    const auto least = static_cast<float>(std::log(threshold / (1 - threshold)));
    const std::span<uint8_t> mask = part(static_cast<size_t>(box.label));
    for (int y = 0; y < out.rows; ++y) {
      if (y + 0.5 < box.y0 || y + 0.5 >= box.y1) continue;
      const size_t first = static_cast<size_t>(y) * static_cast<size_t>(out.columns);
      for (int x = 0; x < out.columns; ++x) {
        if (x + 0.5 < box.x0 || x + 0.5 >= box.x1) continue;
        if (logits[first + static_cast<size_t>(x)] >= least)
          mask[first + static_cast<size_t>(x)] = 1;
      }
    }
  }
  for (size_t p = 0; p < static_cast<size_t>(spec.labels); ++p) ClearHidden(grid, lies, part(p));
  FinishMask(spec, grid.padding, {}, out);
  return out;
}

}  // namespace radserve
