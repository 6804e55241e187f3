#include "runtime/run_memory.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <new>
#include <set>
#include <utility>
#include <vector>

#include "runtime/frames.h"

namespace radserve {

namespace {
constexpr size_t kAlignment = 64;
}  // namespace

/// Lies before the memory that is given out.
struct alignas(kAlignment) RunBlock {
  /// Length of the memory after it.
  size_t bytes;
  /// It counts towards the limit of runs.
  bool counted;
  /// It is made of frames, and not of the C library's memory.
  bool mapped;
  /// The cache of a session whose run took it last; nullptr for none. It may have ended.
  RunCache* home = nullptr;
};

namespace {

/// A block may be so much larger than what it is used for, as a part of that.
constexpr size_t kSlack = 4;
constexpr unsigned kScopes = 16;
/// Threads keep no blocks of so many bytes: a network's large tensors have many sizes, of which
/// each thread would keep the most.
constexpr size_t kLarge = size_t{64} << 20;
/// From so many bytes on each block has pages of its own, as it would have from the C library
/// (M_MMAP_THRESHOLD of mallopt(3)): fresh ones take as long as a small network over it.
constexpr size_t kMapped = size_t{32} << 20;
constexpr size_t kMostIdle = size_t{256} << 20;

/// What a small block takes beside its bytes: its head, the C library's, and the runtime's tensor
/// over it. A graph can have millions of them.
constexpr size_t kBeside = 384;
constexpr size_t kSmallBlock = 4096;

/// What a block of so many bytes counts as.
constexpr size_t Charge(size_t bytes) { return bytes < kSmallBlock ? bytes + kBeside : bytes; }

/// What runs have taken from the system and not given back, and the most of it. Counted where
/// memory comes and goes, which is seldom: threads would wait for each other's counts.
std::atomic<size_t> counted_bytes = 0;
std::atomic<size_t> most_counted = 0;

/// A run that has so little, of the limit or at most, has it in any case: small networks go on
/// beside one that holds the rest.
constexpr size_t kSmallPart = 32;
constexpr size_t kMostSmall = size_t{32} << 20;

/// run: what the run would have then.
bool Count(size_t bytes, size_t run) {
  const size_t most = most_counted;
  const bool small = run <= std::min(most / kSmallPart, kMostSmall);
  if (counted_bytes.fetch_add(bytes) + bytes <= most || most == 0 || small) return true;
  counted_bytes -= bytes;
  return false;
}

/// Of a block that is made of them.
size_t FramesOf(size_t bytes) { return (sizeof(RunBlock) + bytes + kFrame - 1) / kFrame; }

/// The most bytes of a block of so many frames.
size_t BytesOf(size_t frames) { return frames * kFrame - sizeof(RunBlock); }

/// Whether its pages may become those of another block.
bool IsGathered(const RunBlock& block) { return block.mapped && block.counted; }

std::byte* AddressOf(RunBlock* block) { return reinterpret_cast<std::byte*>(block); }

void GiveBack(RunBlock* block) {
  if (block->counted) counted_bytes -= Charge(block->bytes);
  if (block->mapped) return UnmapFrames({AddressOf(block), FramesOf(block->bytes)});
  std::free(block);
}

/// run: for what is counted, what its run has already. nullptr if there is no memory, or it would
/// be beyond the limit.
RunBlock* TakeFromSystem(size_t bytes, bool counted, size_t run) {
  if (counted && !Count(Charge(bytes), run + Charge(bytes))) return nullptr;
  const bool mapped = bytes >= kMapped;
  void* fresh = mapped ? GatherFrames(FramesOf(bytes), {})
                       : std::aligned_alloc(kAlignment, sizeof(RunBlock) + bytes);
  if (fresh != nullptr) return new (fresh) RunBlock{bytes, counted, mapped};
  if (counted) counted_bytes -= Charge(bytes);
  return nullptr;
}

/// Mapped blocks that nobody uses, whoever freed them: outputs are freed by whoever read them.
class Idle {
 public:
  /// Of that length alone. Where a large one is missing those that are there have the wrong
  /// lengths: they make room, so that no run has more memory for them.
  RunBlock* Take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(blocks_, bytes, &RunBlock::bytes);
    if (found == blocks_.end()) {
      if (bytes >= kLarge) DropTo(0);
      return nullptr;
    }
    RunBlock* block = *found;
    blocks_.erase(found);
    kept_ -= bytes;
    return block;
  }

  void Keep(RunBlock* block) {
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
      GiveBack(blocks_.front());
      blocks_.pop_front();
    }
  }

  mutable std::mutex mutex_;
  std::deque<RunBlock*> blocks_;
  size_t kept_ = 0;
};

Idle& TheIdle() {
  static auto& idle = *std::make_unique<Idle>().release();
  return idle;
}

