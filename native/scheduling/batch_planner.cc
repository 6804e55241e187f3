#include "scheduling/batch_planner.h"

#include <algorithm>
#include <utility>

namespace radserve {
namespace {

/// A model's changes of shape may take one part in this plus one of its time while there is other work for
/// it.
constexpr int kStay = 12;
/// Shapes of one model whose costs are remembered; images may have any size.
constexpr size_t kShapes = 64;
constexpr auto kNone = Clock::duration::zero();

int64_t Runs(int64_t rows, int64_t capacity) { return (rows + capacity - 1) / capacity; }

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
  if (shape.last_arrival) shape.gap.Add(std::max(kNone, row.arrived - *shape.last_arrival));
  if (shape.drained)
    shape.pause.Add(std::max(kNone, row.arrived - *std::exchange(shape.drained, std::nullopt)));
  shape.last_arrival = row.arrived;
  ++shape.waiting;
  ++model.waiting;
  rows_.emplace(row.id, row);
  queue_.Add({row.id, row.priority, row.key.model, row.deadline, row.arrived});
}

bool BatchPlanner::Remove(uint64_t id) {
  if (!queue_.Remove(id)) return false;
  const auto node = rows_.extract(id);
  Model& model = models_.at(node.mapped().key.model);
  --model.waiting;
  --model.shapes.at(node.mapped().key.row_shapes).waiting;
  return true;
}

std::vector<BatchPlanner::Row> BatchPlanner::RowsOf(uint64_t model, const Shapes& shapes) const {
  std::vector<Row> rows;
  for (size_t i = 0; i < kPriorities; ++i) {
    queue_.Visit(static_cast<Priority>(i), model, [&](const FairQueue::Item& item) {
      const Row& row = rows_.at(item.id);
      if (row.key.row_shapes == shapes) rows.push_back(row);
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

/// Clients that were all answered at once are about to come again: leaving their shape would cost more than
/// waiting for them (as disk schedulers do: Iyer, Druschel: Anticipatory scheduling, SOSP 2001).
std::optional<Clock::time_point> BatchPlanner::Anticipate(const Model& model, const Row& head,
                                                          Clock::time_point now) const {
  const Clock::duration change = model.switch_cost.Get();
  if (model.shape == nullptr || head.priority == Priority::kStat || model.credit >= change)
    return std::nullopt;
  const Shape& current = model.shapes.at(*model.shape);
  if (current.waiting > 0 || !current.drained || !current.pause.known() || queue_.size() != model.waiting) {
    return std::nullopt;
  }
  const Clock::time_point until = *current.drained + 2 * current.pause.Get();
  if (4 * current.pause.Get() > change || until <= now || Urgent(model, head, now)) return std::nullopt;
  return until;
}

/// Whether the model goes on with the shape that it has, although a row of another one is most wanted.
bool BatchPlanner::Stays(const Model& model, const Row& head, Clock::time_point now) {
  if (model.shape == nullptr || head.priority == Priority::kStat) return false;
  const Shape& current = model.shapes.at(*model.shape);
  if (current.waiting == 0) return false;
  const Clock::duration change = model.switch_cost.Get();
  if (Urgent(model, head, now)) return false;
  // Two runs in a row teach what a size costs; without that nothing can be weighed.
  return !current.cost.Measured(model.capacity) || model.credit < change;
}

BatchPlanner::Size BatchPlanner::Choose(const Model& model, const Shapes& shapes, const CostModel& cost,
                                        int64_t rows) {
  const auto drain = [&](int64_t capacity) { return Runs(rows, capacity) * cost.Time(capacity); };
  int64_t best = 1;
  for (int64_t size = 2; size <= cost.cap() && size < 2 * rows; size *= 2) {
    // What is not known yet is tried when there are rows to fill it.
    const bool trial = !cost.Measured(size) && size <= rows;
    if (trial || drain(size) < drain(best)) best = size;
  }
  const bool fits = model.shape != nullptr && *model.shape == shapes && model.capacity <= cost.cap();
  if (!fits || model.capacity == best) return {best, {}};
  if (!cost.Measured(model.capacity)) return {model.capacity, model.regret};
  const Clock::duration saved = drain(model.capacity) - drain(best);
  const Clock::duration regret =
      model.regret + std::max(Clock::duration::zero(), saved) / Runs(rows, model.capacity);
  const Clock::duration change = model.switch_cost.Get();
  if (saved > change || regret > change) return {best, {}};
  return {model.capacity, regret};
}

/// With k rows there and g to the next arrival, waiting ends all k + 1 at g + time(k + 1); running now ends k
/// at time(k), and the next one after it at its own time(1). The sums are equal at the g that is returned as
/// a time.
std::optional<Clock::time_point> BatchPlanner::WaitUntil(const Model& model, const Shape& shape,
                                                         const std::vector<Row>& rows, int64_t capacity,
                                                         Clock::time_point now) const {
  const auto count = static_cast<int64_t>(rows.size());
  if (queue_.size() != model.waiting || count >= shape.cost.cap() || !shape.gap.known()) return std::nullopt;
  if (rows.front().priority == Priority::kStat) return std::nullopt;
  const Clock::duration time_now = shape.cost.Time(capacity);
  const Clock::duration time_more = shape.cost.Time(std::max(capacity, CostModel::SizeFor(count + 1)));
  const Clock::duration alone = model.switch_cost.Get() > kNone ? time_now : shape.cost.Time(1);
  const Clock::duration longest = (time_now - time_more) + alone / (count + 1);
  if (longest <= shape.gap.Get()) return std::nullopt;
  const Clock::time_point until = *shape.last_arrival + longest;
  if (until <= now) return std::nullopt;
  for (const Row& row : rows) {
    const Clock::duration needed = 2 * time_more + model.switch_cost.Get();
    if (until - row.arrived > alone || (row.deadline && until + needed > *row.deadline)) return std::nullopt;
  }
  return until;
}

BatchPlanner::Batch BatchPlanner::Take(uint64_t id, Model& model, const Shapes& shapes, std::vector<Row> rows,
                                       Size size) {
  const auto found = model.shapes.find(shapes);
  Shape& shape = found->second;
  rows.resize(std::min(rows.size(), static_cast<size_t>(size.capacity)));
  Batch batch{{id, shapes}, size.capacity, std::move(rows), false, shape.cost.Time(size.capacity)};
  batch.switches = model.shape != &found->first || model.capacity != size.capacity;
  const Clock::duration change = model.switch_cost.Get();
  if (batch.switches) {
    batch.expected += change;
    model.credit = std::max(model.credit - change, -2 * change);
  }
  model.shape = &found->first;
  model.capacity = size.capacity;
  model.regret = batch.switches ? Clock::duration::zero() : size.regret;
  const auto share = batch.expected / static_cast<int64_t>(batch.rows.size());
  for (const Row& row : batch.rows) {
    queue_.Start(row.id, std::max<Clock::duration>(share, std::chrono::microseconds(1)));
    rows_.erase(row.id);
    --shape.waiting;
    --model.waiting;
  }
  return batch;
}

BatchPlanner::Plan BatchPlanner::Next(Clock::time_point now) {
  const FairQueue::Item* item = queue_.Next(now, [](uint64_t, Priority) { return true; });
  if (item == nullptr) return {};
  const Row head = rows_.at(item->id);
  Model& model = models_.at(head.key.model);
  const bool other = model.shape != nullptr && head.key.row_shapes != *model.shape;
  const bool stays = other && Stays(model, head, now);
  if (other && !stays) {
    if (const auto until = Anticipate(model, head, now)) return {std::nullopt, until};
  }
  const Shapes shapes = stays ? *model.shape : head.key.row_shapes;
  Shape& shape = model.shapes.at(shapes);
  std::vector<Row> rows = RowsOf(head.key.model, shapes);
  // What an aged row has earned it gets, whoever of its bucket rides along.
  if (!stays && rows.front().id != head.id) {
    const auto own =
        std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.id == head.id; });
    std::rotate(rows.begin(), own, own + 1);
  }
  const auto stats =
      std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.priority == Priority::kStat; });
  const auto wanted = static_cast<int64_t>(stats > 0 ? stats : static_cast<ptrdiff_t>(rows.size()));
  const Size size = Choose(model, shapes, shape.cost, wanted);
  if (stays || rows.size() == queue_.size()) {
    if (const auto until = WaitUntil(model, shape, rows, size.capacity, now)) return {std::nullopt, until};
  }
  return {Take(head.key.model, model, shapes, std::move(rows), size), std::nullopt};
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

void BatchPlanner::Done(const Batch& batch, Clock::duration took, Clock::time_point now) {
  const auto found = models_.find(batch.key.model);
  if (found == models_.end()) return;
  Observe(batch.key, batch.capacity, took, batch.switches);
  Model& model = found->second;
  Shape& shape = model.shapes.at(batch.key.row_shapes);
  if (shape.waiting == 0) shape.drained = now;
  const Clock::duration change = model.switch_cost.Get();
  const Clock::duration useful = batch.switches ? std::max(Clock::duration::zero(), took - change) : took;
  model.credit = std::min(model.credit + useful / kStay, change);
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

Clock::duration BatchPlanner::Time(const BucketKey& key, int64_t capacity) const {
  const auto model = models_.find(key.model);
  if (model == models_.end()) return {};
  const auto shape = model->second.shapes.find(key.row_shapes);
  return shape == model->second.shapes.end() ? Clock::duration{} : shape->second.cost.Time(capacity);
}

std::vector<BatchPlanner::ShapeStats> BatchPlanner::GetStats(uint64_t model) const {
  std::vector<ShapeStats> stats;
  const auto found = models_.find(model);
  if (found == models_.end()) return stats;
  for (const auto& [shapes, shape] : found->second.shapes) {
    stats.push_back({{model, shapes},
                     shape.waiting,
                     shape.cost.cap(),
                     shape.cost.Fit(),
                     shape.cost.Sizes(),
                     found->second.switch_cost.Get()});
  }
  return stats;
}

}  // namespace radserve
