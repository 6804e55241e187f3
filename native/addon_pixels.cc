#include "addon_pixels.h"

#include <cstring>
#include <span>
#include <vector>

#include "addon_convert.h"
#include "rle.h"

namespace radserve {
namespace {

std::span<uint8_t> Bytes(const Napi::Value& value, const char* name) {
  if (!value.IsTypedArray()) Unexpected(name);
  auto array = value.As<Napi::Uint8Array>();
  return {array.Data(), array.ByteLength()};
}

size_t Count(const Napi::Value& value, const char* name) {
  if (!value.IsNumber() || value.As<Napi::Number>().Int64Value() < 1) Unexpected(name);
  return static_cast<size_t>(value.As<Napi::Number>().Int64Value());
}

const char* NameOf(RleFault fault) {
  switch (fault) {
    case RleFault::kOutside:
      return "outside";
    case RleFault::kShort:
      return "short";
    default:
      return "cut_run";
  }
}

}  // namespace

Napi::Value PackRleFrame(const Napi::CallbackInfo& info) {
  // A thread's, as large as the largest so far
  thread_local std::vector<uint8_t> scratch;
  const RleShape shape = {Count(info[1], "planes"), Count(info[2], "rows"), Count(info[3], "columns")};
  const std::span<uint8_t> pixels = Bytes(info[0], "pixels");
  if (pixels.size() != shape.bytes()) Unexpected("pixels");
  if (scratch.size() < MostRleBytes(shape)) scratch.resize(MostRleBytes(shape));
  const size_t length = PackRle(pixels, shape, scratch);
  Napi::Uint8Array frame = Napi::Uint8Array::New(info.Env(), length);
  std::memcpy(frame.Data(), scratch.data(), length);
  return frame;
}

Napi::Value UnpackRleFrame(const Napi::CallbackInfo& info) {
  const auto [fault, segment] = UnpackRle(Bytes(info[0], "frame"), Count(info[1], "samples"),
                                          Count(info[2], "sampleBytes"), Bytes(info[3], "out"));
  if (fault == RleFault::kNone) return info.Env().Undefined();
  Napi::Object found = Napi::Object::New(info.Env());
  found.Set("fault", NameOf(fault));
  found.Set("segment", static_cast<double>(segment));
  return found;
}

}  // namespace radserve