/// All caches. Leaked on purpose: threads may end after static objects.
struct Caches {
  std::mutex mutex;
  std::set<RunCache*> all;
};

Caches& TheCaches() {
  static auto& caches = *std::make_unique<Caches>().release();
  return caches;
}

/// The run that the calling thread is in, or was last in.
struct Run {
  /// nullptr on threads that have had no run with a cache of their own.
  std::unique_ptr<RunCache> own;
  /// Where it keeps what it frees; nullptr outside of runs.
  RunCache* cache = nullptr;
  /// What it has taken and not freed, and the most of it.
  size_t taken = 0;
  size_t most = 0;
  std::optional<RunRefusal> refused;
};

thread_local Run run;

/// What runs have now, apart from what is kept for the next.
size_t InUse() {
  const size_t kept = KeptRunMemory();
  const size_t counted = counted_bytes;
  return counted - std::min(counted, kept);
}

void Refuse(size_t bytes) {
  const size_t wanted = run.taken + Charge(bytes);
  const size_t most = most_counted;
  const size_t in_use = InUse();
  const size_t others = in_use - std::min(in_use, run.taken);
  // What the system refused will not be there either if others give back less than that
  const bool beyond_limit = most != 0 && wanted <= most && in_use + Charge(bytes) > most;
  run.refused = RunRefusal{wanted, beyond_limit ? others == 0 : others < bytes};
}

/// What a session of which nothing runs keeps serves one that has too little.
void TakeOver(RunCache& cache, size_t bytes) {
  size_t missing = cache.Lacks(bytes);
  if (missing == 0) return;
  const std::lock_guard lock(TheCaches().mutex);
  for (RunCache* other : TheCaches().all) {
    if (other == &cache) continue;
    for (RunBlock* block : other->Surrender(missing)) {
      missing -= std::min(missing, block->bytes);
      cache.Keep(block);
    }
    if (missing == 0) return;
  }
}

/// What a run of a session gave, and somebody has read, is for the session's next run: a window's
/// output is most of what the next window takes. False where it is of no session, or that has
/// ended; small blocks go where others do.
bool KeepAtHome(RunBlock* block) {
  if (block->home == nullptr || !block->mapped) return false;
  const std::lock_guard lock(TheCaches().mutex);
  if (!TheCaches().all.contains(block->home)) return false;
  block->home->Keep(block);
  return true;
}

}  // namespace

RunCache::RunCache(bool of_session) : of_session_(of_session) {
  const std::lock_guard lock(TheCaches().mutex);
  TheCaches().all.insert(this);
}

RunCache::~RunCache() {
  {
    const std::lock_guard lock(TheCaches().mutex);
    TheCaches().all.erase(this);
  }
  DropAll();
}

RunBlock* RunCache::Take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.lower_bound(bytes);
  if (found == blocks_.end() || found->first > bytes + bytes / kSlack) return nullptr;
  RunBlock* block = found->second.block;
  kept_ -= Charge(found->first);
  blocks_.erase(found);
  return block;
}

RunBlock* RunCache::Gather(size_t bytes, size_t run) {
  const std::lock_guard lock(mutex_);
  const size_t wanted = FramesOf(bytes);
  size_t found = 0;
  size_t freed = 0;
  // The largest first, and of each its last frames: where it begins is what it says of itself
  struct Part {
    decltype(blocks_)::iterator entry;
    size_t rest = 0;
    size_t freed = 0;
  };
  std::vector<Part> parts;
  std::vector<Frames> frames;
  for (auto entry = blocks_.end(); entry != blocks_.begin() && found < wanted;) {
    RunBlock* const block = (--entry)->second.block;
    if (!IsGathered(*block)) continue;
    const size_t all = FramesOf(block->bytes);
    const size_t taken = std::min(all, wanted - found);
    const size_t rest = all - taken;
    const size_t goes = block->bytes - (rest == 0 ? 0 : BytesOf(rest));
    parts.push_back({entry, rest, goes});
    frames.push_back({AddressOf(block) + rest * kFrame, taken});
    found += taken;
    freed += goes;
  }
  if (parts.empty()) return nullptr;
  const size_t more = bytes - std::min(bytes, freed);
  if (more > 0 && !Count(more, run + bytes)) return nullptr;
  for (const auto& [entry, rest, goes] : parts) {
    auto [block, scope] = entry->second;
    blocks_.erase(entry);
    kept_ -= goes;
    if (rest == 0) continue;
    block->bytes = BytesOf(rest);
    blocks_.emplace(block->bytes, Kept{block, scope});
  }
  std::byte* const gathered = GatherFrames(wanted, frames);
  counted_bytes -= freed + more - (gathered == nullptr ? 0 : bytes);
  return gathered == nullptr ? nullptr : new (gathered) RunBlock{bytes, true, true};
}

