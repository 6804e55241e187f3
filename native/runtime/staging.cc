#include "runtime/staging.h"

#include <algorithm>
#include <numeric>
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
  const std::byte* begin() const { return bytes_.get(); }

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
    return {row, [self = shared_from_this()](std::byte*) { self->Release(1); }};
  }

  std::optional<Batch> Join(std::span<const std::byte* const> rows, int64_t size) {
    Batch batch;
    batch.order.resize(rows.size());
    std::iota(batch.order.begin(), batch.order.end(), size_t{0});
    std::ranges::sort(batch.order, {}, [&](size_t i) { return rows[i]; });
    const std::byte* const begin = rows[batch.order[0]];
    for (size_t k = 0; k < batch.order.size(); ++k) {
      if (rows[batch.order[k]] != begin + k * block_.row_bytes) return std::nullopt;
    }
    const auto count = static_cast<int64_t>(rows.size());
    const int64_t first = (begin - bytes_.get()) / static_cast<ptrdiff_t>(block_.row_bytes);
    if (size > count && !Pad(first + count, first + size, batch)) return std::nullopt;
    batch.data = Rows(first, first + size);
    return batch;
  }

 private:
  bool Pad(int64_t from, int64_t to, Batch& batch) {
    {
      const std::lock_guard lock(mutex_);
      if (next_ > from || to > block_.rows) return false;
      next_ = to;
      used_ += to - from;
    }
    std::ranges::fill(Rows(from, to), std::byte{0});
    batch.padding = {bytes_.get(),
                     [self = shared_from_this(), count = to - from](void*) { self->Release(count); }};
    return true;
  }

  std::span<std::byte> Rows(int64_t from, int64_t to) const {
    return {bytes_.get() + block_.row_bytes * static_cast<size_t>(from),
            block_.row_bytes * static_cast<size_t>(to - from)};
  }

  void Release(int64_t rows) {
    const std::lock_guard lock(mutex_);
    used_ -= rows;
    if (used_ == 0) next_ = 0;
  }

  const Block block_;
  const std::shared_ptr<std::byte> bytes_;
  mutable std::mutex mutex_;
  int64_t next_ = 0;
  int64_t used_ = 0;
};

std::shared_ptr<Staging::Memory> Staging::Drop(Places::iterator place) {
  std::shared_ptr<Memory> memory = std::move(place->second);
  places_.erase(place);
  const auto of_key = blocks_.find(memory->key);
  std::erase(of_key->second, memory);
  if (of_key->second.empty()) blocks_.erase(of_key);
  bytes_ -= memory->size();
  return memory;
}

bool Staging::MakeRoom(size_t bytes, Memories& gone) {
  while (bytes_ + bytes > most_bytes_) {
    const auto oldest = std::ranges::min_element(
        places_, {}, [](const auto& each) { return std::pair(!each.second->Idle(), each.second->used); });
    if (oldest == places_.end() || !oldest->second->Idle()) return false;
    gone.push_back(Drop(oldest));
  }
  return true;
}

std::shared_ptr<std::byte> Staging::Take(const BucketKey& key, const Block& block, const Allocate& allocate) {
  const size_t bytes = block.row_bytes * static_cast<size_t>(block.rows);
  // Outlives the lock: what memory gives back may take a while.
  Memories gone;
  const std::lock_guard lock(mutex_);
  if (const auto found = blocks_.find(key); found != blocks_.end()) {
    // The block that was begun first, so that neighbours come one after the other.
    std::shared_ptr<Memory> best;
    for (const std::shared_ptr<Memory>& memory : found->second) {
      const auto given = memory->Given();
      if (memory->row_bytes() == block.row_bytes && given && (best == nullptr || *given > 0)) best = memory;
    }
    if (best != nullptr) {
      best->used = ++uses_;
      return best->Take();
    }
  }
  if (bytes == 0 || !MakeRoom(bytes, gone)) return nullptr;
  try {
    const auto memory = std::make_shared<Memory>(key, block, allocate(bytes));
    memory->used = ++uses_;
    places_.emplace(memory->begin(), memory);
    blocks_[key].push_back(memory);
    bytes_ += bytes;
    return memory->Take();
  } catch (const std::exception&) {
    // Plain memory does as well, a copy later.
    return nullptr;
  }
}

std::optional<Staging::Batch> Staging::Join(std::span<const std::byte* const> rows, int64_t size) {
  std::shared_ptr<Memory> memory;
  {
    const std::lock_guard lock(mutex_);
    auto after = places_.upper_bound(rows.front());
    if (after == places_.begin()) return std::nullopt;
    memory = std::prev(after)->second;
  }
  const auto inside = [&](const std::byte* row) {
    return row >= memory->begin() && row < memory->begin() + memory->size();
  };
  if (!std::ranges::all_of(rows, inside)) return std::nullopt;
  return memory->Join(rows, size);
}

void Staging::Remove(uint64_t model) {
  Memories gone;
  const std::lock_guard lock(mutex_);
  for (auto place = places_.begin(); place != places_.end();) {
    const auto here = place++;
    if (here->second->key.model == model) gone.push_back(Drop(here));
  }
}

size_t Staging::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace radserve
