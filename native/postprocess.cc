#include "postprocess.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "activation.h"
#include "error.h"
#include "masks.h"
#include "resample.h"

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
  if (spec.activation == Activation::kSigmoid)
    std::transform(scores.begin(), scores.end(), scores.begin(), Sigmoid);
  if (spec.activation == Activation::kSoftmax) Softmax(scores);
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

/// Planes of a map that covers the tensor, one for each channel.
struct Maps {
  int rows = 0;
  int columns = 0;
  size_t channels = 0;
  std::vector<float> values;

  size_t Plane() const { return static_cast<size_t>(rows) * static_cast<size_t>(columns); }
  float* Channel(size_t c) { return values.data() + c * Plane(); }
};

/// [1,C,H,W], [1,H,W,C], or without the sides of length one that a model left out.
Maps ReadMaps(const Tensor& tensor, size_t channels, bool channels_last) {
  std::vector<int64_t> shape = tensor.shape;
  if (shape.size() == 2 && channels == 1) shape.insert(shape.begin(), 1);
  if (shape.size() == 3 &&
      (shape[0] != 1 || channels == 1 || shape.back() == static_cast<int64_t>(channels))) {
    // [C,H,W] or [H,W,C] without the batch, or [1,H,W] of a single channel.
    shape.insert(shape.begin(), 1);
  }
  const auto wanted = static_cast<int64_t>(channels);
  const bool four = shape.size() == 4 && shape[0] == 1;
  const bool first = four && shape[1] == wanted;
  const bool last = four && shape[3] == wanted;
  if ((!first && !last) || tensor.Elements() == 0) {
    Invalid(tensor, "a map of " + std::to_string(channels) + " channel(s) for one image");
  }
  Maps maps{static_cast<int>(shape[2]), static_cast<int>(shape[3]), channels, AsFloats(tensor)};
  if (!last || (first && !channels_last)) return maps;
  maps.rows = static_cast<int>(shape[1]);
  maps.columns = static_cast<int>(shape[2]);
  std::vector<float> planar(maps.values.size());
  for (size_t i = 0; i < maps.Plane(); ++i) {
    for (size_t c = 0; c < channels; ++c) planar[c * maps.Plane() + i] = maps.values[i * channels + c];
  }
  maps.values = std::move(planar);
  return maps;
}

/// The way back: centres of source pixels in the map's coordinates.
Axis BackRows(const Geometry& g, int map_rows) {
  const double ratio = static_cast<double>(map_rows) / g.rows;
  return {map_rows, g.source_rows, g.ToTensorY(0) * ratio, g.height / g.source_height * ratio};
}

Axis BackColumns(const Geometry& g, int map_columns) {
  const double ratio = static_cast<double>(map_columns) / g.columns;
  return {map_columns, g.source_columns, g.ToTensorX(0) * ratio, g.width / g.source_width * ratio};
}

std::vector<float> ToSourceGrid(const float* map, int rows, int columns, const Geometry& g,
                                Interpolation interpolation) {
  return ResamplePlane(map, BackRows(g, rows), BackColumns(g, columns), interpolation);
}

/// Calls `clear` for every source pixel that the model did not see or that is padding.
template <typename Clear>
void ForHiddenPixels(const SourceGrid& grid, const Clear& clear) {
  const Geometry& g = grid.geometry;
  const bool whole = g.source_height >= g.source_rows && g.source_width >= g.source_columns;
  if (whole && grid.padding.empty()) return;
  for (int y = 0; y < g.source_rows; ++y) {
    for (int x = 0; x < g.source_columns; ++x) {
      const size_t i =
          static_cast<size_t>(y) * static_cast<size_t>(g.source_columns) + static_cast<size_t>(x);
      const bool seen = y + 0.5 >= g.source_top && y + 0.5 <= g.source_top + g.source_height &&
                        x + 0.5 >= g.source_left && x + 0.5 <= g.source_left + g.source_width;
      if (!seen || (!grid.padding.empty() && grid.padding[i] != 0)) clear(i);
    }
  }
}

/// Adds a label's plane of probabilities, where the spec asks for them.
void AddFractions(const OutputSpec& spec, std::span<const float> plane, std::vector<uint8_t>& fractions) {
  if (!spec.fractional) return;
  std::transform(plane.begin(), plane.end(), std::back_inserter(fractions), InSteps);
}

/// The channel that is highest at each source pixel, the first of equal ones.
std::vector<uint8_t> HighestChannel(const OutputSpec& spec, const Tensor& tensor, const SourceGrid& grid,
                                    std::vector<uint8_t>& fractions) {
  Maps maps = ReadMaps(tensor, static_cast<size_t>(spec.labels) + 1, grid.channels_last);
  if (spec.activation == Activation::kSoftmax) {
    std::vector<float> pixel(maps.channels);
    for (size_t i = 0; i < maps.Plane(); ++i) {
      for (size_t c = 0; c < maps.channels; ++c) pixel[c] = maps.Channel(c)[i];
      Softmax(pixel);
      for (size_t c = 0; c < maps.channels; ++c) maps.Channel(c)[i] = pixel[c];
    }
  }
  CheckFinite(maps.values, tensor.name);
  std::vector<float> best;
  std::vector<uint8_t> mask;
  for (size_t c = 0; c < maps.channels; ++c) {
    const std::vector<float> plane =
        ToSourceGrid(maps.Channel(c), maps.rows, maps.columns, grid.geometry, Interpolation::kLinear);
    if (c == 0) {
      best = plane;
      mask.assign(plane.size(), 0);
      continue;
    }
    AddFractions(spec, plane, fractions);
    for (size_t i = 0; i < plane.size(); ++i) {
      if (plane[i] > best[i]) {
        best[i] = plane[i];
        mask[i] = static_cast<uint8_t>(c);
      }
    }
  }
  return mask;
}

