#include "runtime/staging.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace radserve {

/// One block. Rows are given out in ascending order, and from the start again once nobody has one.
class Staging::Memory : public std::enable_shared_from_this<Memory> {
 public:
  Memory(BucketKey of, const Block& block, std::shared_ptr<std::byte> bytes)
      : key(std::move(of)), block_(block), bytes_(std::move(bytes)) {}

  const BucketKey key;
  /// Number of its last use, under the lock of Staging.
  uint64_t used = 0;

  size_t row_bytes() const { return block_.row_bytes; }
  size_t size() const { return block_.row_bytes * static_cast<size_t>(block_.rows); }

  bool Idle() const {
    const std::lock_guard lock(mutex_);
    return used_ == 0;
  }

  /// Rows that were given out; nothing if all were.
  std::optional<int64_t> Given() const {
    const std::lock_guard lock(mutex_);
    return next_ < block_.rows ? std::optional(next_) : std::nullopt;
  }

  std::shared_ptr<std::byte> Take() {
    std::byte* row = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (next_ == block_.rows) return nullptr;
      row = bytes_.get() + block_.row_bytes * static_cast<size_t>(next_++);
      ++used_;
    }
    return {row, [self = shared_from_this()](std::byte*) { self->Release(); }};
  }

 private:
  void Release() {
    const std::lock_guard lock(mutex_);
    if (--used_ == 0) next_ = 0;
  }

  const Block block_;
  const std::shared_ptr<std::byte> bytes_;
  mutable std::mutex mutex_;
  int64_t next_ = 0;
  int64_t used_ = 0;
};

bool Staging::MakeRoom(size_t bytes, Memories& gone) {
  while (bytes_ + bytes > most_bytes_) {
    const auto oldest = std::ranges::min_element(
        blocks_, {}, [](const auto& block) { return std::pair(!block->Idle(), block->used); });
    if (oldest == blocks_.end() || !(*oldest)->Idle()) return false;
    bytes_ -= (*oldest)->size();
    gone.push_back(std::move(*oldest));
    blocks_.erase(oldest);
  }
  return true;
}

std::shared_ptr<std::byte> Staging::Take(const BucketKey& key, const Block& block,
                                         const Allocate& allocate) {
  const size_t bytes = block.row_bytes * static_cast<size_t>(block.rows);
  // Outlives the lock: what memory gives back may take a while.
  Memories gone;
  const std::lock_guard lock(mutex_);
  // The block that was begun first, so that neighbours come one after the other.
  std::shared_ptr<Memory> best;
  for (const std::shared_ptr<Memory>& memory : blocks_) {
    if (memory->key != key || memory->row_bytes() != block.row_bytes) continue;
    const auto given = memory->Given();
    if (given && (best == nullptr || *given > 0)) best = memory;
  }
  if (best != nullptr) {
    best->used = ++uses_;
    return best->Take();
  }
  if (bytes == 0 || !MakeRoom(bytes, gone)) return nullptr;
  try {
    // One byte more, so that no row of another block lies right behind the last: CUDA copies within
    // one block only.
    const auto memory = std::make_shared<Memory>(key, block, allocate(bytes + 1));
    memory->used = ++uses_;
    blocks_.push_back(memory);
    bytes_ += bytes;
    return memory->Take();
  } catch (const std::exception&) {
    // Plain memory does as well.
    return nullptr;
  }
}

void Staging::Remove(uint64_t model) {
  Memories gone;
  const std::lock_guard lock(mutex_);
  const auto of_model = std::ranges::stable_partition(
      blocks_, [&](const auto& block) { return block->key.model != model; });
  for (const auto& block : of_model) bytes_ -= block->size();
  gone.assign(std::make_move_iterator(of_model.begin()), std::make_move_iterator(of_model.end()));
  blocks_.erase(of_model.begin(), of_model.end());
}

size_t Staging::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace radserve
