#ifndef RADSERVE_STAGING_H_
#define RADSERVE_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "scheduling/batch_planner.h"

namespace radserve {

/// Memory that requests prepare their inputs in, next to each other, and that a device reads whole batches
/// from: rows that were taken one after the other need no copy to run together. Any thread. Rows may outlive
/// it.
class Staging {
 public:
  /// Gives so many bytes, with whatever is in them; throws if there is not enough memory.
  using Allocate = std::function<std::shared_ptr<std::byte>(size_t bytes)>;

  /// Blocks of which neighbours are made: `rows` at a time, of `row_bytes` each.
  struct Block {
    size_t row_bytes = 0;
    int64_t rows = 1;
  };

  /// Rows next to each other.
  struct Batch {
    std::span<std::byte> data;
    /// Which of the given rows lies at each place.
    std::vector<size_t> order;
    /// Holds the places beyond the rows, which are zeros, until the device has read them.
    std::shared_ptr<void> padding;
  };

  /// Blocks may take `most_bytes` in all.
  explicit Staging(size_t most_bytes) : most_bytes_(most_bytes) {}

  /// The next place in a block of that bucket, free again with its last owner; nullptr if blocks take too
  /// much memory already, or no more memory can be had.
  std::shared_ptr<std::byte> Take(const BucketKey& key, const Block& block, const Allocate& allocate);
  /// The rows, which are of one bucket and hold their places, and zeros after them up to `size` rows; nothing
  /// where they are not neighbours, or other rows lie where the zeros would.
  std::optional<Batch> Join(std::span<const std::byte* const> rows, int64_t size);
  /// The blocks of a model go, each as soon as nobody has a row of it.
  void Remove(uint64_t model);
  size_t bytes() const;

 private:
  class Memory;
  using Memories = std::vector<std::shared_ptr<Memory>>;
  using Places = std::map<const std::byte*, std::shared_ptr<Memory>>;

  /// Blocks of which nobody has a row go with what is returned. Called with the lock.
  std::shared_ptr<Memory> Drop(Places::iterator place);
  /// Called with the lock. Makes room by dropping blocks that nobody uses, those not used for longest first;
  /// they go to `gone`.
  bool MakeRoom(size_t bytes, Memories& gone);

  const size_t most_bytes_;
  mutable std::mutex mutex_;
  std::map<BucketKey, Memories> blocks_;
  /// The blocks by the address of their first byte.
  Places places_;
  size_t bytes_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace radserve

#endif  // RADSERVE_STAGING_H_
