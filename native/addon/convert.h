#pragma once

#include <napi.h>

#include <optional>
#include <span>
#include <vector>

#include "addon/values.h"
#include "engine/image_model.h"
#include "engine/requests.h"

/// Images and what is said of them to what the engine takes, and back. src/engine/engine.ts has
/// checked the values.
namespace radserve {

/// The plane reads the array's own memory; the caller keeps a reference to the array.
Plane ReadPlane(const Given& plane);
/// Reads `geometry`; nullopt if it is absent.
std::optional<VolumeGeometry> ReadGeometry(const Given& options);
/// Booleans, numbers, texts, lists and objects as they are; what is undefined is absent.
Description ReadDescription(const Napi::Value& value);
/// `sources`, the members of a case; none where absent.
std::vector<Source> ReadSources(const Given& options);
/// The lists of numbers under `field`, of thresholds for each output or for each input of numbers;
/// nullopt if absent.
std::optional<std::vector<std::vector<double>>> ReadNumberLists(const Given& options,
                                                                const char* field);
Napi::Object WriteInference(Napi::Env env, InferRequest& request);
/// An array that owns these bytes: nothing is copied, unless they are few.
Napi::Uint8Array WriteBytes(Napi::Env env, std::vector<uint8_t>&& bytes);

/// Images through loaded models.
std::span<const Export> ImageExports();
/// Work with files; what may block runs on a thread of libuv.
std::span<const Export> FileExports();
/// Pixels rearranged on the calling thread, without an engine.
std::span<const Export> PixelExports();
/// Pictures for people, on the calling thread but for PNG: what the objects hold stands in
/// src/addon/picture.ts.
std::span<const Export> PictureExports();

}  // namespace radserve
