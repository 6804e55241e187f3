#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "addon/convert.h"
#include "base/durable_file.h"
#include "runtime/weights.h"

namespace radserve {
namespace {

/// Closes the descriptor if nobody takes it over: the environment has ended meanwhile.
struct ClosePin {
  void operator()(PinOutcome* pin) const {
    if (pin->fd >= 0) close(pin->fd);
    std::default_delete<PinOutcome>()(pin);
  }
};
using Pinned = std::unique_ptr<PinOutcome, ClosePin>;

Pinned Held(const PinOutcome& outcome) {
  return Pinned(std::make_unique<PinOutcome>(outcome).release());
}

Napi::Value AnswerPinned(Napi::Env env, Pinned& outcome) {
  return WriteFields(env, "error", outcome->error, "call", outcome->call, "fd",
                     std::exchange(outcome->fd, -1), "dev", outcome->device);
}

int NumberAt(const Napi::CallbackInfo& info, size_t at) {
  return info[at].As<Napi::Number>().Int32Value();
}

std::string TextAt(const Napi::CallbackInfo& info, size_t at) {
  return info[at].As<Napi::String>().Utf8Value();
}

/// `pinPathNow(path, flags, folder?)`: {error, call, fd, dev}, at once: PinFromMemory.
Napi::Value PinPathNow(const Napi::CallbackInfo& info) {
  const int folder = info[2].IsUndefined() ? AT_FDCWD : NumberAt(info, 2);
  Pinned outcome = Held(PinFromMemory(folder, TextAt(info, 0), NumberAt(info, 1)));
  return AnswerPinned(info.Env(), outcome);
}

/// `deviceNow(path, flags)`: the number of the device on which a path lies, at once; null if it is
/// not there or PinFromMemory cannot say it.
Napi::Value DeviceNow(const Napi::CallbackInfo& info) {
  const Pinned outcome = Held(PinFromMemory(AT_FDCWD, TextAt(info, 0), NumberAt(info, 1)));
  if (outcome->error != 0) return info.Env().Null();
  return Napi::Number::New(info.Env(), static_cast<double>(outcome->device));
}

/// `anyThere(paths)`: a promise of an errno: AnyThere.
Napi::Value AnyThereLater(const Napi::CallbackInfo& info) {
  const auto paths = Given(info[0]).Get<std::vector<Given>>("paths");
  std::vector<std::string> texts;
  for (const Given& path : paths) texts.push_back(path.Get<std::string>("paths"));
  return BackgroundWork<int>::Begin(
      info.Env(), "anyThere", [texts = std::move(texts)] { return AnyThere(texts); },
      [](Napi::Env env, int& error) -> Napi::Value { return Napi::Number::New(env, error); });
}

/// `readNow(fd, bytes)`: how many bytes it took from memory, at once: ReadFromMemory.
Napi::Value ReadDescriptorNow(const Napi::CallbackInfo& info) {
  auto bytes = info[1].As<Napi::Uint8Array>();
  const size_t read = ReadFromMemory(NumberAt(info, 0), bytes.Data(), bytes.ByteLength());
  return Napi::Number::New(info.Env(), static_cast<double>(read));
}

/// `pinPath(path, flags)`: a promise of {error, call, fd, dev}: PinPath.
Napi::Value PinPathLater(const Napi::CallbackInfo& info) {
  return BackgroundWork<Pinned>::Begin(
      info.Env(), "pinPath",
      [path = TextAt(info, 0), flags = NumberAt(info, 1)] { return Held(PinPath(path, flags)); },
      AnswerPinned);
}

/// `writeDurably(path, bytes)`: a promise of {error, call, same}: WriteDurably. The bytes may not
/// change until then.
Napi::Value WriteFileDurably(const Napi::CallbackInfo& info) {
  auto bytes = info[1].As<Napi::Uint8Array>();
  const auto held = Hold(bytes);
  return BackgroundWork<WriteOutcome>::Begin(
      info.Env(), "writeDurably",
      [held, path = TextAt(info, 0), data = bytes.Data(), size = bytes.ByteLength()] {
        return WriteDurably(path, data, size);
      },
      [](Napi::Env env, WriteOutcome& outcome) -> Napi::Value {
        return WriteFields(env, "error", outcome.error, "call", outcome.call, "same", outcome.same);
      });
}

/// `settleFile(fd, bytes, path, folder)`: a promise of {error, call, linked}: Settle. The bytes may
/// not change until then.
Napi::Value SettleOpenFile(const Napi::CallbackInfo& info) {
  auto bytes = info[1].As<Napi::Uint8Array>();
  const Settling file = {NumberAt(info, 0), bytes.Data(), bytes.ByteLength(), TextAt(info, 2),
                         TextAt(info, 3)};
  return BackgroundWork<SettleOutcome>::Begin(
      info.Env(), "settleFile", [held = Hold(bytes), file] { return Settle(file); },
      [](Napi::Env env, SettleOutcome& outcome) -> Napi::Value {
        return WriteFields(env, "error", outcome.error, "call", outcome.call, "linked",
                           outcome.linked);
      });
}

std::string Hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<size_t>(byte) >> 4];
    text += kDigits[std::to_integer<size_t>(byte) & 15];
  }
  return text;
}

