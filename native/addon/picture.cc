#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "addon/convert.h"
#include "picture/check.h"
#include "picture/drawing.h"
#include "picture/page.h"

namespace radserve {
namespace {

template <typename T>
std::span<const T> View(const Napi::Object& object, const char* key, napi_typedarray_type type) {
  const Napi::Value value = object.Get(key);
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != type) Unexpected(key);
  auto array = value.As<Napi::TypedArrayOf<T>>();
  return {array.Data(), array.ElementLength()};
}

std::span<const uint8_t> Bytes(const Napi::Object& object, const char* key) {
  return View<uint8_t>(object, key, napi_uint8_array);
}

size_t Size(const Napi::Object& object, const char* key) {
  constexpr double kMost = 1 << 20;
  const double value = Number(object, key);
  if (!(value >= 0 && value <= kMost)) Unexpected(key);
  return static_cast<size_t>(value);
}

Rgb ColourFrom(std::span<const uint8_t> bytes) { return {bytes[0], bytes[1], bytes[2]}; }

MaskLayer ReadMask(const Napi::Value& value) {
  const auto o = value.As<Napi::Object>();
  MaskLayer layer = {Size(o, "rows"), Size(o, "columns"), Bytes(o, "mask"), {}, Numbers(o, "counts")};
  const std::span<const uint8_t> colours = Bytes(o, "colours");
  if (colours.size() % 3 != 0) Unexpected("colours");
  for (size_t i = 0; i < colours.size(); i += 3) layer.colours.push_back(ColourFrom(colours.subspan(i, 3)));
  return layer;
}

HeatLayer ReadHeat(const Napi::Value& value) {
  const auto o = value.As<Napi::Object>();
  return {Size(o, "rows"),
          Size(o, "columns"),
          View<float>(o, "values", napi_float32_array),
          static_cast<float>(Number(o, "low")),
          static_cast<float>(Number(o, "high")),
          Bytes(o, "colours")};
}

Panel ReadPanel(const Napi::Value& value) {
  const auto o = value.As<Napi::Object>();
  const Napi::Object picture = Child(o, "picture");
  return {{Size(picture, "width"), Size(picture, "height"), Bytes(picture, "rgb")},
          Size(o, "x"),
          Size(o, "y"),
          Size(o, "width"),
          Size(o, "height"),
          List(o, "marks", [](const Napi::Value& marks) {
            const auto each = marks.As<Napi::Object>();
            return PanelMarks{List(each, "masks", ReadMask), List(each, "heat", ReadHeat)};
          })};
}

size_t Whole(const Napi::Value& value, const char* name) {
  constexpr int64_t kMost = 1 << 20;
  if (!value.IsNumber()) Unexpected(name);
  const int64_t whole = value.As<Napi::Number>().Int64Value();
  if (whole < 1 || whole > kMost) Unexpected(name);
  return static_cast<size_t>(whole);
}

}  // namespace

Napi::Value ComposeOverlay(const Napi::CallbackInfo& info) {
  const auto o = info[0].As<Napi::Object>();
  Page page;
  page.width = Size(o, "width");
  page.height = Size(o, "height");
  const std::span<const uint8_t> background = Bytes(o, "background");
  if (background.size() != 3) Unexpected("background");
  page.background = ColourFrom(background);
  page.panels = List(o, "panels", ReadPanel);
  page.opacity = Number(o, "opacity");
  page.drawing = View<double>(o, "drawing", napi_float64_array);
  page.glyphs = Bytes(o, "glyphs");
  // Every pixel is drawn: a buffer comes without being zeroed first
  auto rgb = Napi::Buffer<uint8_t>::New(info.Env(), page.width * page.height * 3);
  ComposePage(page, {rgb.Data(), rgb.ByteLength()});
  return rgb;
}

Napi::Value CheckOverlay(const Napi::CallbackInfo& info) {
  if (!info[0].IsTypedArray()) Unexpected("rgb");
  auto rgb = info[0].As<Napi::Uint8Array>();
  const PictureView page = {
      Whole(info[1], "width"), Whole(info[2], "height"), {rgb.Data(), rgb.ByteLength()}};
  switch (CheckPanel(page, ReadPanel(info[3]))) {
    case PictureFault::kBeside:
      return Napi::String::New(info.Env(), "beside");
    case PictureFault::kLeftOut:
      return Napi::String::New(info.Env(), "left_out");
    default:
      return info.Env().Undefined();
  }
}

Napi::Value FillGlyph(const Napi::CallbackInfo& info) {
  if (!info[0].IsTypedArray() || info[0].As<Napi::TypedArray>().TypedArrayType() != napi_float32_array) {
    Unexpected("segments");
  }
  auto segments = info[0].As<Napi::Float32Array>();
  const size_t width = Whole(info[3], "width"), height = Whole(info[4], "height");
  Napi::Uint8Array coverage = Napi::Uint8Array::New(info.Env(), width * height);
  FillOutline({segments.Data(), segments.ElementLength()}, info[1].As<Napi::Number>().DoubleValue(),
              info[2].As<Napi::Number>().DoubleValue(), width, height,
              {coverage.Data(), coverage.ByteLength()});
  return coverage;
}

}  // namespace radserve
