#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
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

/// One file on its way to the disk, on a thread of libuv as all work with files is.
class FileWriter : public Napi::AsyncWorker {
 public:
  FileWriter(Napi::Env env, std::string path, const Napi::Uint8Array& bytes)
      : Napi::AsyncWorker(env, "writeDurably"),
        deferred_(env),
        path_(std::move(path)),
        held_(Napi::Persistent(bytes.As<Napi::Object>())),
        data_(bytes.Data()),
        size_(bytes.ByteLength()) {}

  Napi::Promise promise() const { return deferred_.Promise(); }

 protected:
  void Execute() override { outcome_ = WriteDurably(path_, data_, size_); }

  void OnOK() override {
    Napi::Object outcome = Napi::Object::New(Env());
    outcome.Set("error", outcome_.error);
    outcome.Set("call", outcome_.call);
    outcome.Set("same", outcome_.same);
    deferred_.Resolve(outcome);
  }

 private:
  Napi::Promise::Deferred deferred_;
  const std::string path_;
  /// The caller's array lives until this object is gone; nobody writes to it meanwhile.
  const Napi::ObjectReference held_;
  const uint8_t* const data_;
  const size_t size_;
  WriteOutcome outcome_;
};

/// Gives what was pinned to the caller.
Napi::Object WritePinned(Napi::Env env, PinOutcome& outcome) {
  Napi::Object written = Napi::Object::New(env);
  written.Set("error", outcome.error);
  written.Set("call", outcome.call);
  written.Set("fd", std::exchange(outcome.fd, -1));
  written.Set("dev", static_cast<double>(outcome.device));
  return written;
}

/// A path on its way to a descriptor.
class Pinner : public Napi::AsyncWorker {
 public:
  Pinner(Napi::Env env, std::string path, int flags)
      : Napi::AsyncWorker(env, "pinPath"), deferred_(env), path_(std::move(path)), flags_(flags) {}

  /// Nobody took the descriptor over: the environment has ended meanwhile.
  ~Pinner() override {
    if (outcome_.fd >= 0) close(outcome_.fd);
  }
  Pinner(const Pinner&) = delete;
  Pinner& operator=(const Pinner&) = delete;

  Napi::Promise promise() const { return deferred_.Promise(); }

 protected:
  void Execute() override { outcome_ = PinPath(path_, flags_); }

  void OnOK() override { deferred_.Resolve(WritePinned(Env(), outcome_)); }

 private:
  Napi::Promise::Deferred deferred_;
  const std::string path_;
  const int flags_;
  PinOutcome outcome_;
};

/// Names on their way to being looked up.
class Looker : public Napi::AsyncWorker {
 public:
  Looker(Napi::Env env, std::vector<std::string> paths)
      : Napi::AsyncWorker(env, "anyThere"), deferred_(env), paths_(std::move(paths)) {}

  Napi::Promise promise() const { return deferred_.Promise(); }

 protected:
  void Execute() override { error_ = AnyThere(paths_); }
  void OnOK() override { deferred_.Resolve(Napi::Number::New(Env(), error_)); }

 private:
  Napi::Promise::Deferred deferred_;
  const std::vector<std::string> paths_;
  int error_ = 0;
};

/// Begins the work on a thread of libuv; returns its promise.
template <typename Worker>
Napi::Value Begin(std::unique_ptr<Worker> worker) {
  const Napi::Promise promise = worker->promise();
  worker->Queue();
  // It deletes itself when it is done
  (void)worker.release();
  return promise;
}

}  // namespace

Napi::Value PinPathNow(const Napi::CallbackInfo& info) {
  PinOutcome outcome =
      PinFromMemory(info[2].IsUndefined() ? AT_FDCWD : info[2].As<Napi::Number>().Int32Value(),
                    info[0].As<Napi::String>().Utf8Value(), info[1].As<Napi::Number>().Int32Value());
  return WritePinned(info.Env(), outcome);
}

Napi::Value AnyThereLater(const Napi::CallbackInfo& info) {
  const auto list = info[0].As<Napi::Array>();
  std::vector<std::string> paths;
  for (uint32_t i = 0; i < list.Length(); ++i) paths.push_back(list.Get(i).As<Napi::String>().Utf8Value());
  return Begin(std::make_unique<Looker>(info.Env(), std::move(paths)));
}

Napi::Value ReadDescriptorNow(const Napi::CallbackInfo& info) {
  auto bytes = info[1].As<Napi::Uint8Array>();
  const size_t read =
      ReadFromMemory(info[0].As<Napi::Number>().Int32Value(), bytes.Data(), bytes.ByteLength());
  return Napi::Number::New(info.Env(), static_cast<double>(read));
}

Napi::Value PinPathLater(const Napi::CallbackInfo& info) {
  return Begin(std::make_unique<Pinner>(info.Env(), info[0].As<Napi::String>().Utf8Value(),
                                        info[1].As<Napi::Number>().Int32Value()));
}

Napi::Value WriteFileDurably(const Napi::CallbackInfo& info) {
  return Begin(std::make_unique<FileWriter>(info.Env(), info[0].As<Napi::String>().Utf8Value(),
                                            info[1].As<Napi::Uint8Array>()));
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
