#include "confine/confine.h"

#include <napi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <set>
#include <string>
#include <system_error>

namespace radserve {
namespace {

void EndChild(pid_t child) {
  kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

/// The children of one thread. Those that are left when the thread ends, in whatever way, end with it: the event loop
/// that would have waited for them is gone, and they would stay as zombies.
class Children : public Napi::Addon<Children> {
 public:
  Children(Napi::Env env, Napi::Object exports) {
    DefineAddon(exports, {
                             InstanceMethod("confine", &Children::ConfineProcess),
                             InstanceMethod("leave", &Children::Leave),
                             InstanceMethod("endWithThread", &Children::EndWithThread),
                             InstanceMethod("hasEnded", &Children::HasEnded),
                         });
    env.AddCleanupHook([](Children* self) { self->EndAll(); }, this);
  }

 private:
  Napi::Value ConfineProcess(const Napi::CallbackInfo& info) {
    try {
      Confine(static_cast<size_t>(info[0].As<Napi::Number>().Int64Value()));
      return info.Env().Undefined();
    } catch (const std::system_error& error) {
      throw Napi::Error::New(info.Env(), error.what());
    }
  }

  /// Node's own way out restores terminals and signals, and aborts where it may not.
  void Leave(const Napi::CallbackInfo& info) { _exit(info[0].As<Napi::Number>().Int32Value()); }

  void EndWithThread(const Napi::CallbackInfo& info) { living_.insert(ChildOf(info)); }
  void HasEnded(const Napi::CallbackInfo& info) { living_.erase(ChildOf(info)); }

  static pid_t ChildOf(const Napi::CallbackInfo& info) { return info[0].As<Napi::Number>().Int32Value(); }

  void EndAll() {
    for (const pid_t child : living_) EndChild(child);
    living_.clear();
  }

  std::set<pid_t> living_;
};

}  // namespace

NODE_API_NAMED_ADDON(radserve_confine, Children)

}  // namespace radserve
