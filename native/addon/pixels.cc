#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "addon/convert.h"
#include "codecs/bits.h"
#include "codecs/rle.h"
#include "postprocess/segments.h"

namespace radserve {
namespace {

size_t Count(const Napi::Value& value, const char* name) { return Whole(value, 1, name); }

size_t Index(const Napi::Value& value, const char* name) { return Whole(value, 0, name); }

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

/// (pixels: Uint8Array, planes, rows, columns): a frame in RLE Lossless.
Napi::Value PackRleFrame(const Napi::CallbackInfo& info) {
  // A thread's, as large as the largest so far
  thread_local std::vector<uint8_t> scratch;
  const RleShape shape = {Count(info[1], "planes"), Count(info[2], "rows"),
                          Count(info[3], "columns")};
  const std::span<uint8_t> pixels = Bytes(info[0], "pixels");
  if (pixels.size() != shape.bytes()) Unexpected("pixels");
  if (scratch.size() < MostRleBytes(shape)) scratch.resize(MostRleBytes(shape));
  const size_t length = PackRle(pixels, shape, scratch);
  Napi::Uint8Array frame = Napi::Uint8Array::New(info.Env(), length);
  std::memcpy(frame.Data(), scratch.data(), length);
  return frame;
}

/// (frame: Uint8Array, samples, bytes of a sample, out: Uint8Array): fills `out`; gives undefined,
/// or what is wrong and with which segment.
Napi::Value UnpackRleFrame(const Napi::CallbackInfo& info) {
  const auto [fault, segment] = UnpackRle(Bytes(info[0], "frame"), Count(info[1], "samples"),
                                          Count(info[2], "sampleBytes"), Bytes(info[3], "out"));
  if (fault == RleFault::kNone) return info.Env().Undefined();
  return WriteFields(info.Env(), "fault", NameOf(fault), "segment", segment);
}

/// (frame: Uint8Array, pixels: Uint8Array, planes): RleHolds.
Napi::Value HoldsRleFrame(const Napi::CallbackInfo& info) {
  return Napi::Boolean::New(info.Env(), RleHolds(Bytes(info[0], "frame"), Bytes(info[1], "pixels"),
                                                 Count(info[2], "planes")));
}

/// (bytes: Uint8Array, value, flip, plane: Uint8Array): MarkEqual.
Napi::Value MarkPlane(const Napi::CallbackInfo& info) {
  const size_t value = Index(info[1], "value");
  if (value > 255) Unexpected("value");
  MarkEqual(Bytes(info[0], "bytes"), static_cast<uint8_t>(value), info[2].ToBoolean(),
            Bytes(info[3], "plane"));
  return info.Env().Undefined();
}

/// (plane: Uint8Array, bits: Uint8Array, at).
Napi::Value PackBits(const Napi::CallbackInfo& info) {
  PackPlane(Bytes(info[0], "plane"), Bytes(info[1], "bits"), Index(info[2], "at"));
  return info.Env().Undefined();
}

/// (bits: Uint8Array, at, plane: Uint8Array).
Napi::Value UnpackBits(const Napi::CallbackInfo& info) {
  UnpackPlane(Bytes(info[0], "bits"), Index(info[1], "at"), Bytes(info[2], "plane"));
  return info.Env().Undefined();
}

/// (SegmentedImage as src/addon/segments.ts has it): for each label the SegmentCounts, at once.
Napi::Value CountSegmentsOf(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const Given o(info[0]);
  SegmentedImage image;
  image.mask = o.Bytes("mask");
  image.overlapping = o.Flag("overlapping");
  image.labels = Count(o.At("labels"), "labels");
  image.rows = Count(o.At("rows"), "rows");
  image.columns = Count(o.At("columns"), "columns");
  image.slices = o.List("slices", [](const Given& slice) -> std::span<const uint8_t> {
    return Bytes(slice.value(), "slices");
  });
  image.word_bytes = Count(o.At("wordBytes"), "wordBytes");
  image.meanings = o.Numbers("meanings");
  image.spacing = o.Some<3>("spacing");
  const size_t plane = image.rows * image.columns;
  if (image.mask.size() != plane * image.slices.size() * (image.overlapping ? image.labels : 1))
    Unexpected("mask");
  if (image.meanings.size() != image.slices.size()) Unexpected("meanings");
  for (const std::span<const uint8_t> slice : image.slices) {
    if (!slice.empty() && slice.size() != plane * image.word_bytes) Unexpected("slices");
  }
  const auto doubles = [env](std::span<const double> values) {
    Napi::Float64Array array = Napi::Float64Array::New(env, values.size());
    std::ranges::copy(values, array.Data());
    return array;
  };
  return WriteList(env, CountSegments(image, o.Flag("shape")), [&](const SegmentCounts& counts) {
    const auto words = [&](const WordCounts& found) {
      Napi::Uint8Array bytes = Napi::Uint8Array::New(env, found.words.size() * image.word_bytes);
      for (size_t i = 0; i < found.words.size(); ++i) {
        std::memcpy(bytes.Data() + i * image.word_bytes, &found.words[i], image.word_bytes);
      }
      return WriteFields(env, "meaning", found.meaning, "words", bytes, "counts",
                         doubles(found.counts));
    };
    return WriteFields(env, "words", WriteList(env, counts.words, words), "cells",
                       doubles(counts.cells), "inPlane", counts.in_plane, "anywhere",
                       counts.anywhere);
  });
}

/// (bytes: Uint8Array, bytes of a container, bits outside, sign or -1): FirstStray, or -1 if there
/// is no such value.
Napi::Value FindStray(const Napi::CallbackInfo& info) {
  Container container = {Count(info[1], "containerBytes"),
                         static_cast<uint32_t>(Index(info[2], "outside")), std::nullopt};
  const int64_t sign = info[3].As<Napi::Number>().Int64Value();
  if (sign >= 0) container.sign = static_cast<unsigned>(std::min<int64_t>(sign, 31));
  const std::optional<uint32_t> found = FirstStray(Bytes(info[0], "bytes"), container);
  return Napi::Number::New(info.Env(), found ? static_cast<double>(*found) : -1);
}

/// (bytes: Uint8Array): frees its buffer, if it has one to itself.
Napi::Value ReleaseBytes(const Napi::CallbackInfo& info) {
  if (!info[0].IsTypedArray()) Unexpected("bytes");
  const auto view = info[0].As<Napi::TypedArray>();
  Napi::ArrayBuffer whole = view.ArrayBuffer();
  // Buffers that cannot be detached, WebAssembly's memory for one, stay as they are
  if (view.ByteLength() == whole.ByteLength()) napi_detach_arraybuffer(info.Env(), whole);
  return info.Env().Undefined();
}

}  // namespace

std::span<const Export> PixelExports() {
  static constexpr Export kExports[] = {{"packRle", PackRleFrame},
                                        {"unpackRle", UnpackRleFrame},
                                        {"rleHolds", HoldsRleFrame},
                                        {"markPlane", MarkPlane},
                                        {"packBits", PackBits},
                                        {"unpackBits", UnpackBits},
                                        {"countSegments", CountSegmentsOf},
                                        {"findStray", FindStray},
                                        {"releaseBytes", ReleaseBytes}};
  return kExports;
}

}  // namespace radserve