void RunCache::Keep(RunBlock* block) {
  const std::lock_guard lock(mutex_);
  blocks_.emplace(block->bytes, Kept{block, scopes_});
  kept_ += Charge(block->bytes);
}

size_t RunCache::Lacks(size_t bytes) const {
  const std::lock_guard lock(mutex_);
  size_t missing = bytes;
  for (const auto& [length, kept] : blocks_)
    if (IsGathered(*kept.block)) missing -= std::min(missing, length);
  return missing;
}

std::vector<RunBlock*> RunCache::Surrender(size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::vector<RunBlock*> given;
  if (!of_session_ || running_ > 0) return given;
  for (auto entry = blocks_.end(); bytes > 0 && entry != blocks_.begin();) {
    RunBlock* const block = (--entry)->second.block;
    if (!IsGathered(*block)) continue;
    given.push_back(block);
    bytes -= std::min(bytes, block->bytes);
    kept_ -= Charge(block->bytes);
    entry = blocks_.erase(entry);
  }
  return given;
}

bool RunCache::Keeps(size_t bytes) const { return of_session_ || bytes < kLarge; }

void RunCache::BeginScope() {
  const std::lock_guard lock(mutex_);
  ++running_;
}

void RunCache::EndScope() {
  const std::lock_guard lock(mutex_);
  --running_;
  if (++scopes_ % kScopes == 0) Drop(scopes_ - kScopes);
}

void RunCache::DropAll() {
  const std::lock_guard lock(mutex_);
  Drop(scopes_ + 1);
}

size_t RunCache::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

void RunCache::Drop(uint64_t scope) {
  std::erase_if(blocks_, [&](const auto& entry) {
    if (entry.second.scope >= scope) return false;
    kept_ -= Charge(entry.first);
    GiveBack(entry.second.block);
    return true;
  });
}

void* AllocateRunMemory(size_t bytes) {
  const bool in_run = run.cache != nullptr;
  const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (whole < bytes) {
    if (in_run) Refuse(bytes);
    return nullptr;
  }
  RunBlock* block = in_run ? run.cache->Take(whole) : nullptr;
  if (block == nullptr && whole >= kMapped) block = TheIdle().Take(whole);
  if (block == nullptr && in_run && run.cache->of_session() && whole >= kMapped) {
    TakeOver(*run.cache, whole);
    block = run.cache->Gather(whole, run.taken);
  }
  if (block == nullptr) block = TakeFromSystem(whole, in_run, run.taken);
  if (block == nullptr && in_run) {
    // What is kept for runs to come makes room for this one
    DropRunMemory();
    block = TakeFromSystem(whole, true, run.taken);
    if (block == nullptr) Refuse(whole);
  }
  if (block == nullptr) return nullptr;
  if (in_run) run.most = std::max(run.most, run.taken += Charge(block->bytes));
  block->home = in_run && run.cache->of_session() ? run.cache : nullptr;
  return block + 1;
}

void FreeRunMemory(void* memory) {
  if (memory == nullptr) return;
  RunBlock* block = static_cast<RunBlock*>(memory) - 1;
  if (run.cache != nullptr) {
    // Memory that an earlier scope took is none of this one's.
    run.taken -= std::min(run.taken, Charge(block->bytes));
    if (run.cache->Keeps(block->bytes)) return run.cache->Keep(block);
  } else if (KeepAtHome(block)) {
    return;
  }
  if (block->bytes >= kMapped) return TheIdle().Keep(block);
  GiveBack(block);
}

void DropRunMemory() {
  TheIdle().DropAll();
  const std::lock_guard lock(TheCaches().mutex);
  for (RunCache* cache : TheCaches().all) cache->DropAll();
}

size_t KeptRunMemory() {
  const std::lock_guard lock(TheCaches().mutex);
  size_t kept = TheIdle().kept();
  for (const RunCache* cache : TheCaches().all) kept += cache->kept();
  return kept;
}

void LimitRunMemory(size_t bytes) { most_counted = bytes; }

size_t RunMemoryLimit() { return most_counted; }

size_t RunMemory() { return counted_bytes; }

size_t MostOfLastRun() { return run.most; }

std::optional<RunRefusal> RefusedInLastRun() { return run.refused; }

bool RunMemoryHasRoom(size_t bytes) {
  const size_t in_use = InUse();
  return in_use == 0 || in_use + bytes <= most_counted;
}

RunScope::RunScope(RunCache* cache) {
  if (cache == nullptr && run.own == nullptr) run.own = std::make_unique<RunCache>(false);
  run.cache = cache == nullptr ? run.own.get() : cache;
  run.cache->BeginScope();
  run.taken = 0;
  run.most = 0;
  run.refused.reset();
}

RunScope::~RunScope() { std::exchange(run.cache, nullptr)->EndScope(); }

}  // namespace radserve
