#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "addon/convert.h"
#include "runtime/weights.h"

namespace radserve {

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
