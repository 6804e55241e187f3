#include "runtime/run_memory.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>

namespace radserve {
namespace {

constexpr size_t kAlignment = 64;
/// A block may be so much larger than what it is used for, as a part of that.
constexpr size_t kSlack = 4;
constexpr unsigned kScopes = 16;
/// Threads keep no blocks of so many bytes: a network's large tensors have many sizes, of which
/// each thread would keep the most.
constexpr size_t kLarge = size_t{64} << 20;
/// From so many bytes on the C library maps memory for each block (M_MMAP_THRESHOLD of mallopt(3)):
/// its pages take as long as a small network over it.
constexpr size_t kMapped = size_t{32} << 20;
constexpr size_t kMostIdle = size_t{256} << 20;

/// Lies before the memory that is given out.
struct alignas(kAlignment) Header {
  /// Length of the memory after it.
  size_t bytes;
};

/// Memory that one thread keeps between runs. Only that thread takes the lock, except in
/// DropRunMemory.
class Cache {
 public:
  Cache();
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  Header* Take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.lower_bound(bytes);
    if (found == blocks_.end() || found->first > bytes + bytes / kSlack) return nullptr;
    Header* block = found->second.block;
    kept_ -= found->first;
    blocks_.erase(found);
    return block;
  }

  void Keep(Header* block) {
    const std::lock_guard lock(mutex_);
    blocks_.emplace(block->bytes, Block{block, scopes_});
    kept_ += block->bytes;
  }

  void EndScope() {
    const std::lock_guard lock(mutex_);
    if (++scopes_ % kScopes == 0) Drop(scopes_ - kScopes);
  }

  void DropAll() {
    const std::lock_guard lock(mutex_);
    Drop(scopes_ + 1);
  }

  size_t kept() const {
    const std::lock_guard lock(mutex_);
    return kept_;
  }

  /// In a RunScope; of use to the thread alone, as what the scope has taken and not freed, and the
  /// most of it.
  bool open = false;
  size_t taken = 0;
  size_t most = 0;

 private:
  struct Block {
    Header* block;
    /// Number of the scope that freed it.
    uint64_t scope;
  };

  /// Drops the memory that was last used before that scope.
  void Drop(uint64_t scope) {
    std::erase_if(blocks_, [&](const auto& entry) {
      if (entry.second.scope >= scope) return false;
      kept_ -= entry.first;
      std::free(entry.second.block);
      return true;
    });
  }

  mutable std::mutex mutex_;
  std::multimap<size_t, Block> blocks_;
  size_t kept_ = 0;
  uint64_t scopes_ = 0;
};

/// Mapped blocks that nobody uses, whoever freed them: outputs are freed by whoever read them.
class Idle {
 public:
  /// Of that length alone. Where a large one is missing those that are there have the wrong
  /// lengths: they make room, so that no run has more memory for them.
  Header* Take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(blocks_, bytes, &Header::bytes);
    if (found == blocks_.end()) {
      if (bytes >= kLarge) DropTo(0);
      return nullptr;
    }
    Header* block = *found;
    blocks_.erase(found);
    kept_ -= bytes;
    return block;
  }

  void Keep(Header* block) {
    const std::lock_guard lock(mutex_);
    blocks_.push_back(block);
    kept_ += block->bytes;
    DropTo(kMostIdle);
  }

  void DropAll() {
    const std::lock_guard lock(mutex_);
    DropTo(0);
  }

  size_t kept() const {
    const std::lock_guard lock(mutex_);
    return kept_;
  }

 private:
  /// The oldest first.
  void DropTo(size_t most) {
    while (kept_ > most) {
      kept_ -= blocks_.front()->bytes;
      std::free(blocks_.front());
      blocks_.pop_front();
    }
  }

  mutable std::mutex mutex_;
  std::deque<Header*> blocks_;
  size_t kept_ = 0;
};

Idle& TheIdle() {
  static auto& idle = *std::make_unique<Idle>().release();
  return idle;
}

/// The caches of all threads. Leaked on purpose: threads may end after static objects.
struct Caches {
  std::mutex mutex;
  std::set<Cache*> all;
};

Caches& TheCaches() {
  static auto& caches = *std::make_unique<Caches>().release();
  return caches;
}

Cache::Cache() {
  const std::lock_guard lock(TheCaches().mutex);
  TheCaches().all.insert(this);
}

Cache::~Cache() {
  {
    const std::lock_guard lock(TheCaches().mutex);
    TheCaches().all.erase(this);
  }
  DropAll();
}

/// nullptr on threads that have had no RunScope.
thread_local std::unique_ptr<Cache> own;

bool Open() { return own != nullptr && own->open; }

}  // namespace

void* AllocateRunMemory(size_t bytes) {
  Header* block = Open() ? own->Take(bytes) : nullptr;
  const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (whole < bytes) return nullptr;
  if (block == nullptr && whole >= kMapped) block = TheIdle().Take(whole);
  if (block == nullptr) {
    void* fresh = std::aligned_alloc(kAlignment, sizeof(Header) + whole);
    if (fresh == nullptr) return nullptr;
    block = new (fresh) Header{whole};
  }
  if (Open()) own->most = std::max(own->most, own->taken += block->bytes);
  return block + 1;
}

void FreeRunMemory(void* memory) {
  if (memory == nullptr) return;
  Header* block = static_cast<Header*>(memory) - 1;
  if (Open()) {
    // Memory that an earlier scope took is none of this one's.
    own->taken -= std::min(own->taken, block->bytes);
    if (block->bytes < kLarge) return own->Keep(block);
  }
  if (block->bytes >= kMapped) return TheIdle().Keep(block);
  std::free(block);
}

void DropLargeRunMemory() { TheIdle().DropAll(); }

void DropRunMemory() {
  DropLargeRunMemory();
  const std::lock_guard lock(TheCaches().mutex);
  for (Cache* cache : TheCaches().all) cache->DropAll();
}

size_t KeptRunMemory() {
  const std::lock_guard lock(TheCaches().mutex);
  size_t kept = TheIdle().kept();
  for (const Cache* cache : TheCaches().all) kept += cache->kept();
  return kept;
}

size_t MostOfLastRun() { return own == nullptr ? 0 : own->most; }

RunScope::RunScope() {
  if (own == nullptr) own = std::make_unique<Cache>();
  own->open = true;
  own->taken = 0;
  own->most = 0;
}

RunScope::~RunScope() {
  own->open = false;
  own->EndScope();
}

}  // namespace radserve
