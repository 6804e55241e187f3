#include <cstring>

#include "addon/convert.h"

namespace radserve {

std::span<uint8_t> Bytes(const Napi::Value& value, const char* name) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_uint8_array)
    Unexpected(name);
  auto array = value.As<Napi::Uint8Array>();
  return {array.Data(), array.ByteLength()};
}

std::span<uint8_t> Given::Bytes(const char* field) const {
  return radserve::Bytes(At(field), field);
}

size_t Whole(const Napi::Value& value, int64_t least, const char* name) {
  if (!value.IsNumber() || value.As<Napi::Number>().Int64Value() < least) Unexpected(name);
  return static_cast<size_t>(value.As<Napi::Number>().Int64Value());
}

Description ReadDescription(const Napi::Value& value) {
  if (value.IsBoolean()) return Description(value.As<Napi::Boolean>().Value());
  if (value.IsNumber()) return Description(value.As<Napi::Number>().DoubleValue());
  if (value.IsString()) return Description(value.As<Napi::String>().Utf8Value());
  if (!value.IsObject()) return {};
  const auto object = value.As<Napi::Object>();
  std::vector<std::string> names;
  Description::Items items;
  if (value.IsArray()) {
    const auto array = value.As<Napi::Array>();
    for (uint32_t i = 0; i < array.Length(); ++i) items.push_back(ReadDescription(array.Get(i)));
    return Description(std::move(items));
  }
  const Napi::Array keys = object.GetPropertyNames();
  for (uint32_t i = 0; i < keys.Length(); ++i) {
    const Napi::Value item = object.Get(keys.Get(i));
    if (item.IsUndefined()) continue;
    names.push_back(keys.Get(i).As<Napi::String>().Utf8Value());
    items.push_back(ReadDescription(item));
  }
  return {std::move(names), std::move(items)};
}

