#include <array>
#include <cstring>

#include "addon/convert.h"

namespace radserve {

bool Has(const Napi::Object& object, const char* key) { return !object.Get(key).IsUndefined(); }

[[noreturn]] void Unexpected(const char* key) {
  throw EngineError("internal", std::string("The addon was called with an unexpected \"") + key + "\".");
}

double Number(const Napi::Object& object, const char* key) {
  const Napi::Value value = object.Get(key);
  if (!value.IsNumber()) Unexpected(key);
  return value.As<Napi::Number>().DoubleValue();
}

int Int(const Napi::Object& object, const char* key) { return static_cast<int>(Number(object, key)); }

std::string Text(const Napi::Object& object, const char* key) {
  const Napi::Value value = object.Get(key);
  if (!value.IsString()) Unexpected(key);
  return value.As<Napi::String>().Utf8Value();
}

namespace {

bool Flag(const Napi::Object& object, const char* key) { return object.Get(key).ToBoolean().Value(); }

Napi::Object Child(const Napi::Object& object, const char* key) {
  const Napi::Value value = object.Get(key);
  if (!value.IsObject()) Unexpected(key);
  return value.As<Napi::Object>();
}

std::vector<double> Numbers(const Napi::Object& object, const char* key) {
  return List(object, key, [](const Napi::Value& v) { return v.As<Napi::Number>().DoubleValue(); });
}

std::array<double, 3> Triple(const Napi::Object& object, const char* key) {
  const std::vector<double> numbers = Numbers(object, key);
  if (numbers.size() != 3) Unexpected(key);
  return {numbers[0], numbers[1], numbers[2]};
}

std::vector<uint16_t> Words(const Napi::Object& object, const char* key) {
  const Napi::Value value = object.Get(key);
  if (!value.IsTypedArray()) Unexpected(key);
  const auto array = value.As<Napi::Uint16Array>();
  return {array.Data(), array.Data() + array.ElementLength()};
}

Dtype ReadDtype(const Napi::Object& object) {
  const auto dtype = DtypeFromName(Text(object, "dtype"));
  if (!dtype) Unexpected("dtype");
  return *dtype;
}

WindowFunction ReadWindowFunction(const Napi::Object& object) {
  return OneOf<WindowFunction>(object, "function",
                               {{"LINEAR", WindowFunction::kLinear},
                                {"LINEAR_EXACT", WindowFunction::kLinearExact},
                                {"SIGMOID", WindowFunction::kSigmoid}});
}

LookupTable ReadTable(const Napi::Object& object) {
  return {Number(object, "firstMapped"), Int(object, "bits"), Words(object, "entries")};
}

Tensor Copied(const Tensor& tensor) {
  Tensor copy = MakeTensorForOverwrite(tensor.name, tensor.dtype, tensor.shape);
  std::memcpy(copy.data, tensor.data, tensor.Bytes());
  return copy;
}

PixelFormat ReadFormat(const Napi::Object& o) {
  PixelFormat format;
  format.rows = Int(o, "rows");
  format.columns = Int(o, "columns");
  format.samples = Int(o, "samplesPerPixel");
  format.bits_allocated = Int(o, "bitsAllocated");
  format.bits_stored = Int(o, "bitsStored");
  format.high_bit = Int(o, "highBit");
  format.is_signed = Flag(o, "signed");
  format.is_float = Flag(o, "float");
  format.packed422 = Flag(o, "packed422");
  format.photometric = OneOf<Photometric>(o, "photometricInterpretation",
                                          {{"MONOCHROME1", Photometric::kMonochrome1},
                                           {"MONOCHROME2", Photometric::kMonochrome2},
                                           {"PALETTE COLOR", Photometric::kPalette},
                                           {"RGB", Photometric::kRgb},
                                           {"YBR_FULL", Photometric::kYbrFull},
                                           {"YBR_FULL_422", Photometric::kYbrFull422},
                                           {"YBR_PARTIAL_420", Photometric::kYbrPartial420}});
  return format;
}

ModalityTransform ReadModality(const Napi::Object& o) {
  using Kind = ModalityTransform::Kind;
  ModalityTransform modality;
  modality.kind = OneOf<Kind>(
      o, "kind", {{"identity", Kind::kIdentity}, {"rescale", Kind::kRescale}, {"lut", Kind::kLut}});
  if (modality.kind == Kind::kRescale) {
    modality.slope = Number(o, "slope");
    modality.intercept = Number(o, "intercept");
  }
  if (modality.kind == Kind::kLut) modality.lut = ReadTable(Child(o, "lut"));
  return modality;
}

VoiTransform ReadVoi(const Napi::Value& value) {
  const auto o = value.As<Napi::Object>();
  VoiTransform voi;
  if (Text(o, "kind") == "lut") {
    voi.lut = ReadTable(Child(o, "lut"));
  } else {
    voi.window = {Number(o, "center"), Number(o, "width"), ReadWindowFunction(o)};
  }
  return voi;
}

Interpretation ReadInterpretation(const Napi::Object& o) {
  Interpretation i;
  i.modality = ReadModality(Child(o, "modality"));
  i.hounsfield = Has(o, "units") && Text(o, "units") == "HU";
  i.voi = List(o, "voi", ReadVoi);
  if (Has(o, "padding")) {
    const Napi::Object padding = Child(o, "padding");
    i.padding = PaddingRange{Number(padding, "from"), Number(padding, "to")};
  }
  if (Has(o, "palette")) {
    const Napi::Object palette = Child(o, "palette");
    i.palette = Palette{Number(palette, "firstMapped"), Int(palette, "bits"), Words(palette, "red"),
                        Words(palette, "green"), Words(palette, "blue")};
  }
  return i;
}

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
                             {"window", Kind::kWindow}});
  if (values.kind == Kind::kVoi) {
    values.index = Int(o, "index");
    values.if_absent = OneOf<IfAbsent>(o, "if_absent",
                                       {{"full_range", IfAbsent::kFullRange},
                                        {"min_max", IfAbsent::kMinMax},
                                        {"refuse", IfAbsent::kRefuse}});
  }
  if (values.kind == Kind::kWindow) {
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
  return n;
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

void ReadDetection(const Napi::Object& o, OutputSpec& spec) {
  spec.box_format = OneOf<BoxFormat>(o, "format",
                                     {{"xyxy", BoxFormat::kXyxy},
                                      {"xywh", BoxFormat::kXywh},
                                      {"cxcywh", BoxFormat::kCxcywh},
                                      {"yxyx", BoxFormat::kYxyx}});
  spec.normalised = Flag(o, "normalised");
  spec.scores_tensor = Text(o, "scores");
  if (Has(o, "classes")) {
    spec.classes_tensor = Text(o, "classes");
    spec.first_class = Int(o, "first");
  }
  if (Has(o, "iou")) {
    spec.nms_iou = Number(o, "iou");
    spec.nms_per_class = Flag(o, "per_class");
  }
}

}  // namespace

