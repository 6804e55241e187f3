/// The addon of the package radserve-engine: graphs and tensors, and nothing that knows images.
#include <napi.h>

#include <array>

#include "addon/values.h"

static Napi::Object Init(Napi::Env env, Napi::Object exports) {
  using namespace radserve;
  const std::array all = {GraphExports()};
  return InitAddon(env, exports, all);
}

NODE_API_MODULE(engine, Init)
