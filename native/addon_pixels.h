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

}  // namespace radserve

#endif  // RADSERVE_ADDON_PIXELS_H_
