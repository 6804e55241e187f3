#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "scheduling/batch_planner.h"

namespace radserve {

/// Memory that requests prepare their inputs in, next to each other: rows that were taken one after
/// the other are read at once, without a copy. Any thread. Rows may outlive it.
class Staging {
 public:
  /// Gives so many bytes, with whatever is in them; throws if there is not enough memory.
  using Allocate = std::function<std::shared_ptr<std::byte>(size_t bytes)>;

  /// Blocks of which neighbours are made: `rows` at a time, of `row_bytes` each.
  struct Block {
    size_t row_bytes = 0;
    int64_t rows = 1;
  };

  /// Blocks may take `most_bytes` in all.
  explicit Staging(size_t most_bytes) : most_bytes_(most_bytes) {}

  /// The next place in a block of that bucket, free again with its last owner; nullptr if blocks
  /// take too much memory already, or no more memory can be had.
  std::shared_ptr<std::byte> Take(const BucketKey& key, const Block& block,
                                  const Allocate& allocate);
  /// The blocks of a model go, each as soon as nobody has a row of it.
  void Remove(uint64_t model);
  size_t bytes() const;

 private:
  class Memory;
  using Memories = std::vector<std::shared_ptr<Memory>>;

  /// Called with the lock. Makes room by dropping blocks that nobody uses, those not used for
  /// longest first; they go to `gone`.
  bool MakeRoom(size_t bytes, Memories& gone);

  const size_t most_bytes_;
  mutable std::mutex mutex_;
  Memories blocks_;
  size_t bytes_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace radserve