namespace {

std::vector<uint16_t> Words(const Given& object, const char* field) {
  const Napi::Value value = object.At(field);
  if (!value.IsTypedArray()) Unexpected(field);
  const auto array = value.As<Napi::Uint16Array>();
  return {array.Data(), array.Data() + array.ElementLength()};
}

LookupTable ReadTable(const Given& object) {
  return {object.Number("firstMapped"), object.Int("bits"), Words(object, "entries")};
}

Tensor Copied(const Tensor& tensor) {
  Tensor copy = MakeTensorForOverwrite(tensor.name, tensor.dtype, tensor.shape);
  std::memcpy(copy.data, tensor.data, tensor.Bytes());
  return copy;
}

Dtype ReadDtype(const Given& object) {
  const auto dtype = DtypeFromName(object.Text("dtype"));
  if (!dtype) Unexpected("dtype");
  return *dtype;
}

Window ReadWindow(const Given& o) {
  return {o.Number("center"), o.Number("width"),
          o.OneOf<WindowFunction>("function", {{"LINEAR", WindowFunction::kLinear},
                                               {"LINEAR_EXACT", WindowFunction::kLinearExact},
                                               {"SIGMOID", WindowFunction::kSigmoid}})};
}

PixelFormat ReadFormat(const Given& o) {
  PixelFormat format;
  o.Into("rows", format.rows, "columns", format.columns, "samplesPerPixel", format.samples);
  o.Into("bitsAllocated", format.bits_allocated, "bitsStored", format.bits_stored, "highBit",
         format.high_bit);
  o.Into("signed", format.is_signed, "float", format.is_float, "packed422", format.packed422);
  format.photometric = o.OneOf<Photometric>("photometricInterpretation",
                                            {{"MONOCHROME1", Photometric::kMonochrome1},
                                             {"MONOCHROME2", Photometric::kMonochrome2},
                                             {"PALETTE COLOR", Photometric::kPalette},
                                             {"RGB", Photometric::kRgb},
                                             {"YBR_FULL", Photometric::kYbrFull},
                                             {"YBR_FULL_422", Photometric::kYbrFull422},
                                             {"YBR_PARTIAL_420", Photometric::kYbrPartial420}});
  return format;
}

ModalityTransform ReadModality(const Given& o) {
  using Kind = ModalityTransform::Kind;
  ModalityTransform modality;
  modality.kind = o.OneOf<Kind>(
      "kind", {{"identity", Kind::kIdentity}, {"rescale", Kind::kRescale}, {"lut", Kind::kLut}});
  if (modality.kind == Kind::kRescale)
    o.Into("slope", modality.slope, "intercept", modality.intercept);
  if (modality.kind == Kind::kLut) modality.lut = ReadTable(o.Child("lut"));
  return modality;
}

VoiTransform ReadVoi(const Given& o) {
  if (o.Text("kind") == "lut") return {{}, ReadTable(o.Child("lut"))};
  return {ReadWindow(o), std::nullopt};
}

Interpretation ReadInterpretation(const Given& o) {
  Interpretation i;
  i.modality = ReadModality(o.Child("modality"));
  i.hounsfield = o.Has("units") && o.Text("units") == "HU";
  i.voi = o.List("voi", ReadVoi);
  if (const auto padding = o.Find("padding"))
    i.padding = PaddingRange{padding->Number("from"), padding->Number("to")};
  if (const auto palette = o.Find("palette")) {
    i.palette = Palette{palette->Number("firstMapped"), palette->Int("bits"),
                        Words(*palette, "red"), Words(*palette, "green"), Words(*palette, "blue")};
  }
  return i;
}

// What the engine needs of a manifest's inputs: ImageInput of src/manifest/manifest.ts.

SizeSpec ReadSize(const Given& o) {
  using Kind = SizeSpec::Kind;
  SizeSpec size;
  size.kind = o.OneOf<Kind>(
      "kind",
      {{"fixed", Kind::kFixed}, {"multiple_of", Kind::kMultipleOf}, {"source", Kind::kSource}});
  if (size.kind == Kind::kFixed) {
    o.Into("height", size.height, "width", size.width);
    if (o.Has("depth")) size.depth = o.Int("depth");
  }
  if (size.kind == Kind::kMultipleOf) o.Into("multiple", size.multiple, "max_side", size.max_side);
  return size;
}

ValuesSpec ReadValues(const Given& o) {
  using Kind = ValuesSpec::Kind;
  using IfAbsent = ValuesSpec::IfAbsent;
  ValuesSpec values;
  values.kind = o.OneOf<Kind>("kind", {{"stored", Kind::kStored},
                                       {"modality", Kind::kModality},
                                       {"voi", Kind::kVoi},
                                       {"window", Kind::kWindow},
                                       {"windows", Kind::kWindow}});
  if (values.kind == Kind::kVoi) {
    values.index = o.Int("index");
    values.if_absent = o.OneOf<IfAbsent>("if_absent", {{"full_range", IfAbsent::kFullRange},
                                                       {"min_max", IfAbsent::kMinMax},
                                                       {"refuse", IfAbsent::kRefuse}});
  }
  if (o.Has("windows")) {
    values.windows = o.List("windows", ReadWindow);
  } else if (values.kind == Kind::kWindow) {
    values.window = ReadWindow(o);
  }
  return values;
}

NormalisationSpec ReadNormalisation(const Given& o) {
  using Kind = NormalisationSpec::Kind;
  NormalisationSpec n;
  n.kind = o.OneOf<Kind>("kind", {{"none", Kind::kNone},
                                  {"scale", Kind::kScale},
                                  {"mean_std", Kind::kMeanStd},
                                  {"min_max", Kind::kMinMax},
                                  {"z_score", Kind::kZScore},
                                  {"percentile", Kind::kPercentile}});
  if (n.kind == Kind::kScale) o.Into("multiply", n.multiply, "add", n.add);
  if (n.kind == Kind::kMeanStd) o.Into("mean", n.mean, "std", n.std);
  if (n.kind == Kind::kPercentile) o.Into("low", n.low, "high", n.high);
  if (o.Has("to")) n.to = o.Some<2>("to");
  if (o.Has("of")) n.nonzero = o.Text("of") == "nonzero";
  return n;
}

IntensitySpec ReadIntensity(const Given& o) {
  using Kind = IntensitySpec::Kind;
  IntensitySpec step;
  step.kind = o.OneOf<Kind>("kind", {{"min_max", Kind::kMinMax},
                                     {"z_score", Kind::kZScore},
                                     {"percentile", Kind::kPercentile},
                                     {"clip_percentiles", Kind::kClipPercentiles}});
  step.at_source = o.Text("at") == "source";
  step.nonzero = o.Text("of") == "nonzero";
  step.each_channel = o.Text("channels") == "each";
  if (o.Has("low")) o.Into("low", step.low, "high", step.high);
  if (o.Has("to")) step.to = o.Some<2>("to");
  if (o.Has("clip")) step.clip = o.Flag("clip");
  return step;
}

ResamplingSpec ReadResampling(const Given& o) {
  using Grid = ResamplingSpec::Grid;
  ResamplingSpec resampling;
  resampling.grid =
      o.OneOf<Grid>("grid", {{"edges", Grid::kEdges}, {"first_voxel", Grid::kFirstVoxel}});
  o.Into("order", resampling.order, "order_back", resampling.order_back, "keep_range",
         resampling.keep_range);
  resampling.spacing_mm = o.Some<3>("spacing_mm");
  if (o.Has("multiple_of")) resampling.multiple_of = o.Some<3, int>("multiple_of");
  if (o.Has("separate_above")) resampling.separate_above = o.Number("separate_above");
  resampling.clip_last = o.Text("clip") == "after";
  resampling.crop_nonzero = o.Text("crop") == "nonzero";
  resampling.crop_foreground = o.Text("crop") == "foreground";
  resampling.activate_last = o.Text("activation") == "after";
  return resampling;
}

}  // namespace

