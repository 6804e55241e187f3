#include "postprocess/postprocess.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "postprocess/activation.h"
#include "postprocess/detections.h"
#include "postprocess/maps.h"
#include "postprocess/masks.h"
#include "postprocess/projection.h"
#include "resample/resample.h"

namespace radserve {
namespace {

[[noreturn]] void Invalid(const Tensor& tensor, const std::string& expected) {
  throw EngineError("output_invalid", "Expected " + expected + " from the output \"" + tensor.name +
                                          "\", found shape " + ShapeText(tensor.shape) + ".");
}

double Isotonic(const CalibrationSpec& c, double score) {
  if (score <= c.x.front()) return c.y.front();
  if (score >= c.x.back()) return c.y.back();
  const auto above = static_cast<size_t>(std::upper_bound(c.x.begin(), c.x.end(), score) - c.x.begin());
  const double span = c.x[above] - c.x[above - 1];
  const double part = span > 0 ? (score - c.x[above - 1]) / span : 1;
  return c.y[above - 1] + (c.y[above] - c.y[above - 1]) * part;
}

float Calibrated(const CalibrationSpec& c, float score) {
  switch (c.kind) {
    case CalibrationSpec::Kind::kPlatt:
      return static_cast<float>(1 / (1 + std::exp(c.a * static_cast<double>(score) + c.b)));
    case CalibrationSpec::Kind::kIsotonic:
      return static_cast<float>(Isotonic(c, static_cast<double>(score)));
    default:
      return score;
  }
}

std::vector<float> Scores(const OutputSpec& spec, const Tensor& tensor) {
  if (tensor.Elements() != static_cast<size_t>(spec.labels)) {
    Invalid(tensor, std::to_string(spec.labels) + " scores, one for each label,");
  }
  std::vector<float> scores = AsFloats(tensor);
  if (spec.calibration.kind == CalibrationSpec::Kind::kTemperature) {
    for (float& s : scores) s = static_cast<float>(static_cast<double>(s) / spec.calibration.temperature);
  }
  if (spec.activation == Activation::kSigmoid) Sigmoid(scores);
  if (spec.activation == Activation::kSoftmax) SoftmaxOfScores(scores, tensor.shape, scores.size());
  for (float& s : scores) s = Calibrated(spec.calibration, s);
  CheckFinite(scores, tensor.name);
  return scores;
}

std::vector<float> Regression(const OutputSpec& spec, const Tensor& tensor) {
  if (tensor.Elements() != spec.multiply.size()) {
    Invalid(tensor, std::to_string(spec.multiply.size()) + " values");
  }
  std::vector<float> values = AsFloats(tensor);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<double>(values[i]) * spec.multiply[i] + spec.add[i]);
  }
  CheckFinite(values, tensor.name);
  return values;
}

std::vector<float> ToSourceGrid(const Maps& maps, const Geometry& g) {
  return ResamplePlane(maps.Channel(0), BackRows(g, maps.rows()), BackColumns(g, maps.columns()),
                       Interpolation::kLinear);
}

/// The pixels [begin, end) of `count` whose centres lie in `length` from `first` on.
std::pair<size_t, size_t> Seen(int count, double first, double length) {
  const auto sees = [&](int i) { return i + 0.5 >= first && i + 0.5 <= first + length; };
  int begin = 0;
  while (begin < count && !sees(begin)) ++begin;
  int end = count;
  while (end > begin && !sees(end - 1)) --end;
  return {static_cast<size_t>(begin), static_cast<size_t>(end)};
}

/// Zero for every source pixel that the model did not see or that is padding.
template <typename T>
void ClearHidden(const SourceGrid& grid, std::span<T> plane) {
  const Geometry& g = grid.geometry;
  const auto width = static_cast<size_t>(g.source_columns);
  const auto [top, bottom] = Seen(g.source_rows, g.source_top, g.source_height);
  const auto [left, right] = Seen(g.source_columns, g.source_left, g.source_width);
  for (size_t y = 0; y < static_cast<size_t>(g.source_rows); ++y) {
    const std::span<T> row = plane.subspan(y * width, width);
    const bool seen = y >= top && y < bottom;
    std::fill(row.begin(), row.begin() + static_cast<ptrdiff_t>(seen ? left : width), T{0});
    std::fill(row.begin() + static_cast<ptrdiff_t>(right), row.end(), T{0});
  }
  for (size_t i = 0; i < grid.padding.size(); ++i) plane[i] = grid.padding[i] != 0 ? T{0} : plane[i];
}

