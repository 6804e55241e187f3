#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "addon/convert.h"
#include "codecs/png.h"
#include "picture/check.h"
#include "picture/drawing.h"
#include "picture/page.h"

namespace radserve {
namespace {

/// No page is larger.
constexpr size_t kMost = 1 << 20;

template <typename T>
std::span<const T> View(const Napi::Value& value, const char* name, napi_typedarray_type type) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != type)
    Unexpected(name);
  auto array = value.As<Napi::TypedArrayOf<T>>();
  return {array.Data(), array.ElementLength()};
}

size_t Size(const Given& object, const char* field) {
  const double value = object.Number(field);
  if (!(value >= 0 && value <= kMost)) Unexpected(field);
  return static_cast<size_t>(value);
}

size_t Side(const Napi::Value& value, const char* name) {
  const size_t side = Whole(value, 1, name);
  if (side > kMost) Unexpected(name);
  return side;
}

Rgb ColourFrom(std::span<const uint8_t> bytes) { return {bytes[0], bytes[1], bytes[2]}; }

MaskLayer ReadMask(const Given& o) {
  MaskLayer layer = {Size(o, "rows"), Size(o, "columns"), o.Bytes("mask"), {}, o.Numbers("counts")};
  const std::span<const uint8_t> colours = o.Bytes("colours");
  if (colours.size() % 3 != 0) Unexpected("colours");
  for (size_t i = 0; i < colours.size(); i += 3)
    layer.colours.push_back(ColourFrom(colours.subspan(i, 3)));
  return layer;
}

HeatLayer ReadHeat(const Given& o) {
  return {Size(o, "rows"),
          Size(o, "columns"),
          View<float>(o.At("values"), "values", napi_float32_array),
          static_cast<float>(o.Number("low")),
          static_cast<float>(o.Number("high")),
          o.Bytes("colours")};
}

Panel ReadPanel(const Given& o) {
  const Given picture = o.Child("picture");
  return {{Size(picture, "width"), Size(picture, "height"), picture.Bytes("rgb")},
          Size(o, "x"),
          Size(o, "y"),
          Size(o, "width"),
          Size(o, "height"),
          o.List("marks", [](const Given& each) {
            return PanelMarks{each.List("masks", ReadMask), each.List("heat", ReadHeat)};
          })};
}

/// (page): its pixels.
Napi::Value ComposeOverlay(const Napi::CallbackInfo& info) {
  const Given o(info[0]);
  Page page;
  page.width = Size(o, "width");
  page.height = Size(o, "height");
  const std::span<const uint8_t> background = o.Bytes("background");
  if (background.size() != 3) Unexpected("background");
  page.background = ColourFrom(background);
  page.panels = o.List("panels", ReadPanel);
  page.opacity = o.Number("opacity");
  page.drawing = View<double>(o.At("drawing"), "drawing", napi_float64_array);
  page.glyphs = o.Bytes("glyphs");
  // Every pixel is drawn: a buffer comes without being zeroed first
  auto rgb = Napi::Buffer<uint8_t>::New(info.Env(), page.width * page.height * 3);
  ComposePage(page, {rgb.Data(), rgb.ByteLength()});
  return rgb;
}

/// (rgb: Uint8Array, width, height, panel): undefined, or what is wrong with what is drawn on the
/// panel.
Napi::Value CheckOverlay(const Napi::CallbackInfo& info) {
  const PictureView page = {Side(info[1], "width"), Side(info[2], "height"), Bytes(info[0], "rgb")};
  switch (CheckPanel(page, ReadPanel(Given(info[3])))) {
    case PictureFault::kBeside:
      return Napi::String::New(info.Env(), "beside");
    case PictureFault::kLeftOut:
      return Napi::String::New(info.Env(), "left_out");
    default:
      return info.Env().Undefined();
  }
}

/// (segments: Float32Array, left, top, width, height): the coverage of each pixel.
Napi::Value FillGlyph(const Napi::CallbackInfo& info) {
  const std::span<const float> segments = View<float>(info[0], "segments", napi_float32_array);
  const size_t width = Side(info[3], "width"), height = Side(info[4], "height");
  Napi::Uint8Array coverage = Napi::Uint8Array::New(info.Env(), width * height);
  FillOutline(segments, info[1].As<Napi::Number>().DoubleValue(),
              info[2].As<Napi::Number>().DoubleValue(), width, height,
              {coverage.Data(), coverage.ByteLength()});
  return coverage;
}

/// (rgb: Uint8Array, width, height): a promise of PackPng. The pixels have to stay as they are
/// until it settles.
Napi::Value PackPicture(const Napi::CallbackInfo& info) {
  const size_t width = Side(info[1], "width"), height = Side(info[2], "height");
  const std::span<const uint8_t> rgb = Bytes(info[0], "rgb");
  if (rgb.size() != width * height * 3) Unexpected("rgb");
  const auto held = Hold(info[0]);
  return BackgroundWork<std::vector<uint8_t>>::Begin(
      info.Env(), "packPng", [held, rgb, width, height] { return PackPng(rgb, width, height); },
      [](Napi::Env env, std::vector<uint8_t>& png) -> Napi::Value {
        return WriteBytes(env, std::move(png));
      });
}

}  // namespace

std::span<const Export> PictureExports() {
  static constexpr Export kExports[] = {{"composePage", ComposeOverlay},
                                        {"checkPanel", CheckOverlay},
                                        {"fillOutline", FillGlyph},
                                        {"packPng", PackPicture}};
  return kExports;
}

}  // namespace radserve