Plane ReadPlane(const Given& o) {
  const auto data = o.At("data");
  if (!data.IsTypedArray()) Unexpected("data");
  const auto bytes = data.As<Napi::Uint8Array>();
  return {ReadFormat(o.Child("format")),
          {bytes.Data(), bytes.ByteLength()},
          ReadInterpretation(o.Child("interpretation")),
          o.Number("pixelAspect")};
}

std::optional<VolumeGeometry> ReadGeometry(const Given& options) {
  const auto o = options.Find("geometry");
  if (!o) return std::nullopt;
  return VolumeGeometry{
      {o->Some<3>("sliceDirection"), o->Some<3>("rowDirection"), o->Some<3>("columnDirection")},
      {o->Number("sliceSpacing"), o->Number("rowSpacing"), o->Number("columnSpacing")},
      o->Some<3>("origin")};
}

SessionSettings ReadSessionSettings(const Given& o) {
  SessionSettings settings;
  settings.provider =
      o.OneOf<Provider>("provider", {{"cpu", Provider::kCpu}, {"cuda", Provider::kCuda}});
  settings.precision = o.OneOf<Precision>("precision", {{"float32", Precision::kFloat32},
                                                        {"tf32", Precision::kTf32},
                                                        {"float16", Precision::kFloat16}});
  settings.device_memory = static_cast<size_t>(o.Number("gpuMemory"));
  o.List("hashes", [&](const Given& file) {
    return settings.hashes.insert_or_assign(file.Text("path"), file.Text("sha256")).second;
  });
  return settings;
}

Tensor ReadTensor(const Given& o) {
  Tensor tensor{o.Text("name"), ReadDtype(o), {}, nullptr, nullptr};
  tensor.shape = o.List(
      "shape", [](const Given& side) { return static_cast<int64_t>(side.Get<double>("shape")); });
  const auto data = o.At("data");
  if (!data.IsTypedArray()) Unexpected("data");
  const auto bytes = data.As<Napi::Uint8Array>();
  if (bytes.ByteLength() != tensor.Bytes()) Unexpected("data");
  tensor.data = reinterpret_cast<std::byte*>(const_cast<uint8_t*>(bytes.Data()));
  if (reinterpret_cast<uintptr_t>(tensor.data) % DtypeSize(tensor.dtype) != 0)
    return Copied(tensor);
  return tensor;
}

Tensor ReadOwnTensor(const Given& value) { return Copied(ReadTensor(value)); }

std::optional<std::vector<std::vector<double>>> ReadNumberLists(const Given& options,
                                                                const char* field) {
  if (!options.Has(field)) return std::nullopt;
  return options.List(field, [field](const Given& list) {
    std::vector<double> numbers;
    for (const Given& number : list.Get<std::vector<Given>>(field))
      numbers.push_back(number.Get<double>(field));
    return numbers;
  });
}