/// The labels of a map at each source pixel, the nearest.
std::vector<uint8_t> LabelMap(const OutputSpec& spec, const Tensor& tensor, const SourceGrid& grid) {
  const Maps maps(tensor, 1, grid.channels_last);
  std::vector<uint8_t> labels(maps.pixels());
  ToLabels(maps.values(), spec.labels, tensor.name, labels.data());
  return ProjectNearest(std::move(labels), BackRows(grid.geometry, maps.rows()),
                        BackColumns(grid.geometry, maps.columns()));
}

/// The mask of probabilities: the highest channel, or for labels that may overlap a plane each.
void DecideProbabilities(const OutputSpec& spec, const Tensor& tensor, const SourceGrid& grid,
                         std::span<const double> thresholds, OutputResult& out) {
  const auto labels = static_cast<size_t>(spec.labels);
  Maps maps(tensor, out.overlapping ? labels : labels + 1, grid.channels_last);
  maps.Activate(spec.activation);
  CheckFinite(maps.values(), tensor.name);
  if (out.overlapping) CheckProbabilities(maps.values(), tensor.name);
  const Axis rows = BackRows(grid.geometry, maps.rows());
  const Axis columns = BackColumns(grid.geometry, maps.columns());
  std::vector<uint8_t>* const fractions = spec.fractional ? &out.fractions : nullptr;
  if (out.overlapping) {
    ProjectOverThresholds(maps, rows, columns, thresholds, out.mask, fractions);
  } else {
    ProjectHighest(maps, rows, columns, out.mask, fractions);
  }
}

void Segmentation(const OutputSpec& spec, const Tensor& tensor, const SourceGrid& grid,
                  std::span<const double> thresholds, OutputResult& out) {
  out.overlapping = MayOverlap(spec.activation);
  if (spec.activation == Activation::kLabelMap) {
    out.mask = LabelMap(spec, tensor, grid);
  } else {
    DecideProbabilities(spec, tensor, grid, thresholds, out);
  }
  const size_t plane = static_cast<size_t>(out.rows) * static_cast<size_t>(out.columns);
  const auto part = [&](size_t p) { return std::span(out.mask).subspan(p * plane, plane); };
  for (size_t at = 0; at < out.mask.size(); at += plane) ClearHidden(grid, part(at / plane));
  for (size_t at = 0; at < out.fractions.size(); at += plane) {
    ClearHidden(grid, std::span(out.fractions).subspan(at, plane));
  }
  FinishMask(spec, grid.padding, {}, out);
}

std::vector<Box> Detections(const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
                            std::span<const double> thresholds) {
  const Tensor& boxes = tensors(spec.tensor);
  if (spec.table) return DecodeDetections(ReadTable(boxes, spec), spec, grid.geometry, thresholds);
  const Tensor& scores = tensors(spec.scores_tensor);
  if (boxes.shape.empty() || boxes.shape.back() != 4) Invalid(boxes, "four numbers a box");
  const size_t count = boxes.Elements() / 4;
  const size_t columns = spec.classes_tensor.empty() ? static_cast<size_t>(spec.labels) : 1;
  // With the labels first the numbers would be as many, and each another's.
  const auto labels = static_cast<int64_t>(columns);
  const bool side_by_side = columns == 1 || (!scores.shape.empty() && scores.shape.back() == labels);
  if (scores.Elements() != count * columns || !side_by_side) {
    Invalid(scores, std::to_string(columns) + " score(s) for each of " + std::to_string(count) +
                        " boxes, those of a box side by side");
  }
  RawDetections raw{AsFloats(boxes), AsFloats(scores), {}, {}, {}};
  if (!spec.classes_tensor.empty()) {
    const Tensor& classes = tensors(spec.classes_tensor);
    if (classes.Elements() != count)
      Invalid(classes, "one class for each of " + std::to_string(count) + " boxes");
    raw.classes = AsFloats(classes);
    CheckFinite(raw.classes, classes.name);
  }
  return DecodeDetections(std::move(raw), spec, grid.geometry, thresholds);
}

/// A map of one channel to boxes or, for a heatmap, to the source grid.
void OneMap(const OutputSpec& spec, const Tensor& tensor, const SourceGrid& grid,
            std::span<const double> thresholds, OutputResult& out) {
  Maps maps(tensor, 1, grid.channels_last);
  if (spec.activation == Activation::kSigmoid) maps.Activate(spec.activation);
  CheckFinite(maps.values(), tensor.name);
  if (spec.kind == OutputSpec::Kind::kProbabilityMap) {
    out.boxes = BoxesOfMap(maps.values(), maps.rows(), maps.columns(), spec, grid.geometry, thresholds[0]);
    return;
  }
  out.values = ToSourceGrid(maps, grid.geometry);
  ClearHidden(grid, std::span(out.values));
}

