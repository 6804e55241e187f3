#pragma once

#include <cstddef>
#include <span>

namespace radserve {

/// Memory is mapped in frames of so many bytes: the system moves the pages of a whole one to
/// another address at once (a page of its page table), without writing any of them.
constexpr size_t kFrame = size_t{2} << 20;

struct Frames {
  std::byte* begin = nullptr;
  size_t count = 0;
};

/// `count` frames side by side: those given, one after the other, and behind them fresh ones. What
/// is given has left its place afterwards, and is gone if there is no memory (nullptr). Any thread.
std::byte* GatherFrames(size_t count, std::span<const Frames> given);
void UnmapFrames(const Frames& frames);

}  // namespace radserve
