#include "confine/confine.h"

#include <napi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <set>
#include <string>
#include <system_error>

#include "codecs/openjpeg.h"

namespace radserve {
namespace {

void EndChild(pid_t child) {
  kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Napi::Value Version(const Napi::CallbackInfo& info) {
  const std::string version = OpenJpegVersion();
  return version.empty() ? info.Env().Undefined() : Napi::String::New(info.Env(), version);
}

/// (codestream, {rows, columns, components, precision, signed}, threads): the frame's samples.
Napi::Value Decode(const Napi::CallbackInfo& info) {
  const auto bytes = info[0].As<Napi::Uint8Array>();
  const auto described = info[1].As<Napi::Object>();
  const auto number = [&](const char* key) {
    return described.Get(key).As<Napi::Number>().Uint32Value();
  };
  const Jpeg2000Frame frame{number("rows"), number("columns"), number("components"),
                            number("precision"), described.Get("signed").ToBoolean()};
  auto pixels = Napi::Uint8Array::New(info.Env(), frame.Bytes());
  try {
    DecodeJpeg2000({bytes.Data(), bytes.ByteLength()}, frame,
                   info[2].As<Napi::Number>().Int32Value(), {pixels.Data(), pixels.ByteLength()});
    return pixels;
  } catch (const std::exception& error) {
    throw Napi::Error::New(info.Env(), error.what());
  }
}

/// The children of one thread. Those that are left when the thread ends, in whatever way, end with
/// it: the event loop that would have waited for them is gone, and they would stay as zombies.
class Children : public Napi::Addon<Children> {
 public:
  Children(Napi::Env env, Napi::Object exports) {
    DefineAddon(exports, {
                             InstanceMethod("confine", &Children::ConfineProcess),
                             InstanceMethod("limitData", &Children::LimitDataOfProcess),
                             InstanceMethod("limitProcessorTime", &Children::LimitTimeOfProcess),
                             InstanceMethod("leave", &Children::Leave),
                             InstanceMethod("endWithThread", &Children::EndWithThread),
                             InstanceMethod("hasEnded", &Children::HasEnded),
                         });
    exports.Set("openJpegVersion", Napi::Function::New(env, Version, "openJpegVersion"));
    exports.Set("decodeJpeg2000", Napi::Function::New(env, Decode, "decodeJpeg2000"));
    env.AddCleanupHook([](Children* self) { self->EndAll(); }, this);
  }

 private:
  Napi::Value ConfineProcess(const Napi::CallbackInfo& info) { return WithNumber(info, Confine); }
  Napi::Value LimitDataOfProcess(const Napi::CallbackInfo& info) {
    return WithNumber(info, LimitData);
  }
  Napi::Value LimitTimeOfProcess(const Napi::CallbackInfo& info) {
    return WithNumber(info, LimitProcessorTime);
  }

  static Napi::Value WithNumber(const Napi::CallbackInfo& info, void (*call)(size_t)) {
    try {
      call(static_cast<size_t>(info[0].As<Napi::Number>().Int64Value()));
      return info.Env().Undefined();
    } catch (const std::system_error& error) {
      throw Napi::Error::New(info.Env(), error.what());
    }
  }

  /// Node's own way out restores terminals and signals, and aborts where it may not.
  void Leave(const Napi::CallbackInfo& info) { _exit(info[0].As<Napi::Number>().Int32Value()); }

  void EndWithThread(const Napi::CallbackInfo& info) { living_.insert(ChildOf(info)); }
  void HasEnded(const Napi::CallbackInfo& info) { living_.erase(ChildOf(info)); }

  static pid_t ChildOf(const Napi::CallbackInfo& info) {
    return info[0].As<Napi::Number>().Int32Value();
  }

  void EndAll() {
    for (const pid_t child : living_) EndChild(child);
    living_.clear();
  }

  std::set<pid_t> living_;
};

}  // namespace

NODE_API_NAMED_ADDON(radserve_confine, Children)

}  // namespace radserve
