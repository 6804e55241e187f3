#include "addon/lent.h"

#include <dlfcn.h>

#include <cstring>

#include "base/tensor.h"

namespace radserve {
namespace {

/// Node-API can keep an ArrayBuffer, but not its memory, which leaves it when it is transferred.
/// V8 has that (v8::ArrayBuffer::GetBackingStore, in every version since 8), and Node.js exports
/// V8's functions by their names, but a Node-API addon is built without their headers. A method
/// takes its object first; what it gives is a std::shared_ptr, whatever it points to. A napi_value
/// is the address of the handle, which is what a v8::Local points with. A share is ours to end only
/// if Node.js has the C++ library that this is built with: the name of a function that takes one
/// says which it has (v8::ArrayBuffer::New).
using GetBackingStore = std::shared_ptr<void> (*)(napi_value buffer);
using StoreData = void* (*)(const void* store);

struct Functions {
  GetBackingStore get = nullptr;
  StoreData data = nullptr;
};

const Functions& TheFunctions() {
  static const Functions found = [] {
    const auto named = [](const char* name) { return dlsym(RTLD_DEFAULT, name); };
    if (named("_ZN2v811ArrayBuffer3NewEPNS_7IsolateESt10shared_ptrINS_12BackingStoreEE") == nullptr)
      return Functions{};
    return Functions{
        reinterpret_cast<GetBackingStore>(named("_ZN2v811ArrayBuffer15GetBackingStoreEv")),
        reinterpret_cast<StoreData>(named("_ZNK2v812BackingStore4DataEv"))};
  }();
  return found;
}

/// A share of the buffer's memory; nullptr where there is none to be had.
std::shared_ptr<void> ShareOf(Napi::ArrayBuffer buffer) {
  const auto& [get, data] = TheFunctions();
  if (get == nullptr || data == nullptr) return nullptr;
  std::shared_ptr<void> share = get(buffer);
  // What it gave is what was asked for.
  if (share == nullptr || data(share.get()) != buffer.Data()) return nullptr;
  return share;
}

}  // namespace

Lent Borrow(const Napi::TypedArray& array) {
  Napi::ArrayBuffer buffer = array.ArrayBuffer();
  const std::span<const std::byte> bytes(
      static_cast<const std::byte*>(buffer.Data()) + array.ByteOffset(), array.ByteLength());
  if (bytes.empty()) return {};
  if (std::shared_ptr<void> share = ShareOf(buffer)) return {bytes, std::move(share)};
  const auto copy = std::make_shared_for_overwrite<std::byte[]>(bytes.size());
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  return {std::span(copy.get(), bytes.size()), copy};
}

}  // namespace radserve
