#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "addon/convert.h"
#include "base/durable_file.h"
#include "runtime/weights.h"

namespace radserve {

namespace {

/// Work on a thread of libuv, as all work with files is; its promise gets what `answer` makes of the outcome.
template <typename Outcome>
class FileWork : public Napi::AsyncWorker {
 public:
  using Work = std::function<Outcome()>;
  using Answer = Napi::Value (*)(Napi::Env env, Outcome& outcome);

  static Napi::Value Begin(Napi::Env env, const char* name, Work work, Answer answer) {
    auto worker = std::make_unique<FileWork>(env, name, std::move(work), answer);
    const Napi::Promise promise = worker->deferred_.Promise();
    worker->Queue();
    // It deletes itself when it is done
    (void)worker.release();
    return promise;
  }

  FileWork(Napi::Env env, const char* name, Work work, Answer answer)
      : Napi::AsyncWorker(env, name), deferred_(env), work_(std::move(work)), answer_(answer) {}

 protected:
  void Execute() override { outcome_ = work_(); }
  void OnOK() override { deferred_.Resolve(answer_(Env(), outcome_)); }

 private:
  Napi::Promise::Deferred deferred_;
  const Work work_;
  const Answer answer_;
  Outcome outcome_{};
};

Napi::Value AnswerWritten(Napi::Env env, WriteOutcome& outcome) {
  Napi::Object written = Napi::Object::New(env);
  written.Set("error", outcome.error);
  written.Set("call", outcome.call);
  written.Set("same", outcome.same);
  return written;
}

/// Closes the descriptor if nobody takes it over: the environment has ended meanwhile.
struct Pinned : PinOutcome {
  Pinned() = default;
  explicit Pinned(const PinOutcome& outcome) : PinOutcome(outcome) {}
  Pinned(Pinned&& other) noexcept : PinOutcome(other) { other.fd = -1; }
  Pinned& operator=(Pinned&& other) noexcept {
    std::swap(static_cast<PinOutcome&>(*this), static_cast<PinOutcome&>(other));
    return *this;
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() {
    if (fd >= 0) close(fd);
  }
};

Napi::Value AnswerPinned(Napi::Env env, Pinned& outcome) {
  Napi::Object written = Napi::Object::New(env);
  written.Set("error", outcome.error);
  written.Set("call", outcome.call);
  written.Set("fd", std::exchange(outcome.fd, -1));
  written.Set("dev", static_cast<double>(outcome.device));
  return written;
}

}  // namespace

Napi::Value PinPathNow(const Napi::CallbackInfo& info) {
  Pinned outcome(PinFromMemory(info[2].IsUndefined() ? AT_FDCWD : info[2].As<Napi::Number>().Int32Value(),
                               info[0].As<Napi::String>().Utf8Value(),
                               info[1].As<Napi::Number>().Int32Value()));
  return AnswerPinned(info.Env(), outcome);
}

Napi::Value AnyThereLater(const Napi::CallbackInfo& info) {
  const auto list = info[0].As<Napi::Array>();
  std::vector<std::string> paths;
  for (uint32_t i = 0; i < list.Length(); ++i) paths.push_back(list.Get(i).As<Napi::String>().Utf8Value());
  return FileWork<int>::Begin(
      info.Env(), "anyThere", [paths = std::move(paths)] { return AnyThere(paths); },
      [](Napi::Env env, int& error) -> Napi::Value { return Napi::Number::New(env, error); });
}

Napi::Value ReadDescriptorNow(const Napi::CallbackInfo& info) {
  auto bytes = info[1].As<Napi::Uint8Array>();
  const size_t read =
      ReadFromMemory(info[0].As<Napi::Number>().Int32Value(), bytes.Data(), bytes.ByteLength());
  return Napi::Number::New(info.Env(), static_cast<double>(read));
}

Napi::Value PinPathLater(const Napi::CallbackInfo& info) {
  const int flags = info[1].As<Napi::Number>().Int32Value();
  return FileWork<Pinned>::Begin(
      info.Env(), "pinPath",
      [path = info[0].As<Napi::String>().Utf8Value(), flags] { return Pinned(PinPath(path, flags)); },
      AnswerPinned);
}

Napi::Value WriteFileDurably(const Napi::CallbackInfo& info) {
  auto bytes = info[1].As<Napi::Uint8Array>();
  // The caller's array lives until the work is gone; nobody writes to it meanwhile.
  const auto held = std::make_shared<Napi::ObjectReference>(Napi::Persistent(bytes.As<Napi::Object>()));
  return FileWork<WriteOutcome>::Begin(
      info.Env(), "writeDurably",
      [held, path = info[0].As<Napi::String>().Utf8Value(), data = bytes.Data(), size = bytes.ByteLength()] {
        return WriteDurably(path, data, size);
      },
      AnswerWritten);
}

Napi::Value LinkDescriptor(const Napi::CallbackInfo& info) {
  const std::string open_file = "/proc/self/fd/" + std::to_string(info[0].As<Napi::Number>().Int32Value());
  const std::string path = info[1].As<Napi::String>().Utf8Value();
  const int result = linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW);
  return Napi::Boolean::New(info.Env(), result == 0);
}

Napi::Value LockDescriptor(const Napi::CallbackInfo& info) {
  int result = 0;
  do {
    result = flock(info[0].As<Napi::Number>().Int32Value(), LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno != EWOULDBLOCK) throw std::system_error(errno, std::generic_category(), "flock");
  return Napi::Boolean::New(info.Env(), result == 0);
}

Napi::Value ExternalData(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const auto locations = ExternalLocations(info[0].As<Napi::String>().Utf8Value());
  if (!locations) return env.Null();
  return WriteList(env, std::vector<std::string>(locations->begin(), locations->end()),
                   [&](const std::string& location) { return Napi::String::New(env, location); });
}

}  // namespace radserve