Plane ReadPlane(const Napi::Object& o) {
  const auto data = o.Get("data");
  if (!data.IsTypedArray()) Unexpected("data");
  const auto bytes = data.As<Napi::Uint8Array>();
  return {ReadFormat(Child(o, "format")),
          {bytes.Data(), bytes.ByteLength()},
          ReadInterpretation(Child(o, "interpretation")),
          Number(o, "pixelAspect")};
}

std::optional<VolumeGeometry> ReadGeometry(const Napi::Object& options) {
  if (!Has(options, "geometry")) return std::nullopt;
  const Napi::Object o = Child(options, "geometry");
  return VolumeGeometry{
      {Triple(o, "sliceDirection"), Triple(o, "rowDirection"), Triple(o, "columnDirection")},
      {Number(o, "sliceSpacing"), Number(o, "rowSpacing"), Number(o, "columnSpacing")}};
}

SessionSettings ReadSessionSettings(const Napi::Object& o) {
  SessionSettings settings;
  settings.provider = OneOf<Provider>(o, "provider", {{"cpu", Provider::kCpu}, {"cuda", Provider::kCuda}});
  settings.precision = OneOf<Precision>(
      o, "precision",
      {{"float32", Precision::kFloat32}, {"tf32", Precision::kTf32}, {"float16", Precision::kFloat16}});
  settings.device = Int(o, "device");
  settings.device_memory = static_cast<size_t>(Number(o, "deviceMemory"));
  return settings;
}

