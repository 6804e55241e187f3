#ifndef RADSERVE_SESSION_DEVICE_H_
#define RADSERVE_SESSION_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
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

/// Batches of loaded sessions, each in the bucket that was made for its shape and size.
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

  /// Beyond so many bytes of inputs and outputs the places that were not used for longest go, but for the one in use.
  explicit SessionDevice(size_t most_bytes = size_t{4} << 30)
      : most_bytes_(most_bytes), staging_(most_bytes / 4) {}

  void AddModel(uint64_t id, Model model);
  /// Its buckets go, and the memory for its rows. None of them is in use.
  void RemoveModel(uint64_t id);
  /// The same, and the model stays: its next run makes them anew.
  void Clear(uint64_t id);
  Result Run(int64_t capacity, std::span<const std::shared_ptr<BatchRow>> rows,
             const std::stop_token& stop) override;
  /// The one input of a row of that bucket, [1, ...], to be written: in memory from which a batch runs without a copy, if
  /// there is room in it. Any thread.
  Tensor NewRow(const BucketKey& key, std::string name, Dtype dtype);
  /// Bytes that all places take, as far as they have run.
  size_t bytes() const;

 private:
  struct Place {
    std::shared_ptr<Bucket> bucket;
    size_t bytes = 0;
    uint64_t used = 0;
  };
  using Places = std::map<std::pair<BucketKey, int64_t>, Place>;

  Result RunIn(Bucket& bucket, std::span<const std::shared_ptr<BatchRow>> rows, const std::stop_token& stop,
               RunStats& stats);
  /// Drops the places of a model on a GPU and renews its session. Throws what Session::Renew does.
  void Renew(uint64_t id, const Model& model, bool graphs);
  /// The places of a model, or the one of them that was not used for longest. Nothing where it has none.
  std::vector<std::shared_ptr<Bucket>> TakePlaces(uint64_t id, bool all);
  /// `bytes` is what the inputs of one row take.
  std::shared_ptr<Bucket> PlaceFor(const BucketKey& key, int64_t capacity, size_t bytes, const Model& model);
  /// Counts what a place takes, now that it has run.
  void Measure(const BucketKey& key, int64_t capacity, const Bucket& bucket);
  /// The rows as one batch of `size`, without a copy; nothing if that is not how they lie.
  std::optional<Staging::Batch> Join(std::span<const std::shared_ptr<BatchRow>> rows, int64_t size);
  static void Copy(std::span<const std::shared_ptr<BatchRow>> rows, Bucket& bucket);
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

#endif  // RADSERVE_SESSION_DEVICE_H_
