/// Reads what the engine needs of a manifest's inputs: ImageInput of src/manifest/manifest.ts.
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

IntensitySpec ReadIntensity(const Napi::Value& value) {
  using Kind = IntensitySpec::Kind;
  const auto o = value.As<Napi::Object>();
  IntensitySpec step;
  step.kind = OneOf<Kind>(o, "kind",
                          {{"min_max", Kind::kMinMax},
                           {"z_score", Kind::kZScore},
                           {"percentile", Kind::kPercentile},
                           {"clip_percentiles", Kind::kClipPercentiles}});
  step.at_source = Text(o, "at") == "source";
  step.nonzero = Text(o, "of") == "nonzero";
  step.each_channel = Text(o, "channels") == "each";
  if (Has(o, "low")) {
    step.low = Number(o, "low");
    step.high = Number(o, "high");
  }
  if (Has(o, "to")) {
    const std::vector<double> to = Numbers(o, "to");
    step.to = {to.at(0), to.at(1)};
  }
  if (Has(o, "clip")) step.clip = Flag(o, "clip");
  return step;
}

ResamplingSpec ReadResampling(const Napi::Object& o) {
  using Grid = ResamplingSpec::Grid;
  ResamplingSpec resampling;
  resampling.grid = OneOf<Grid>(o, "grid", {{"edges", Grid::kEdges}, {"first_voxel", Grid::kFirstVoxel}});
  resampling.order = Int(o, "order");
  resampling.order_back = Int(o, "order_back");
  const std::vector<double> spacing = Numbers(o, "spacing_mm");
  for (size_t axis = 0; axis < 3; ++axis) resampling.spacing_mm[axis] = spacing.at(axis);
  if (Has(o, "multiple_of")) {
    const std::vector<double> multiples = Numbers(o, "multiple_of");
    for (size_t axis = 0; axis < 3; ++axis)
      resampling.multiple_of[axis] = static_cast<int>(multiples.at(axis));
  }
  if (Has(o, "separate_above")) resampling.separate_above = Number(o, "separate_above");
  resampling.keep_range = Flag(o, "keep_range");
  resampling.clip_last = Text(o, "clip") == "after";
  resampling.crop_nonzero = Text(o, "crop") == "nonzero";
  resampling.crop_foreground = Text(o, "crop") == "foreground";
  resampling.activate_last = Text(o, "activation") == "after";
  return resampling;
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
  spec.transposed = layout == "NCWH";
  spec.volume = layout.find('D') != std::string::npos;
  spec.size = ReadSize(Child(o, "size"));
  spec.fit = OneOf<Fit>(o, "fit",
                        {{"stretch", Fit::kStretch},
                         {"letterbox", Fit::kLetterbox},
                         {"crop", Fit::kCrop},
                         {"none", Fit::kNone}});
  spec.interpolation = OneOf<Interpolation>(o, "interpolation",
                                            {{"area", Interpolation::kArea},
                                             {"adaptive_area", Interpolation::kAdaptiveArea},
                                             {"linear", Interpolation::kLinear},
                                             {"cubic", Interpolation::kCubic},
                                             {"nearest", Interpolation::kNearest},
                                             {"spline", Interpolation::kSpline}});
  if (Has(o, "antialias")) spec.antialias = Flag(o, "antialias");
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
  if (Has(o, "intensity")) spec.intensity = List(o, "intensity", ReadIntensity);
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
  tiling.pad_edge = o.Get("padding").IsString();
  if (!tiling.pad_edge) tiling.padding = static_cast<float>(Number(o, "padding"));
  return tiling;
}

}  // namespace radserve