std::vector<Source> ReadSources(const Given& options) {
  if (!options.Has("sources")) return {};
  return options.List("sources", [](const Given& source) {
    return Source{0, static_cast<size_t>(source.Int("planes")), ReadGeometry(source),
                  source.Flag("regrid")};
  });
}

InputSpec ReadInput(const Given& o) {
  using Monochrome1 = InputSpec::Monochrome1;
  InputSpec spec;
  spec.tensor = o.Text("tensor");
  spec.dtype = ReadDtype(o);
  const std::string layout = o.Text("layout");
  if (o.Has("numbers")) {
    spec.numbers = o.Int("numbers");
    spec.flat = layout == "N";
    return spec;
  }
  spec.channels_last = layout.back() == 'C';
  spec.transposed = layout == "NCWH";
  spec.volume = layout.find('D') != std::string::npos;
  spec.size = ReadSize(o.Child("size"));
  spec.fit = o.OneOf<Fit>("fit", {{"stretch", Fit::kStretch},
                                  {"letterbox", Fit::kLetterbox},
                                  {"crop", Fit::kCrop},
                                  {"none", Fit::kNone}});
  spec.interpolation =
      o.OneOf<Interpolation>("interpolation", {{"area", Interpolation::kArea},
                                               {"adaptive_area", Interpolation::kAdaptiveArea},
                                               {"linear", Interpolation::kLinear},
                                               {"cubic", Interpolation::kCubic},
                                               {"nearest", Interpolation::kNearest},
                                               {"spline", Interpolation::kSpline}});
  if (o.Has("antialias")) spec.antialias = o.Flag("antialias");
  spec.values = ReadValues(o.Child("values"));
  spec.monochrome1 = o.OneOf<Monochrome1>("monochrome1", {{"invert", Monochrome1::kInvert},
                                                          {"as_stored", Monochrome1::kAsStored},
                                                          {"refuse", Monochrome1::kRefuse}});
  spec.channels = o.OneOf<ChannelOrder>("channels", {{"grayscale", ChannelOrder::kGrayscale},
                                                     {"windows", ChannelOrder::kGrayscale},
                                                     {"rgb", ChannelOrder::kRgb},
                                                     {"bgr", ChannelOrder::kBgr}});
  spec.accept_colour = o.Text("colour_source") == "accept";
  if (o.Has("label_channels")) spec.label_channels = o.Int("label_channels");
  if (o.Has("clip")) {
    const auto [low, high] = o.Some<2>("clip");
    spec.clip = {low, high};
  }
  spec.normalisation = ReadNormalisation(o.Child("normalisation"));
  if (o.Has("intensity")) spec.intensity = o.List("intensity", ReadIntensity);
  spec.background = o.Number("background");
  if (o.Has("source")) spec.source = static_cast<size_t>(o.Int("source"));
  if (o.Has("parts")) spec.parts = o.List("parts", ReadInput);
  if (o.Has("spacing_mm")) spec.spacing_mm = o.Some<3>("spacing_mm");
  if (o.Has("orientation")) spec.orientation = o.Text("orientation");
  if (o.Has("resampling")) spec.resampling = ReadResampling(o.Child("resampling"));
  if (const auto around = o.Find("neighbours"))
    spec.neighbours = {around->Int("before"), around->Int("after"),
                       around->Text("edges") == "repeat"};
  return spec;
}

TilingSpec ReadTiling(const Given& o) {
  TilingSpec tiling;
  tiling.window = o.Ints("window");
  tiling.overlap = o.Number("overlap");
  tiling.steps = o.OneOf<TilingSpec::Steps>(
      "steps", {{"even", TilingSpec::Steps::kEven}, {"stride", TilingSpec::Steps::kStride}});
  if (const auto gaussian = o.Find("gaussian"))
    tiling.gaussian = {gaussian->Number("sigma"), gaussian->Flag("middle"),
                       gaussian->Number("least")};
  tiling.mirrored = o.Ints("mirrored");
  tiling.pad_edge = o.At("padding").IsString();
  if (!tiling.pad_edge) tiling.padding = static_cast<float>(o.Number("padding"));
  return tiling;
}

}  // namespace radserve
