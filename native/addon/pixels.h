#ifndef RADSERVE_ADDON_PIXELS_H_
#define RADSERVE_ADDON_PIXELS_H_

#include <napi.h>

/// Pixels rearranged on the calling thread, without an engine.
namespace radserve {

/// (pixels: Uint8Array, planes, rows, columns): a frame in RLE Lossless.
Napi::Value PackRleFrame(const Napi::CallbackInfo& info);
/// (frame: Uint8Array, samples, bytes of a sample, out: Uint8Array): fills `out`; gives undefined, or what is
/// wrong and with which segment.
Napi::Value UnpackRleFrame(const Napi::CallbackInfo& info);
/// (bytes: Uint8Array, value, flip, plane: Uint8Array): MarkEqual.
Napi::Value MarkPlane(const Napi::CallbackInfo& info);
/// (plane: Uint8Array, bits: Uint8Array, at).
Napi::Value PackBits(const Napi::CallbackInfo& info);
/// (bits: Uint8Array, at, plane: Uint8Array).
Napi::Value UnpackBits(const Napi::CallbackInfo& info);
/// (bytes: Uint8Array, bytes of a container, bits outside, sign or -1): FirstStray, or -1 if there is no such
/// value.
Napi::Value FindStray(const Napi::CallbackInfo& info);
/// (bytes: Uint8Array): frees its buffer, where it has one to itself.
Napi::Value ReleaseBytes(const Napi::CallbackInfo& info);

}  // namespace radserve

#endif  // RADSERVE_ADDON_PIXELS_H_
