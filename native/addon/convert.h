#pragma once

#include <napi.h>

#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/description.h"
#include "base/error.h"
#include "engine/engine.h"
#include "engine/requests.h"

/// Plain JavaScript objects to what the engine takes, and back. src/engine/engine.ts has checked the values;
/// one that is unexpected here is a fault of ours and throws EngineError `internal`.
namespace radserve {

[[noreturn]] void Unexpected(const char* key);
bool Has(const Napi::Object& object, const char* key);
double Number(const Napi::Object& object, const char* key);
int Int(const Napi::Object& object, const char* key);
std::string Text(const Napi::Object& object, const char* key);
bool Flag(const Napi::Object& object, const char* key);
Napi::Object Child(const Napi::Object& object, const char* key);
std::vector<double> Numbers(const Napi::Object& object, const char* key);
/// Three numbers.
std::array<double, 3> Triple(const Napi::Object& object, const char* key);
Dtype ReadDtype(const Napi::Object& object);
WindowFunction ReadWindowFunction(const Napi::Object& object);

/// The value that goes with the text under `key`.
template <typename T>
T OneOf(const Napi::Object& object, const char* key,
        std::initializer_list<std::pair<const char*, T>> choices) {
  const std::string found = Text(object, key);
  for (const auto& [name, value] : choices) {
    if (found == name) return value;
  }
  Unexpected(key);
}

/// The array under `key`, each element as `read` gives it.
template <typename Read>
auto List(const Napi::Object& object, const char* key, const Read& read) {
  const Napi::Value value = object.Get(key);
  if (!value.IsArray()) Unexpected(key);
  const auto array = value.As<Napi::Array>();
  std::vector<decltype(read(array.Get(0u)))> out;
  for (uint32_t i = 0; i < array.Length(); ++i) out.push_back(read(array.Get(i)));
  return out;
}

/// The plane reads the array's own memory; the caller keeps a reference to the array.
Plane ReadPlane(const Napi::Object& plane);
/// Reads `geometry`; nullopt if it is absent.
std::optional<VolumeGeometry> ReadGeometry(const Napi::Object& options);
/// `threads` is the engine's to fill.
SessionSettings ReadSessionSettings(const Napi::Object& options);
InputSpec ReadInput(const Napi::Value& input);
/// Booleans, numbers, texts, lists and objects as they are; what is undefined is absent.
Description ReadDescription(const Napi::Value& value);
TilingSpec ReadTiling(const Napi::Object& tiling);
/// The same with a tensor, unless its data does not lie where its type must: then it is copied.
Tensor ReadTensor(const Napi::Value& tensor);
/// A tensor with memory of its own.
Tensor ReadOwnTensor(const Napi::Value& tensor);
/// One list of numbers for each output, if `thresholds` is there.
std::optional<std::vector<std::vector<double>>> ReadThresholds(const Napi::Object& options);
/// `sources`, the members of a case; none where absent.
std::vector<Source> ReadSources(const Napi::Object& options);
/// `numbers`, for each input of numbers a list; none where absent.
std::vector<std::vector<double>> ReadNumberLists(const Napi::Object& options);

/// Arrays own a share of the memory they show: nothing is copied.
Napi::Object WriteTensor(Napi::Env env, const Tensor& tensor);
Napi::Array WriteTensors(Napi::Env env, const std::vector<Tensor>& tensors);
Napi::Object WriteGraph(Napi::Env env, const GraphInfo& graph);
Napi::Array WriteSessions(Napi::Env env, const std::vector<SessionMemory>& sessions);
/// EngineStats of src/engine/stats.ts.
Napi::Object WriteStats(Napi::Env env, Engine& engine);
Napi::Object WriteInference(Napi::Env env, InferRequest& request);

template <typename List, typename Write>
Napi::Array WriteList(Napi::Env env, const List& items, const Write& write) {
  Napi::Array array = Napi::Array::New(env, items.size());
  for (uint32_t i = 0; i < items.size(); ++i) array.Set(i, write(items[i]));
  return array;
}

/// `writeDurably(path, bytes)`: a promise of {error, call, same}: WriteDurably. The bytes may not change until then.
Napi::Value WriteFileDurably(const Napi::CallbackInfo& info);

/// `pinPath(path, flags)`: a promise of {error, call, fd, dev}: PinPath.
Napi::Value PinPathLater(const Napi::CallbackInfo& info);

/// `pinPathNow(path, flags, folder?)`: {error, call, fd, dev}, at once: PinFromMemory.
Napi::Value PinPathNow(const Napi::CallbackInfo& info);

/// `anyThere(paths)`: a promise of an errno: AnyThere.
Napi::Value AnyThereLater(const Napi::CallbackInfo& info);

/// `readNow(fd, bytes)`: how many bytes it took from memory, at once: ReadFromMemory.
Napi::Value ReadDescriptorNow(const Napi::CallbackInfo& info);

/// `linkDescriptor(fd, path)`: gives an open file, which may have no name yet (O_TMPFILE), the name `path`;
/// linkat(2). Node's own link(2) does not follow /proc/self/fd. False if something has the name, or the
/// file system refuses.
Napi::Value LinkDescriptor(const Napi::CallbackInfo& info);

/// `lockDescriptor(fd)`: takes the exclusive lock of an open file without waiting; flock(2). False if another open of
/// the file, in this process or another, has it. An error is thrown if the file system has no such locks.
/// The lock ends when the descriptor is closed or the process ends.
Napi::Value LockDescriptor(const Napi::CallbackInfo& info);

/// `externalData(path)`: the files beside an ONNX file that hold constants of its graph, as it names them. Null
/// if it is no ONNX model, or cannot be read.
Napi::Value ExternalData(const Napi::CallbackInfo& info);

// Pixels rearranged on the calling thread, without an engine.

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
/// (SegmentedImage as src/addon/segments.ts has it): for each label the SegmentCounts, at once.
Napi::Value CountSegmentsOf(const Napi::CallbackInfo& info);
/// (bytes: Uint8Array, bytes of a container, bits outside, sign or -1): FirstStray, or -1 if there is no such
/// value.
Napi::Value FindStray(const Napi::CallbackInfo& info);
/// (bytes: Uint8Array): frees its buffer, if it has one to itself.
Napi::Value ReleaseBytes(const Napi::CallbackInfo& info);

// Pictures for people, on the calling thread: what the objects hold stands in src/addon/picture.ts.

/// (page): its pixels.
Napi::Value ComposeOverlay(const Napi::CallbackInfo& info);
/// (rgb: Uint8Array, width, height, panel): undefined, or what is wrong with what is drawn on the panel.
Napi::Value CheckOverlay(const Napi::CallbackInfo& info);
/// (segments: Float32Array, left, top, width, height): the coverage of each pixel.
Napi::Value FillGlyph(const Napi::CallbackInfo& info);

}  // namespace radserve
