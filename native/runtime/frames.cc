#include "runtime/frames.h"

#include <sys/mman.h>

#include <cstdint>

namespace radserve {
namespace {

void Unmap(std::byte* begin, size_t bytes) {
  if (bytes > 0) munmap(begin, bytes);
}

/// Addresses without memory, which begin with a frame; nullptr if there are none.
std::byte* Reserve(size_t count) {
  const size_t bytes = count * kFrame;
  void* const found =
      mmap(nullptr, bytes + kFrame, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(found);
  const size_t before = (kFrame - reinterpret_cast<uintptr_t>(begin) % kFrame) % kFrame;
  Unmap(begin, before);
  Unmap(begin + before + bytes, kFrame - before);
  return begin + before;
}

/// Frame by frame, because one call moves no memory that was mapped in several.
bool Move(std::byte* from, std::byte* to) {
  return mremap(from, kFrame, kFrame, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED;
}

}  // namespace

std::byte* GatherFrames(size_t count, std::span<const Frames> given) {
  std::byte* const to = Reserve(count);
  size_t moved = 0;
  bool failed = to == nullptr;
  bool hole = false;
  for (const Frames& frames : given) {
    for (size_t i = 0; i < frames.count; ++i) {
      std::byte* const from = frames.begin + i * kFrame;
      if (!failed && Move(from, to + moved * kFrame)) {
        ++moved;
      } else {
        hole = hole || !failed;
        failed = true;
        Unmap(from, kFrame);
      }
    }
  }
  if (to == nullptr) return nullptr;
  std::byte* const rest = to + moved * kFrame;
  const size_t fresh = (count - moved) * kFrame;
  if (!failed && (fresh == 0 || mprotect(rest, fresh, PROT_READ | PROT_WRITE) == 0)) return to;
  Unmap(to, moved * kFrame);
  // A move that failed may have left its place to whoever maps memory next
  const size_t lost = hole ? kFrame : 0;
  Unmap(rest + lost, fresh - lost);
  return nullptr;
}

void UnmapFrames(const Frames& frames) { Unmap(frames.begin, frames.count * kFrame); }

}  // namespace radserve
