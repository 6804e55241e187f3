#ifndef RADSERVE_BATCH_PLANNER_H_
#define RADSERVE_BATCH_PLANNER_H_

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "scheduling/cost_model.h"
#include "scheduling/fair_queue.h"

namespace radserve {

/// What rows that may run together have in common: the model, and the shape of each of its inputs without the
/// batch dimension.
struct BucketKey {
  uint64_t model = 0;
  std::vector<std::vector<int64_t>> row_shapes;
  std::strong_ordering operator<=>(const BucketKey&) const = default;
  bool operator==(const BucketKey&) const = default;
};

/// Decides what one device runs next. Knows neither threads nor clocks; the caller says what time it is.
///
/// - A free device never waits: it runs what is there, and batches form while it is busy.
/// - The sizes of batches are CostModel's ladder. Missing rows are padding.
/// - FairQueue says which row is next, with models as flows. The rows of its bucket run with it.
/// - cuDNN 9 makes a new plan when the shape of a model's input changes, batch size included, which may cost
///   more than a run. So a shape that rows wait for, and a size that does not cost more than a change, keep
///   their turn for as long as twelve changes take, as measured. A stat, or a row whose deadline would be
///   missed, ends the turn of a shape at once.
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
    /// The device changes the model's shape for it.
    bool switches = false;
    Clock::duration expected{};
  };

  /// Rows of models that were not added run alone.
  void AddModel(uint64_t model, int64_t max_batch);
  /// Nothing of it waits or runs any more.
  void RemoveModel(uint64_t model);
  void Add(const Row& row);
  /// Returns false if no such row waits.
  bool Remove(uint64_t id);
  /// What a free device runs now; its rows no longer wait. nullopt if nothing waits.
  std::optional<Batch> Next(Clock::time_point now);
  /// A batch has run in `took`.
  void Done(const Batch& batch, Clock::duration took);
  /// A batch did not fit into the device's memory: batches larger than half of it are not tried again.
  /// Returns false if it was of one row, so that nothing smaller is left.
  bool OutOfMemory(const Batch& batch);
  /// A batch has ended without a result. The device may be set up for anything, so the turn of its shape
  /// ends.
  void Failed(const Batch& batch);
  /// Learns from a run that somebody else measured: for runs that warm a model.
  void Observe(const BucketKey& key, int64_t capacity, Clock::duration took, bool switched);

  /// Larger batches of that bucket than `capacity` do not fit into the device's memory.
  void Limit(const BucketKey& key, int64_t capacity);

  /// The largest batch that AddModel allows.
  int64_t Largest(uint64_t model) const;
  int64_t Cap(const BucketKey& key) const;

 private:
  using Shapes = std::vector<std::vector<int64_t>>;
  struct Shape {
    explicit Shape(int64_t max_batch) : cost(max_batch) {}
    CostModel cost;
    Clock::time_point last_arrival;
    size_t waiting = 0;
  };
  struct Model {
    int64_t max_batch = 1;
    MedianTime switch_cost;
    std::map<Shapes, Shape> shapes;
    /// What the device is set up for; nullptr if that is not known.
    const Shapes* shape = nullptr;
    int64_t capacity = 0;
    /// When the turns of that shape and of that size began.
    Clock::time_point shape_since;
    Clock::time_point capacity_since;
  };

  static Shape& ShapeOf(Model& model, const Shapes& shapes);
  std::vector<Row> RowsOf(const BucketKey& key) const;
  static bool Urgent(const Model& model, const Row& head, Clock::time_point now);
  static bool Stays(const Model& model, const Row& head, Clock::time_point now);
  static int64_t Choose(const Model& model, const Shapes& shapes, int64_t rows, Clock::time_point now);
  Batch Take(const BucketKey& key, std::vector<Row> rows, int64_t capacity, Clock::time_point now);

  FairQueue queue_;
  std::unordered_map<uint64_t, Row> rows_;
  std::map<uint64_t, Model> models_;
};

}  // namespace radserve

#endif  // RADSERVE_BATCH_PLANNER_H_
