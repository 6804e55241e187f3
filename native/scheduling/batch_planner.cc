#include "scheduling/batch_planner.h"

#include <algorithm>
#include <utility>

namespace radserve {
namespace {

/// The turn of a shape, in times of what a change of shape costs.
constexpr int kTurn = 12;
/// Shapes of one model whose costs are remembered; images may have any size.
constexpr size_t kShapes = 64;

}  // namespace

void BatchPlanner::AddModel(uint64_t model, int64_t max_batch) { models_[model].max_batch = max_batch; }

void BatchPlanner::RemoveModel(uint64_t model) { models_.erase(model); }

BatchPlanner::Shape& BatchPlanner::ShapeOf(Model& model, const Shapes& shapes) {
  const auto found = model.shapes.find(shapes);
  if (found != model.shapes.end()) return found->second;
  if (model.shapes.size() >= kShapes) {
    auto oldest = model.shapes.end();
    for (auto it = model.shapes.begin(); it != model.shapes.end(); ++it) {
      if (it->second.waiting > 0 || &it->first == model.shape) continue;
      if (oldest == model.shapes.end() || it->second.last_arrival < oldest->second.last_arrival) oldest = it;
    }
    if (oldest != model.shapes.end()) model.shapes.erase(oldest);
  }
  return model.shapes.try_emplace(shapes, model.max_batch).first->second;
}

void BatchPlanner::Add(const Row& row) {
  Model& model = models_[row.key.model];
  Shape& shape = ShapeOf(model, row.key.row_shapes);
  shape.last_arrival = row.arrived;
  ++shape.waiting;
  rows_.emplace(row.id, row);
  queue_.Add({row.id, row.priority, row.key.model, row.deadline, row.arrived});
}

bool BatchPlanner::Remove(uint64_t id) {
  if (!queue_.Remove(id)) return false;
  const auto node = rows_.extract(id);
  Model& model = models_.at(node.mapped().key.model);
  --model.shapes.at(node.mapped().key.row_shapes).waiting;
  return true;
}

std::vector<BatchPlanner::Row> BatchPlanner::RowsOf(const BucketKey& key) const {
  std::vector<Row> rows;
  for (size_t i = 0; i < kPriorities; ++i) {
    queue_.Visit(static_cast<Priority>(i), key.model, [&](const FairQueue::Item& item) {
      const Row& row = rows_.at(item.id);
      if (row.key.row_shapes == key.row_shapes) rows.push_back(row);
      return true;
    });
  }
  return rows;
}

/// Whether the deadline of a row of another shape would be missed after one more run of the current one.
bool BatchPlanner::Urgent(const Model& model, const Row& head, Clock::time_point now) {
  if (!head.deadline) return false;
  const Shape& current = model.shapes.at(*model.shape);
  const Clock::duration own =
      std::max(model.shapes.at(head.key.row_shapes).cost.Time(1), current.cost.Time(1));
  const Clock::duration needed = current.cost.Time(model.capacity) + model.switch_cost.Get() + own;
  return now + needed + needed / 4 > *head.deadline;
}

/// Whether the model keeps its shape, although a row of another one is next.
bool BatchPlanner::Stays(const Model& model, const Row& head, Clock::time_point now) {
  if (model.shape == nullptr || head.key.row_shapes == *model.shape) return false;
  const Shape& current = model.shapes.at(*model.shape);
  if (current.waiting == 0 || head.priority == Priority::kStat || Urgent(model, head, now)) return false;
  // Two runs in a row teach what a size costs; without that nothing can be weighed.
  return !current.cost.Measured(model.capacity) || now < model.shape_since + kTurn * model.switch_cost.Get();
}

/// The size that answers so many rows first, or the one that the device has while its turn lasts.
int64_t BatchPlanner::Choose(const Model& model, const Shapes& shapes, int64_t rows, Clock::time_point now) {
  const CostModel& cost = model.shapes.at(shapes).cost;
  const auto drain = [&](int64_t capacity) { return (rows + capacity - 1) / capacity * cost.Time(capacity); };
  int64_t best = 1;
  for (int64_t size = 2; size <= cost.cap() && size < 2 * rows; size *= 2) {
    // A size whose time is not known yet is tried when there are rows to fill it.
    const bool trial = !cost.Measured(size) && size <= rows;
    if (trial || drain(size) < drain(best)) best = size;
  }
  const bool fits = model.shape != nullptr && *model.shape == shapes && model.capacity <= cost.cap();
  if (!fits) return best;
  if (!cost.Measured(model.capacity)) return model.capacity;
  const Clock::duration change = model.switch_cost.Get();
  const bool turn = now < model.capacity_since + kTurn * change;
  return turn && drain(model.capacity) - drain(best) < change ? model.capacity : best;
}

BatchPlanner::Batch BatchPlanner::Take(const BucketKey& key, std::vector<Row> rows, int64_t capacity,
                                       Clock::time_point now) {
  Model& model = models_.at(key.model);
  const auto found = model.shapes.find(key.row_shapes);
  Shape& shape = found->second;
  rows.resize(std::min(rows.size(), static_cast<size_t>(capacity)));
  Batch batch{key, capacity, std::move(rows), false, shape.cost.Time(capacity)};
  if (model.shape != &found->first) model.shape_since = now;
  batch.switches = model.shape != &found->first || model.capacity != capacity;
  if (batch.switches) {
    batch.expected += model.switch_cost.Get();
    model.capacity_since = now;
  }
  model.shape = &found->first;
  model.capacity = capacity;
  const auto share = batch.expected / static_cast<int64_t>(batch.rows.size());
  for (const Row& row : batch.rows) {
    queue_.Start(row.id, std::max<Clock::duration>(share, std::chrono::microseconds(1)));
    rows_.erase(row.id);
    --shape.waiting;
  }
  return batch;
}

std::optional<BatchPlanner::Batch> BatchPlanner::Next(Clock::time_point now) {
  const FairQueue::Item* item = queue_.Next(now, [](uint64_t, Priority) { return true; });
  if (item == nullptr) return std::nullopt;
  const Row head = rows_.at(item->id);
  const Model& model = models_.at(head.key.model);
  const bool stays = Stays(model, head, now);
  const BucketKey key = stays ? BucketKey{head.key.model, *model.shape} : head.key;
  std::vector<Row> rows = RowsOf(key);
  // What an aged row has earned it gets, whoever of its bucket rides along.
  if (!stays && rows.front().id != head.id) {
    const auto own =
        std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.id == head.id; });
    std::rotate(rows.begin(), own, own + 1);
  }
  // A stat does not wait for the rows of others.
  const auto stats =
      std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.priority == Priority::kStat; });
  const auto count = static_cast<int64_t>(stats > 0 ? stats : static_cast<ptrdiff_t>(rows.size()));
  const int64_t capacity = Choose(model, key.row_shapes, count, now);
  return Take(key, std::move(rows), capacity, now);
}

