#include "runtime/run_memory.h"

#include <algorithm>
#include <cstdlib>
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
/// Memory of so many bytes goes back at once: what is computed over it takes longer than to map it, and a network's large tensors
/// have many sizes, of which each thread would keep the most.
constexpr size_t kLarge = size_t{64} << 20;

/// Lies before the memory that is given out.
struct alignas(kAlignment) Header {
  /// Length of the memory after it.
  size_t bytes;
};

/// Memory that one thread keeps between runs. Only that thread takes the lock, except in DropRunMemory.
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

  /// In a RunScope; of use to the thread alone, as what the scope has taken and not freed, and the most of it.
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
  if (block == nullptr) {
    const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (whole < bytes) return nullptr;
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
  std::free(block);
}

void DropRunMemory() {
  const std::lock_guard lock(TheCaches().mutex);
  for (Cache* cache : TheCaches().all) cache->DropAll();
}

size_t KeptRunMemory() {
  const std::lock_guard lock(TheCaches().mutex);
  size_t kept = 0;
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
