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

/// Rows that may run together: of one model, and one shape for each of its inputs (without the batch
/// dimension).
struct BucketKey {
  uint64_t model = 0;
  std::vector<std::vector<int64_t>> row_shapes;
  std::strong_ordering operator<=>(const BucketKey&) const = default;
  bool operator==(const BucketKey&) const = default;
};

/// Decides what one device runs next. Knows neither threads nor clocks; the caller says what time it is.
///
/// - Zero delay: a free device runs what waits; batches form while it is busy. It waits for more only where
/// that
///   makes everybody's answers sooner on average (the time between arrivals is learned), every deadline
///   allows it, no stat is there, and nothing else could run.
/// - Sizes are CostModel's ladder; missing rows are padding. cuDNN 9 makes a new plan whenever a model's
/// input
///   shape changes, batch size included, which can cost more than ten runs. So a size is changed once the
///   changes not made have cost as much as one (rent or buy: Karlin, Manasse, Rudolph, Sleator: Competitive
///   Snoopy Caching, 1988), and changes between shapes may take a thirteenth of a model's time while there is
///   other work for it. A stat, or a deadline that would be missed, pays for its change at once.
/// - What of all that waits is most wanted says FairQueue, with models as flows.
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
  struct Plan {
    std::optional<Batch> batch;
    /// Where it pays to wait: until then, or the next arrival.
    std::optional<Clock::time_point> wait_until;
  };
  struct ShapeStats {
    BucketKey key;
    size_t waiting = 0;
    int64_t cap = 1;
    CostModel::Line line;
    std::vector<CostModel::Size> sizes;
    Clock::duration switch_cost{};
  };

  /// Rows of models that were not added run alone.
  void AddModel(uint64_t model, int64_t max_batch);
  /// Nothing of it waits or runs any more.
  void RemoveModel(uint64_t model);
  void Add(const Row& row);
  /// False where it does not wait.
  bool Remove(uint64_t id);
  /// What a free device does now. The rows of a batch no longer wait.
  Plan Next(Clock::time_point now);
  /// A batch has run in `took`.
  void Done(const Batch& batch, Clock::duration took, Clock::time_point now);
  /// A batch did not fit into the device's memory: larger ones than half of it are not tried again. False
  /// where it was of one row, and nothing smaller is left.
  bool OutOfMemory(const Batch& batch);
  /// A batch has ended without a result, and the device may be set up for anything: its shape has no claim to
  /// go on.
  void Failed(const Batch& batch);
  /// What one measured, as if it had run: for runs that warm a model.
  void Observe(const BucketKey& key, int64_t capacity, Clock::duration took, bool switched);

  /// Larger batches of that bucket than `capacity` do not fit into the device's memory.
  void Limit(const BucketKey& key, int64_t capacity);

  bool empty() const { return queue_.empty(); }
  /// What AddModel said.
  int64_t Largest(uint64_t model) const;
  int64_t Cap(const BucketKey& key) const;
  Clock::duration Time(const BucketKey& key, int64_t capacity) const;
  std::vector<ShapeStats> GetStats(uint64_t model) const;

 private:
  using Shapes = std::vector<std::vector<int64_t>>;
  struct Shape {
    explicit Shape(int64_t max_batch) : cost(max_batch) {}
    CostModel cost;
    /// Between arrivals, and from the end of its last waiting row to the next arrival.
    MedianTime gap;
    MedianTime pause;
    std::optional<Clock::time_point> last_arrival;
    std::optional<Clock::time_point> drained;
    size_t waiting = 0;
  };
  struct Model {
    int64_t max_batch = 1;
    size_t waiting = 0;
    MedianTime switch_cost;
    std::map<Shapes, Shape> shapes;
    /// What the device is set up for.
    const Shapes* shape = nullptr;
    int64_t capacity = 0;
    /// Time that may go into changes of shape; below zero after forced ones.
    Clock::duration credit{};
    /// What the changes of size not made have cost.
    Clock::duration regret{};
  };
  struct Size {
    int64_t capacity;
    Clock::duration regret;
  };

  static Shape& ShapeOf(Model& model, const Shapes& shapes);
  std::vector<Row> RowsOf(uint64_t model, const Shapes& shapes) const;
  static bool Urgent(const Model& model, const Row& head, Clock::time_point now);
  std::optional<Clock::time_point> Anticipate(const Model& model, const Row& head,
                                              Clock::time_point now) const;
  static bool Stays(const Model& model, const Row& head, Clock::time_point now);
  static Size Choose(const Model& model, const Shapes& shapes, const CostModel& cost, int64_t rows);
  std::optional<Clock::time_point> WaitUntil(const Model& model, const Shape& shape,
                                             const std::vector<Row>& rows, int64_t capacity,
                                             Clock::time_point now) const;
  Batch Take(uint64_t id, Model& model, const Shapes& shapes, std::vector<Row> rows, Size size);

  FairQueue queue_;
  std::unordered_map<uint64_t, Row> rows_;
  std::map<uint64_t, Model> models_;
};

}  // namespace radserve

#endif  // RADSERVE_BATCH_PLANNER_H_
