#include <cstring>

#include "addon/convert.h"

namespace radserve {

std::span<uint8_t> Bytes(const Napi::Value& value, const char* name) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_uint8_array)
    Unexpected(name);
  auto array = value.As<Napi::Uint8Array>();
  return {array.Data(), array.ByteLength()};
}

std::shared_ptr<Napi::ObjectReference> Hold(const Napi::Value& array) {
  return std::make_shared<Napi::ObjectReference>(Napi::Persistent(array.As<Napi::Object>()));
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

}  // namespace radserve
