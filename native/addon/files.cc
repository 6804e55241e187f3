#include "addon/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

namespace radserve {

Napi::Value LinkDescriptor(const Napi::CallbackInfo& info) {
  const std::string open_file = "/proc/self/fd/" + std::to_string(info[0].As<Napi::Number>().Int32Value());
  const std::string path = info[1].As<Napi::String>().Utf8Value();
  const int result = linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW);
  return Napi::Boolean::New(info.Env(), result == 0);
}

}  // namespace radserve
