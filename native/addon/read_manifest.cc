/// What the engine needs of a manifest: ImageInput of src/manifest/manifest.ts,
/// and NativeOutput of src/engine/engine-addon.ts.
#include "addon/convert.h"

namespace radserve {
namespace {

SizeSpec ReadSize(const Napi::Object& o) {
  using Kind = SizeSpec::Kind;
  SizeSpec size;
  size.kind = OneOf<Kind>(
      o, "kind", {{"fixed", Kind::kFixed}, {"multiple_of", Kind::kMultipleOf}, {"source", Kind::kSource}});
  if (size.kind == Kind::kFixed) {
    size.height = Int(o, "height");
    size.width = Int(o, "width");
    if (Has(o, "depth")) size.depth = Int(o, "depth");
  }
  if (size.kind == Kind::kMultipleOf) {
    size.multiple = Int(o, "multiple");
    size.max_side = Int(o, "max_side");
  }
  return size;
}

ValuesSpec ReadValues(const Napi::Object& o) {
  using Kind = ValuesSpec::Kind;
  using IfAbsent = ValuesSpec::IfAbsent;
  ValuesSpec values;
  values.kind = OneOf<Kind>(o, "kind",
                            {{"stored", Kind::kStored},
                             {"modality", Kind::kModality},
                             {"voi", Kind::kVoi},
                             {"window", Kind::kWindow},
                             {"windows", Kind::kWindow}});
  if (values.kind == Kind::kVoi) {
    values.index = Int(o, "index");
    values.if_absent = OneOf<IfAbsent>(o, "if_absent",
                                       {{"full_range", IfAbsent::kFullRange},
                                        {"min_max", IfAbsent::kMinMax},
                                        {"refuse", IfAbsent::kRefuse}});
  }
  if (Has(o, "windows")) {
    values.windows = List(o, "windows", [](const Napi::Value& v) {
      const auto window = v.As<Napi::Object>();
      return Window{Number(window, "center"), Number(window, "width"), ReadWindowFunction(window)};
    });
  } else if (values.kind == Kind::kWindow) {
    values.window = {Number(o, "center"), Number(o, "width"), ReadWindowFunction(o)};
  }
  return values;
}

NormalisationSpec ReadNormalisation(const Napi::Object& o) {
  using Kind = NormalisationSpec::Kind;
  NormalisationSpec n;
  n.kind = OneOf<Kind>(o, "kind",
                       {{"none", Kind::kNone},
                        {"scale", Kind::kScale},
                        {"mean_std", Kind::kMeanStd},
                        {"min_max", Kind::kMinMax},
                        {"z_score", Kind::kZScore},
                        {"percentile", Kind::kPercentile}});
  if (n.kind == Kind::kScale) {
    n.multiply = Number(o, "multiply");
    n.add = Number(o, "add");
  }
  if (n.kind == Kind::kMeanStd) {
    n.mean = Numbers(o, "mean");
    n.std = Numbers(o, "std");
  }
  if (n.kind == Kind::kPercentile) {
    n.low = Number(o, "low");
    n.high = Number(o, "high");
  }
  if (Has(o, "to")) {
    const std::vector<double> to = Numbers(o, "to");
    n.to = {to.at(0), to.at(1)};
  }
  if (Has(o, "of")) n.nonzero = Text(o, "of") == "nonzero";
  return n;
}

ResamplingSpec ReadResampling(const Napi::Object& o) {
  using Grid = ResamplingSpec::Grid;
  ResamplingSpec resampling;
  resampling.grid = OneOf<Grid>(o, "grid", {{"edges", Grid::kEdges}, {"first_voxel", Grid::kFirstVoxel}});
  resampling.order = Int(o, "order");
  resampling.order_back = Int(o, "order_back");
  const std::vector<double> spacing = Numbers(o, "spacing_mm");
  for (size_t axis = 0; axis < 3; ++axis) resampling.spacing_mm[axis] = spacing.at(axis);
  if (Has(o, "separate_above")) resampling.separate_above = Number(o, "separate_above");
  resampling.keep_range = Flag(o, "keep_range");
  resampling.clip_last = Text(o, "clip") == "after";
  resampling.crop_nonzero = Text(o, "crop") == "nonzero";
  resampling.activate_last = Text(o, "activation") == "after";
  return resampling;
}

CalibrationSpec ReadCalibration(const Napi::Object& o) {
  using Kind = CalibrationSpec::Kind;
  CalibrationSpec c;
  c.kind = OneOf<Kind>(o, "kind",
                       {{"none", Kind::kNone},
                        {"temperature", Kind::kTemperature},
                        {"platt", Kind::kPlatt},
                        {"isotonic", Kind::kIsotonic}});
  if (c.kind == Kind::kTemperature) c.temperature = Number(o, "temperature");
  if (c.kind == Kind::kPlatt) {
    c.a = Number(o, "a");
    c.b = Number(o, "b");
  }
  if (c.kind == Kind::kIsotonic) {
    c.x = Numbers(o, "x");
    c.y = Numbers(o, "y");
  }
  return c;
}

MaskStep ReadStep(const Napi::Value& value) {
  using Kind = MaskStep::Kind;
  const auto o = value.As<Napi::Object>();
  MaskStep step{};
  step.kind = OneOf<Kind>(o, "step",
                          {{"drop_border_connected", Kind::kDropBorderConnected},
                           {"largest_component", Kind::kLargestComponent},
                           {"minimum_area", Kind::kMinimumArea},
                           {"fill_holes", Kind::kFillHoles}});
  step.labels = List(o, "labels", [](const Napi::Value& v) { return v.As<Napi::Number>().Int32Value(); });
  if (step.kind == Kind::kMinimumArea) step.pixels = Int(o, "pixels");
  return step;
}

TableSpec ReadTable(const Napi::Object& o) {
  TableSpec table;
  table.columns_first = Flag(o, "columns_first");
  table.columns = Int(o, "columns");
  const std::vector<double> box = Numbers(o, "box");
  for (size_t i = 0; i < table.box.size(); ++i) table.box[i] = static_cast<int>(box.at(i));
  table.score = Int(o, "score");
  table.score_a_label = Flag(o, "score_a_label");
  if (Has(o, "class_column")) table.class_column = Int(o, "class_column");
  if (Has(o, "objectness")) {
    table.objectness = Int(o, "objectness");
    table.objectness_activation = OneOf<Activation>(
        o, "objectness_activation", {{"none", Activation::kNone}, {"sigmoid", Activation::kSigmoid}});
  }
  if (Has(o, "coefficients")) {
    table.coefficients = Int(o, "coefficients");
    table.coefficient_count = Int(o, "coefficient_count");
  }
  return table;
}

void ReadDetection(const Napi::Object& o, OutputSpec& spec) {
  spec.box_format = OneOf<BoxFormat>(o, "format",
                                     {{"xyxy", BoxFormat::kXyxy},
                                      {"xywh", BoxFormat::kXywh},
                                      {"cxcywh", BoxFormat::kCxcywh},
                                      {"yxyx", BoxFormat::kYxyx}});
  spec.normalised = Flag(o, "normalised");
  if (Has(o, "table")) {
    spec.table = ReadTable(Child(o, "table"));
    spec.several_labels = Flag(o, "several_labels");
  } else {
    spec.scores_tensor = Text(o, "scores");
  }
  if (Has(o, "classes")) spec.classes_tensor = Text(o, "classes");
  if (Has(o, "first")) spec.first_class = Int(o, "first");
  if (Has(o, "iou")) {
    spec.nms_iou = Number(o, "iou");
    spec.nms_per_class = Flag(o, "per_class");
  }
}

}  // namespace

InputSpec ReadInput(const Napi::Value& value) {
  const auto o = value.As<Napi::Object>();
  using Monochrome1 = InputSpec::Monochrome1;
  InputSpec spec;
  spec.tensor = Text(o, "tensor");
  spec.dtype = ReadDtype(o);
  const std::string layout = Text(o, "layout");
  if (Has(o, "numbers")) {
    spec.numbers = Int(o, "numbers");
    spec.flat = layout == "N";
    return spec;
  }
  spec.channels_last = layout.back() == 'C';
  spec.volume = layout.find('D') != std::string::npos;
  spec.size = ReadSize(Child(o, "size"));
  spec.fit = OneOf<Fit>(o, "fit",
                        {{"stretch", Fit::kStretch},
                         {"letterbox", Fit::kLetterbox},
                         {"crop", Fit::kCrop},
                         {"none", Fit::kNone}});
  spec.interpolation = OneOf<Interpolation>(o, "interpolation",
                                            {{"area", Interpolation::kArea},
                                             {"linear", Interpolation::kLinear},
                                             {"cubic", Interpolation::kCubic},
                                             {"nearest", Interpolation::kNearest},
                                             {"spline", Interpolation::kSpline}});
  spec.values = ReadValues(Child(o, "values"));
  spec.monochrome1 = OneOf<Monochrome1>(o, "monochrome1",
                                        {{"invert", Monochrome1::kInvert},
                                         {"as_stored", Monochrome1::kAsStored},
                                         {"refuse", Monochrome1::kRefuse}});
  spec.channels = OneOf<ChannelOrder>(o, "channels",
                                      {{"grayscale", ChannelOrder::kGrayscale},
                                       {"windows", ChannelOrder::kGrayscale},
                                       {"rgb", ChannelOrder::kRgb},
                                       {"bgr", ChannelOrder::kBgr}});
  spec.accept_colour = Text(o, "colour_source") == "accept";
  if (Has(o, "label_channels")) spec.label_channels = Int(o, "label_channels");
  if (Has(o, "clip")) {
    const std::vector<double> clip = Numbers(o, "clip");
    spec.clip = {clip.at(0), clip.at(1)};
  }
  spec.normalisation = ReadNormalisation(Child(o, "normalisation"));
  spec.background = Number(o, "background");
  if (Has(o, "source")) spec.source = static_cast<size_t>(Int(o, "source"));
  if (Has(o, "parts")) spec.parts = List(o, "parts", ReadInput);
  if (Has(o, "spacing_mm")) spec.spacing_mm = Triple(o, "spacing_mm");
  if (Has(o, "orientation")) spec.orientation = Text(o, "orientation");
  if (Has(o, "resampling")) spec.resampling = ReadResampling(Child(o, "resampling"));
  if (Has(o, "neighbours")) {
    const Napi::Object around = Child(o, "neighbours");
    spec.neighbours = {Int(around, "before"), Int(around, "after"), Text(around, "edges") == "repeat"};
  }
  return spec;
}

TilingSpec ReadTiling(const Napi::Object& o) {
  TilingSpec tiling;
  const auto whole = [](const Napi::Value& v) { return v.As<Napi::Number>().Int32Value(); };
  tiling.window = List(o, "window", whole);
  tiling.overlap = Number(o, "overlap");
  tiling.steps = OneOf<TilingSpec::Steps>(
      o, "steps", {{"even", TilingSpec::Steps::kEven}, {"stride", TilingSpec::Steps::kStride}});
  if (Has(o, "gaussian")) {
    const Napi::Object gaussian = Child(o, "gaussian");
    tiling.gaussian = {Number(gaussian, "sigma"), Flag(gaussian, "middle"), Number(gaussian, "least")};
  }
  tiling.mirrored = List(o, "mirrored", whole);
  tiling.padding = static_cast<float>(Number(o, "padding"));
  return tiling;
}

OutputSpec ReadOutput(const Napi::Value& value) {
  using Kind = OutputSpec::Kind;
  const auto o = value.As<Napi::Object>();
  OutputSpec spec;
  spec.kind = OneOf<Kind>(o, "kind",
                          {{"classification", Kind::kClassification},
                           {"regression", Kind::kRegression},
                           {"segmentation", Kind::kSegmentation},
                           {"detection", Kind::kDetection},
                           {"detection_table", Kind::kDetection},
                           {"probability_map", Kind::kProbabilityMap},
                           {"heatmap", Kind::kHeatmap}});
  spec.tensor = Text(o, "tensor");
  spec.activation = OneOf<Activation>(o, "activation",
                                      {{"none", Activation::kNone},
                                       {"sigmoid", Activation::kSigmoid},
                                       {"softmax", Activation::kSoftmax},
                                       {"argmax", Activation::kArgmax},
                                       {"label_map", Activation::kLabelMap},
                                       {"prototypes", Activation::kPrototypes}});
  spec.labels = Int(o, "labels");
  spec.thresholds = Numbers(o, "thresholds");
  if (Has(o, "input")) spec.input = static_cast<size_t>(Int(o, "input"));
  if (Has(o, "max_boxes")) spec.max_boxes = Int(o, "max_boxes");
  if (spec.kind == Kind::kClassification) spec.calibration = ReadCalibration(Child(o, "calibration"));
  if (spec.kind == Kind::kRegression) {
    spec.multiply = Numbers(o, "multiply");
    spec.add = Numbers(o, "add");
  }
  if (spec.kind == Kind::kSegmentation) {
    spec.steps = List(o, "steps", ReadStep);
    spec.fractional = Flag(o, "fractional");
    spec.model_grid = Flag(o, "model_grid");
    if (Has(o, "boxes_output")) spec.boxes_output = static_cast<size_t>(Int(o, "boxes_output"));
  }
  if (spec.kind == Kind::kDetection) ReadDetection(o, spec);
  if (spec.kind == Kind::kProbabilityMap) {
    spec.map_threshold = Number(o, "threshold");
    spec.minimum_area = Number(o, "minimum_area");
    spec.unclip = Number(o, "unclip");
  }
  return spec;
}

}  // namespace radserve
