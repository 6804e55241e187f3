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

std::vector<uint16_t> Words(const Napi::Object& object, const char* key) {
  const Napi::Value value = object.Get(key);
  if (!value.IsTypedArray()) Unexpected(key);
  const auto array = value.As<Napi::Uint16Array>();
  return {array.Data(), array.Data() + array.ElementLength()};
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
      {Number(o, "sliceSpacing"), Number(o, "rowSpacing"), Number(o, "columnSpacing")},
      Triple(o, "origin")};
}

SessionSettings ReadSessionSettings(const Napi::Object& o) {
  SessionSettings settings;
  settings.provider = OneOf<Provider>(o, "provider", {{"cpu", Provider::kCpu}, {"cuda", Provider::kCuda}});
  settings.precision = OneOf<Precision>(
      o, "precision",
      {{"float32", Precision::kFloat32}, {"tf32", Precision::kTf32}, {"float16", Precision::kFloat16}});
  settings.device_memory = static_cast<size_t>(Number(o, "gpuMemory"));
  List(o, "hashes", [&](const Napi::Value& value) {
    const auto file = value.As<Napi::Object>();
    return settings.hashes.insert_or_assign(Text(file, "path"), Text(file, "sha256")).second;
  });
  return settings;
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

Tensor ReadOwnTensor(const Napi::Value& value) { return Copied(ReadTensor(value)); }

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

std::vector<Source> ReadSources(const Napi::Object& object) {
  if (!Has(object, "sources")) return {};
  return List(object, "sources", [](const Napi::Value& value) {
    const auto source = value.As<Napi::Object>();
    return Source{0, static_cast<size_t>(Int(source, "planes")), ReadGeometry(source),
                  Flag(source, "regrid")};
  });
}

std::vector<std::vector<double>> ReadNumberLists(const Napi::Object& object) {
  if (!Has(object, "numbers")) return {};
  return List(object, "numbers", [](const Napi::Value& value) {
    const auto numbers = value.As<Napi::Array>();
    std::vector<double> out;
    for (uint32_t i = 0; i < numbers.Length(); ++i) {
      out.push_back(numbers.Get(i).As<Napi::Number>().DoubleValue());
    }
    return out;
  });
}

}  // namespace radserve
