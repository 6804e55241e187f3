#include "addon/convert.h"

namespace radserve {

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
  if (const auto own = o.Find("ownBits")) {
    i.own_bits.emplace();
    own->Into("bitsStored", i.own_bits->bits_stored, "signed", i.own_bits->is_signed);
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