void ApplyStep(const MaskStep& step, int label, const MaskView& view, uint8_t value) {
  if (std::find(step.labels.begin(), step.labels.end(), label) == step.labels.end()) return;
  switch (step.kind) {
    case MaskStep::Kind::kDropBorderConnected:
      return DropBorderConnected(view, value);
    case MaskStep::Kind::kLargestComponent:
      return KeepLargestComponent(view, value);
    case MaskStep::Kind::kMinimumArea:
      return DropSmallComponents(view, value, step.pixels);
    case MaskStep::Kind::kFillHoles:
      return FillHoles(view, value);
  }
}

}  // namespace

void FinishMask(const OutputSpec& spec, std::span<const uint8_t> padding, const std::stop_token& stop,
                MaskResult& out) {
  const size_t plane = out.Voxels();
  const auto part = [&](size_t p) { return std::span(out.mask).subspan(p * plane, plane); };
  for (const MaskStep& step : spec.steps) {
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

OutputResult Postprocess(const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
                         std::span<const double> thresholds) {
  OutputResult out;
  out.kind = spec.kind;
  out.tensor = spec.tensor;
  out.rows = grid.geometry.source_rows;
  out.columns = grid.geometry.source_columns;
  const Tensor& tensor = tensors(spec.tensor);
  switch (spec.kind) {
    case OutputSpec::Kind::kClassification:
      out.values = Scores(spec, tensor);
      break;
    case OutputSpec::Kind::kRegression:
      out.values = Regression(spec, tensor);
      break;
    case OutputSpec::Kind::kSegmentation:
      Segmentation(spec, tensor, grid, thresholds, out);
      break;
    case OutputSpec::Kind::kDetection:
      out.boxes = Detections(spec, tensors, grid, thresholds);
      break;
    case OutputSpec::Kind::kProbabilityMap:
    case OutputSpec::Kind::kHeatmap:
      OneMap(spec, tensor, grid, thresholds, out);
      break;
  }
  return out;
}

OutputResult PostprocessPrototypes(const OutputSpec& spec, const TableOfBoxes& boxes,
                                   const TensorByName& tensors, const SourceGrid& grid,
                                   std::span<const double> thresholds) {
  const Geometry& g = grid.geometry;
  OutputResult out;
  out.kind = spec.kind;
  out.tensor = spec.tensor;
  out.rows = g.source_rows;
  out.columns = g.source_columns;
  out.overlapping = true;
  const size_t plane = static_cast<size_t>(out.rows) * static_cast<size_t>(out.columns);
  out.mask.assign(plane * static_cast<size_t>(spec.labels), 0);
  const auto part = [&](size_t p) { return std::span(out.mask).subspan(p * plane, plane); };
  RawDetections raw = ReadTable(tensors(boxes.spec.tensor), boxes.spec);
  const std::vector<float> coefficients = std::move(raw.coefficients);
  CheckFinite(coefficients, boxes.spec.tensor);
  const auto kinds = static_cast<size_t>(boxes.spec.table->coefficient_count);
  const Maps prototypes(tensors(spec.tensor), kinds, grid.channels_last);
  CheckFinite(prototypes.values(), spec.tensor);
  const Axis rows = BackRows(g, prototypes.rows());
  const Axis columns = BackColumns(g, prototypes.columns());
  for (const Box& box : DecodeDetections(std::move(raw), boxes.spec, g, boxes.thresholds)) {
    std::vector<float> sum(prototypes.pixels());
    for (size_t k = 0; k < kinds; ++k) {
      const float coefficient = coefficients[box.row * kinds + k];
      const float* prototype = prototypes.Channel(k);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += coefficient * prototype[i];
    }
    const std::vector<float> logits = ResamplePlane(sum.data(), rows, columns, Interpolation::kLinear);
    const double threshold = thresholds[static_cast<size_t>(box.label)];
    const auto least = static_cast<float>(std::log(threshold / (1 - threshold)));
    const std::span<uint8_t> mask = part(static_cast<size_t>(box.label));
    for (int y = 0; y < out.rows; ++y) {
      if (y + 0.5 < box.y0 || y + 0.5 >= box.y1) continue;
      const size_t first = static_cast<size_t>(y) * static_cast<size_t>(out.columns);
      for (int x = 0; x < out.columns; ++x) {
        if (x + 0.5 < box.x0 || x + 0.5 >= box.x1) continue;
        if (logits[first + static_cast<size_t>(x)] >= least) mask[first + static_cast<size_t>(x)] = 1;
      }
    }
  }
  for (size_t p = 0; p < static_cast<size_t>(spec.labels); ++p) ClearHidden(grid, part(p));
  FinishMask(spec, grid.padding, {}, out);
  return out;
}

}  // namespace radserve
