#pragma once

#include <napi.h>

#include <cstddef>
#include <memory>
#include <span>

namespace radserve {

/// Memory of an array that a request reads.
struct Lent {
  std::span<const std::byte> bytes;
  std::shared_ptr<void> owner;
};

/// The memory of an array where it lies, and a share of it: whoever transfers the array's buffer to
/// another thread, or lets it be collected, does not take it from under a run. Where Node.js gives
/// no share it is copied. On the thread of JavaScript.
Lent Borrow(const Napi::TypedArray& array);

}  // namespace radserve
