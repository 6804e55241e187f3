/// The addon of Radserve: all that its threads call.
#include <napi.h>

#include <array>

#include "addon/convert.h"

static Napi::Object Init(Napi::Env env, Napi::Object exports) {
  using namespace radserve;
  const std::array all = {GraphExports(), ImageExports(), FileExports(), PixelExports(),
                          PictureExports()};
  return InitAddon(env, exports, all);
}

NODE_API_MODULE(addon, Init)
