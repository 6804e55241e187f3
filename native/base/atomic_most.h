#pragma once

#include <atomic>

namespace radserve {

/// Makes `most` the greater of itself and `value`, whoever else does.
template <typename T>
void Raise(std::atomic<T>& most, T value) {
  T known = most;
  while (known < value && !most.compare_exchange_weak(known, value)) {
  }
}

}  // namespace radserve