InputSpec ReadInput(const Napi::Value& value) {
  const auto o = value.As<Napi::Object>();
  using Monochrome1 = InputSpec::Monochrome1;
  InputSpec spec;
  spec.tensor = Text(o, "tensor");
  spec.dtype = ReadDtype(o);
  const std::string layout = Text(o, "layout");
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
                                             {"nearest", Interpolation::kNearest}});
  spec.values = ReadValues(Child(o, "values"));
  spec.monochrome1 = OneOf<Monochrome1>(o, "monochrome1",
                                        {{"invert", Monochrome1::kInvert},
                                         {"as_stored", Monochrome1::kAsStored},
                                         {"refuse", Monochrome1::kRefuse}});
  spec.channels = OneOf<ChannelOrder>(
      o, "channels",
      {{"grayscale", ChannelOrder::kGrayscale}, {"rgb", ChannelOrder::kRgb}, {"bgr", ChannelOrder::kBgr}});
  spec.accept_colour = Text(o, "colour_source") == "accept";
  if (Has(o, "clip")) {
    const std::vector<double> clip = Numbers(o, "clip");
    spec.clip = {clip.at(0), clip.at(1)};
  }
  spec.normalisation = ReadNormalisation(Child(o, "normalisation"));
  spec.background = Number(o, "background");
  if (Has(o, "spacing_mm")) spec.spacing_mm = Triple(o, "spacing_mm");
  if (Has(o, "orientation")) spec.orientation = Text(o, "orientation");
  return spec;
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
                           {"probability_map", Kind::kProbabilityMap},
                           {"heatmap", Kind::kHeatmap}});
  spec.tensor = Text(o, "tensor");
  spec.activation = OneOf<Activation>(o, "activation",
                                      {{"none", Activation::kNone},
                                       {"sigmoid", Activation::kSigmoid},
                                       {"softmax", Activation::kSoftmax},
                                       {"argmax", Activation::kArgmax},
                                       {"label_map", Activation::kLabelMap}});
  spec.labels = Int(o, "labels");
  spec.thresholds = Numbers(o, "thresholds");
  if (Has(o, "max_boxes")) spec.max_boxes = Int(o, "max_boxes");
  if (spec.kind == Kind::kClassification) spec.calibration = ReadCalibration(Child(o, "calibration"));
  if (spec.kind == Kind::kRegression) {
    spec.multiply = Numbers(o, "multiply");
    spec.add = Numbers(o, "add");
  }
  if (spec.kind == Kind::kSegmentation) {
    spec.steps = List(o, "steps", ReadStep);
    spec.fractional = Flag(o, "fractional");
  }
  if (spec.kind == Kind::kDetection) ReadDetection(o, spec);
  if (spec.kind == Kind::kProbabilityMap) {
    spec.map_threshold = Number(o, "threshold");
    spec.minimum_area = Number(o, "minimum_area");
    spec.unclip = Number(o, "unclip");
  }
  return spec;
}

Tensor ReadTensor(const Napi::Value& value) {
  const auto o = value.As<Napi::Object>();
  Tensor tensor{Text(o, "name"), ReadDtype(o), {}, nullptr, nullptr};
  tensor.shape = List(o, "shape", [](const Napi::Value& v) { return v.As<Napi::Number>().Int64Value(); });
  const auto data = o.Get("data");
  if (!data.IsTypedArray()) Unexpected("data");
  const auto bytes = data.As<Napi::Uint8Array>();
  if (bytes.ByteLength() != tensor.Bytes()) Unexpected("data");
  tensor.data = reinterpret_cast<std::byte*>(const_cast<uint8_t*>(bytes.Data()));
  if (reinterpret_cast<uintptr_t>(tensor.data) % DtypeSize(tensor.dtype) != 0) return Copied(tensor);
  return tensor;
}

std::optional<std::vector<std::vector<double>>> ReadThresholds(const Napi::Object& object) {
  if (!Has(object, "thresholds")) return std::nullopt;
  return List(object, "thresholds", [](const Napi::Value& value) {
    const auto numbers = value.As<Napi::Array>();
    std::vector<double> out;
    for (uint32_t i = 0; i < numbers.Length(); ++i) {
      out.push_back(numbers.Get(i).As<Napi::Number>().DoubleValue());
    }
    return out;
  });
}

}  // namespace radserve