std::vector<uint8_t> LabelMap(const OutputSpec& spec, const Tensor& tensor, const SourceGrid& grid) {
  Maps maps = ReadMaps(tensor, 1, grid.channels_last);
  CheckLabels(maps.values, spec.labels, tensor.name);
  const std::vector<float> plane =
      ToSourceGrid(maps.Channel(0), maps.rows, maps.columns, grid.geometry, Interpolation::kNearest);
  return std::vector<uint8_t>(plane.begin(), plane.end());
}

std::vector<uint8_t> OverThreshold(const OutputSpec& spec, const Tensor& tensor, const SourceGrid& grid,
                                   std::span<const double> thresholds, std::vector<uint8_t>& fractions) {
  Maps maps = ReadMaps(tensor, static_cast<size_t>(spec.labels), grid.channels_last);
  if (spec.activation == Activation::kSigmoid) {
    std::transform(maps.values.begin(), maps.values.end(), maps.values.begin(), Sigmoid);
  }
  CheckFinite(maps.values, tensor.name);
  CheckProbabilities(maps.values, tensor.name);
  std::vector<uint8_t> mask;
  for (size_t c = 0; c < maps.channels; ++c) {
    const std::vector<float> plane =
        ToSourceGrid(maps.Channel(c), maps.rows, maps.columns, grid.geometry, Interpolation::kLinear);
    for (const float v : plane) mask.push_back(static_cast<double>(v) >= thresholds[c] ? 1 : 0);
    AddFractions(spec, plane, fractions);
  }
  return mask;
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

void Segmentation(const OutputSpec& spec, const Tensor& tensor, const SourceGrid& grid,
                  std::span<const double> thresholds, OutputResult& out) {
  out.overlapping = MayOverlap(spec.activation);
  out.mask = out.overlapping ? OverThreshold(spec, tensor, grid, thresholds, out.fractions)
             : spec.activation == Activation::kLabelMap ? LabelMap(spec, tensor, grid)
                                                        : HighestChannel(spec, tensor, grid, out.fractions);
  const size_t plane = static_cast<size_t>(out.rows) * static_cast<size_t>(out.columns);
  const size_t planes = out.mask.size() / plane;
  const auto view = [&](size_t p) {
    return MaskView{std::span(out.mask).subspan(p * plane, plane), out.rows, out.columns, grid.padding};
  };
  ForHiddenPixels(grid, [&](size_t i) {
    for (size_t p = 0; p < planes; ++p) out.mask[p * plane + i] = 0;
    for (size_t at = i; at < out.fractions.size(); at += plane) out.fractions[at] = 0;
  });
  for (const MaskStep& step : spec.steps) {
    for (int label = 1; label <= spec.labels; ++label) {
      if (out.overlapping) {
        ApplyStep(step, label, view(static_cast<size_t>(label - 1)), 1);
      } else {
        ApplyStep(step, label, view(0), static_cast<uint8_t>(label));
      }
    }
  }
  out.counts.assign(static_cast<size_t>(spec.labels), 0);
  for (size_t p = 0; p < planes; ++p) {
    for (const uint8_t v : view(p).pixels) {
      if (v != 0) ++out.counts[out.overlapping ? p : v - 1u];
    }
  }
}

std::vector<Box> Detections(const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
                            std::span<const double> thresholds) {
  const Tensor& boxes = tensors(spec.tensor);
  const Tensor& scores = tensors(spec.scores_tensor);
  if (boxes.shape.empty() || boxes.shape.back() != 4) Invalid(boxes, "four numbers a box");
  const size_t count = boxes.Elements() / 4;
  const size_t columns = spec.classes_tensor.empty() ? static_cast<size_t>(spec.labels) : 1;
  if (scores.Elements() != count * columns) {
    Invalid(scores, std::to_string(columns) + " score(s) for each of " + std::to_string(count) + " boxes");
  }
  RawDetections raw{AsFloats(boxes), AsFloats(scores), {}};
  if (!spec.classes_tensor.empty()) {
    const Tensor& classes = tensors(spec.classes_tensor);
    if (classes.Elements() != count)
      Invalid(classes, "one class for each of " + std::to_string(count) + " boxes");
    raw.classes = AsFloats(classes);
    CheckFinite(raw.classes, classes.name);
  }
  return DecodeDetections(raw, spec, grid.geometry, thresholds);
}

Maps ActivatedMap(const OutputSpec& spec, const Tensor& tensor, const SourceGrid& grid) {
  Maps maps = ReadMaps(tensor, 1, grid.channels_last);
  if (spec.activation == Activation::kSigmoid) {
    std::transform(maps.values.begin(), maps.values.end(), maps.values.begin(), Sigmoid);
  }
  CheckFinite(maps.values, tensor.name);
  return maps;
}

}  // namespace

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
    case OutputSpec::Kind::kProbabilityMap: {
      Maps maps = ActivatedMap(spec, tensor, grid);
      out.boxes = BoxesOfMap(maps.values, maps.rows, maps.columns, spec, grid.geometry, thresholds[0]);
      break;
    }
    case OutputSpec::Kind::kHeatmap: {
      Maps maps = ActivatedMap(spec, tensor, grid);
      out.values =
          ToSourceGrid(maps.values.data(), maps.rows, maps.columns, grid.geometry, Interpolation::kLinear);
      ForHiddenPixels(grid, [&](size_t i) { out.values[i] = 0; });
      break;
    }
  }
  return out;
}

}  // namespace radserve
