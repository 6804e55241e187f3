#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/histogram.h"
#include "runtime/session.h"
#include "runtime/staging.h"
#include "scheduling/batcher.h"

namespace radserve {

/// The time that runs of a model have taken, in batches or alone. Any thread may call it.
class RunStats {
 public:
  struct Figures {
    BatchHistogram batches{};
    DurationHistogram run{};
    /// Batches whose rows did not lie next to each other and were copied together.
    uint64_t gathered = 0;
  };
  void Ran(size_t rows, Clock::duration took);
  void Gathered();
  Figures Get() const;

 private:
  mutable std::mutex mutex_;
  Figures figures_;
};

/// Batches of loaded sessions, each in the bucket that was made for its shape, size and lane. Lanes
/// beyond the first run in sessions of their own alone.
class SessionDevice : public Device {
 public:
  /// All of them outlive the rows of the model.
  struct Model {
    Session* session = nullptr;
    std::vector<std::string> outputs;
    RunStats* stats = nullptr;
    /// Rows that may run together, at most.
    int64_t max_batch = 1;
  };

  /// Beyond so many bytes of inputs and outputs the places that were not used for longest go, but
  /// for the one in use.
  explicit SessionDevice(size_t most_bytes = size_t{4} << 30)
      : most_bytes_(most_bytes), staging_(most_bytes / 4) {}

  void AddModel(uint64_t id, Model model);
  /// Its buckets go, and the memory for its rows. None of them is in use.
  void RemoveModel(uint64_t id);
  /// The same, and the model stays: its next run makes them anew.
  void Clear(uint64_t id);
  Result Run(int64_t lane, int64_t capacity, std::span<const std::shared_ptr<BatchRow>> rows,
             const std::stop_token& stop) override;
  void RemoveLanes(uint64_t model) override { DropPlaces(model, 1); }
  /// One input of a row, [1, ...], to be written: in memory that batches read where it lies, if
  /// there is room in it. The key has the model and the shape of that input alone. Any thread.
  Tensor NewRow(const BucketKey& key, std::string name, Dtype dtype);
  /// Bytes that all places take, as far as they have run.
  size_t bytes() const;

 private:
  struct Place {
    std::shared_ptr<Bucket> bucket;
    size_t bytes = 0;
    uint64_t used = 0;
    uint64_t runs = 1;
  };
  struct PlaceKey {
    BucketKey bucket;
    int64_t capacity = 1;
    int64_t lane = 0;
    std::strong_ordering operator<=>(const PlaceKey&) const = default;
  };
  using Places = std::map<PlaceKey, Place>;

  Result RunIn(Bucket& bucket, std::span<const std::shared_ptr<BatchRow>> rows,
               const std::stop_token& stop, RunStats& stats);
  /// Those of a model, in that lane and all beyond.
  void DropPlaces(uint64_t id, int64_t lane = 0);
  /// The place that was not used for longest, if that is before that use: of all, or of those of
  /// one model that have a session of their own. nullptr if there is none.
  std::shared_ptr<Bucket> TakeOldest(std::optional<uint64_t> owner, uint64_t before);
  /// `bytes` is what the inputs of one row take; `own` whether a new place is to have a session of
  /// its own. It has none where the memory does not suffice. Throws OutOfMemory then for a lane
  /// beyond the first.
  std::shared_ptr<Bucket> PlaceFor(const PlaceKey& key, size_t bytes, const Model& model, bool own);
  /// Counts what a place takes, now that it has run.
  void Measure(const PlaceKey& key, const Bucket& bucket);
  /// Called with the lock.
  std::shared_ptr<Bucket> Take(Places::iterator place);

  const size_t most_bytes_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Model> models_;
  Places places_;
  size_t bytes_ = 0;
  uint64_t uses_ = 0;
  Staging staging_;
};

}  // namespace radserve