void BatchPlanner::Observe(const BucketKey& key, int64_t capacity, Clock::duration took, bool switched) {
  Model& model = models_[key.model];
  Shape& shape = ShapeOf(model, key.row_shapes);
  if (switched && shape.cost.Warm(capacity) && !shape.cost.Measured(capacity) && model.switch_cost.known()) {
    shape.cost.Observe(capacity, std::max(took / 16, took - model.switch_cost.Get()), false);
    return;
  }
  if (const auto change = shape.cost.Observe(capacity, took, switched)) model.switch_cost.Add(*change);
}

void BatchPlanner::Done(const Batch& batch, Clock::duration took) {
  if (models_.contains(batch.key.model)) Observe(batch.key, batch.capacity, took, batch.switches);
}

void BatchPlanner::Failed(const Batch& batch) {
  const auto found = models_.find(batch.key.model);
  if (found != models_.end()) found->second.shape = nullptr;
}

bool BatchPlanner::OutOfMemory(const Batch& batch) {
  Failed(batch);
  if (batch.capacity == 1) return false;
  Limit(batch.key, batch.capacity / 2);
  return true;
}

void BatchPlanner::Limit(const BucketKey& key, int64_t capacity) {
  ShapeOf(models_[key.model], key.row_shapes).cost.Limit(capacity);
}

int64_t BatchPlanner::Largest(uint64_t model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? 1 : found->second.max_batch;
}

int64_t BatchPlanner::Cap(const BucketKey& key) const {
  const auto model = models_.find(key.model);
  if (model == models_.end()) return 1;
  const auto shape = model->second.shapes.find(key.row_shapes);
  return shape == model->second.shapes.end() ? 1 : shape->second.cost.cap();
}

}  // namespace radserve
