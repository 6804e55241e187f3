#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace radserve {

/// Memory for what models compute on their way. What a run frees stays with its thread and serves
/// the next run there, whatever the model: it is in that core's cache and its pages are mapped. An
/// arena that all threads share gives each what another core has just written, which costs small
/// models a quarter of their time. Between threads nothing is waited for, unless somebody frees it
/// all.
///
/// Blocks of 64 MiB and more, and of 32 MiB and more that are freed elsewhere, serve the next run
/// on any thread that asks for as many bytes; 256 MiB of them at most are kept, and none once a run
/// asks for others. Those of a session with a cache of its own go back there, whoever frees them,
/// until a run of another session has too few: the parts of a model run one after the other, and
/// the memory of one is enough for all.
///
/// Aligned to 64 bytes; nullptr if there is no memory, or if all runs together would have more than
/// LimitRunMemory allows.
void* AllocateRunMemory(size_t bytes);
/// Memory of AllocateRunMemory, from any thread; outside a RunScope less than 32 MiB goes back to
/// the system.
void FreeRunMemory(void* memory);
/// Gives back what is kept.
void DropRunMemory();
size_t KeptRunMemory();

/// The most bytes that all runs may have together, what they keep for the next included; 0 is no
/// limit. Only what is taken in a RunScope counts, so that weights do not. Outputs count until they
/// are freed. A run that has at most a thirty-second part of it, and 32 MiB, is never refused that.
void LimitRunMemory(size_t bytes);
/// The limit; 0 where there is none.
size_t RunMemoryLimit();
/// What counts towards it now.
size_t RunMemory();

struct RunBlock;

/// Blocks that the runs of one thread, or of one session, keep for each other. Of use to any
/// thread.
class RunCache {
 public:
  /// of_session: only runs of one network come by, and it keeps blocks of any length.
  explicit RunCache(bool of_session);
  ~RunCache();
  RunCache(const RunCache&) = delete;
  RunCache& operator=(const RunCache&) = delete;

  /// A run begins that keeps its blocks here. Until it ends, no other session takes them over.
  void BeginScope();
  /// A block that is not much larger; nullptr if it has none.
  RunBlock* Take(size_t bytes);
  /// In the cache of a session, a block of 32 MiB and more made of the pages of others, and of
  /// fresh ones behind them where those are too few; nullptr if there are none, or what is fresh
  /// would be beyond the limit. A network's tensors have many lengths: otherwise the most blocks of
  /// each would stay, twice what a window of nnU-Net has at once. `run`: what the run has already.
  RunBlock* Gather(size_t bytes, size_t run);
  void Keep(RunBlock* block);
  /// What blocks of 32 MiB and more lack of so many bytes.
  size_t Lacks(size_t bytes) const;
  /// Takes the blocks that Gather could use out of the cache of a session of which nothing runs,
  /// until they are so many bytes.
  std::vector<RunBlock*> Surrender(size_t bytes);
  /// Whether it would keep a block of so many bytes.
  bool Keeps(size_t bytes) const;
  bool of_session() const { return of_session_; }
  /// A run has ended: what sixteen in a row did not need goes back.
  void EndScope();
  void DropAll();
  size_t kept() const;

 private:
  struct Kept {
    RunBlock* block;
    /// Number of the scope that freed it.
    uint64_t scope;
  };

  /// Drops the memory that was last used before that scope.
  void Drop(uint64_t scope);

  const bool of_session_;
  mutable std::mutex mutex_;
  std::multimap<size_t, Kept> blocks_;
  size_t kept_ = 0;
  uint64_t scopes_ = 0;
  unsigned running_ = 0;
};

/// The most bytes that the calling thread has had at once in its last RunScope, of what it took
/// there.
size_t MostOfLastRun();

struct RunRefusal {
  /// Bytes that the run would have had with what it was refused.
  size_t bytes = 0;
  /// Others have too little of it, or it is more than the limit: to wait would not help.
  bool alone = false;
};
/// The memory that the calling thread's last RunScope was refused, if it was.
std::optional<RunRefusal> RefusedInLastRun();
/// Whether so many bytes would be given now, beside what other runs have. Nothing is kept for
/// whoever asks.
bool RunMemoryHasRoom(size_t bytes);

/// While it lives, the calling thread keeps what it frees; with `cache` in that, else in its own.
/// What sixteen scopes in a row did not need goes back.
class RunScope {
 public:
  explicit RunScope(RunCache* cache = nullptr);
  ~RunScope();
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;
};

}  // namespace radserve