/// `readWhole(path, room)`: a promise of {error, call, plain, size, read, sha256}: ReadWhole. The
/// hash is in hex; empty if there is none. Nobody may use the room until then.
Napi::Value ReadWholeFile(const Napi::CallbackInfo& info) {
  auto room = info[1].As<Napi::Uint8Array>();
  const std::span<uint8_t> bytes(room.Data(), room.ByteLength());
  return BackgroundWork<ReadOutcome>::Begin(
      info.Env(), "readWhole",
      [held = Hold(room), path = TextAt(info, 0), bytes] { return ReadWhole(path, bytes); },
      [](Napi::Env env, ReadOutcome& outcome) -> Napi::Value {
        const std::string hash = outcome.sha256 ? Hex(*outcome.sha256) : "";
        return WriteFields(env, "error", outcome.error, "call", outcome.call, "plain",
                           outcome.plain, "size", static_cast<double>(outcome.size), "read",
                           static_cast<double>(outcome.read), "sha256", hash);
      });
}

/// `linkDescriptor(fd, path)`: LinkOpenFile; Node's own link(2) does not follow /proc/self/fd. An
/// errno, 0 if it has the name.
Napi::Value LinkDescriptor(const Napi::CallbackInfo& info) {
  const int result = LinkOpenFile(NumberAt(info, 0), TextAt(info, 1));
  return Napi::Number::New(info.Env(), result == 0 ? 0 : errno);
}

/// `lockDescriptor(fd)`: takes the exclusive lock of an open file without waiting; flock(2). False
/// if another open of the file, in this process or another, has it. An error is thrown if the file
/// system has no such locks. The lock ends when the descriptor is closed or the process ends.
Napi::Value LockDescriptor(const Napi::CallbackInfo& info) {
  int result = 0;
  do {
    result = flock(NumberAt(info, 0), LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno != EWOULDBLOCK)
    throw std::system_error(errno, std::generic_category(), "flock");
  return Napi::Boolean::New(info.Env(), result == 0);
}

/// `externalData(path)`: the files beside an ONNX file that hold constants of its graph, as it
/// names them. Null if it is no ONNX model, or cannot be read.
Napi::Value ExternalData(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const auto locations = ExternalLocations(TextAt(info, 0));
  if (!locations) return env.Null();
  return WriteList(env, std::vector<std::string>(locations->begin(), locations->end()),
                   [&](const std::string& location) { return Napi::String::New(env, location); });
}

}  // namespace

std::span<const Export> FileExports() {
  static constexpr Export kExports[] = {
      {"writeDurably", WriteFileDurably}, {"pinPath", PinPathLater},
      {"pinPathNow", PinPathNow},         {"anyThere", AnyThereLater},
      {"readNow", ReadDescriptorNow},     {"deviceNow", DeviceNow},
      {"readWhole", ReadWholeFile},       {"settleFile", SettleOpenFile},
      {"linkDescriptor", LinkDescriptor}, {"lockDescriptor", LockDescriptor},
      {"externalData", ExternalData}};
  return kExports;
}

}  // namespace radserve
