#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scheduling/fair_queue.h"
#include "scheduling/median_time.h"

namespace radserve {

/// The key of rows that may run together: the model, and the shape of each of its inputs without
/// the batch dimension.
struct BucketKey {
  uint64_t model = 0;
  std::vector<std::vector<int64_t>> row_shapes;
  std::strong_ordering operator<=>(const BucketKey&) const = default;
  bool operator==(const BucketKey&) const = default;
};

/// Decides what one device runs next. Knows neither threads nor clocks; the caller says what time
/// it is.
///
/// - A free device runs what is there, and batches form while it is busy. But where a batch of one
///   row takes nearly as long as a full one, as on a GPU, it waits a moment for the rows of the
///   batch before, whose callers mostly come back with new ones: the first of them alone would cost
///   more than that moment.
/// - FairQueue says which row is next, with models as flows. The rows of its bucket run with it;
///   with a stat, only stats.
/// - The sizes of batches form a ladder 1, 2, 4, 8, ... The next batch is the smallest that holds
///   what waits; missing rows are padding.
/// - What each size takes is learned as a median. By it a smaller size runs where two batches end
///   sooner than the one, or where the first row would be late otherwise.
/// - A model may run in several lanes, batches beside each other. Of its rows each lane takes its
///   part.
class BatchPlanner {
 public:
  struct Row {
    /// Rises with every arrival.
    uint64_t id = 0;
    BucketKey key;
    Priority priority = Priority::kRoutine;
    std::optional<Clock::time_point> deadline;
    Clock::time_point arrived;
  };
  struct Batch {
    BucketKey key;
    int64_t capacity = 1;
    std::vector<Row> rows;
    /// Zero while it is not known.
    Clock::duration expected{};
    /// Those that the model runs in.
    int64_t lanes = 1;
  };

  /// Rows of models that were not added run alone. `padded`: a batch takes as long as its size,
  /// however few rows it has.
  void AddModel(uint64_t model, int64_t max_batch, bool padded = false);
  /// Nothing of it waits or runs any more.
  void RemoveModel(uint64_t model);
  /// How many lanes a model runs in, the first of them: one unless more are set, once it was added.
  int64_t Lanes(uint64_t model) const;
  void SetLanes(uint64_t model, int64_t lanes);
  void Add(const Row& row);
  /// Returns false if no such row waits.
  bool Remove(uint64_t id);
  /// The batch that a free lane runs now; its rows no longer wait. nullopt if nothing waits, or if
  /// all that does is to wait for others of its bucket, with the time until which it does in
  /// `wait_until`.
  std::optional<Batch> Next(Clock::time_point now,
                            std::optional<Clock::time_point>* wait_until = nullptr,
                            int64_t lane = 0);
  /// A batch of so many rows of that bucket has ended, and its callers know.
  void Ended(const BucketKey& key, size_t rows, Clock::time_point now);
  /// A batch of that size has run in `took`. The first of a size is left out: it allocates and
  /// plans.
  void Observe(const BucketKey& key, int64_t capacity, Clock::duration took);
  /// Larger batches of that bucket than `capacity` do not fit into the device's memory, and are not
  /// tried again.
  void Limit(const BucketKey& key, int64_t capacity);

 private:
  using Shapes = std::vector<std::vector<int64_t>>;
  struct Shape {
    /// Medians of the sizes that have run.
    std::map<int64_t, MedianTime> times;
    /// Larger batches do not fit.
    int64_t limit = 1;
    Clock::time_point last_arrival;
    size_t waiting = 0;
    /// Of the last batch that ended.
    size_t last_rows = 0;
    Clock::time_point last_end;

    /// Zero while it is not known.
    Clock::duration Time(int64_t capacity) const;
    /// The smallest size that holds so many rows, or the largest there is.
    int64_t Holding(int64_t rows) const;
    /// What is saved if so few rows wait for the others of the last batch; zero where a time is not
    /// known.
    Clock::duration Saved(int64_t rows) const;
  };
  struct Model {
    int64_t max_batch = 1;
    bool padded = false;
    int64_t lanes = 1;
    std::map<Shapes, Shape> shapes;
  };

  static Shape& ShapeOf(Model& model, const Shapes& shapes);
  std::vector<Row> RowsOf(const BucketKey& key) const;
  static int64_t Choose(const Shape& shape, int64_t rows, const Row& first, Clock::time_point now);

  FairQueue queue_;
  std::unordered_map<uint64_t, Row> rows_;
  std::map<uint64_t, Model> models_;
  /// The rows that each lane has been given, until it asks for more.
  std::map<int64_t, std::pair<BucketKey, int64_t>> running_;
};

}  // namespace radserve
