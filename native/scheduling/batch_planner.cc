#include "scheduling/batch_planner.h"

#include <algorithm>
#include <utility>

namespace radserve {
namespace {

/// Shapes of one model whose times are remembered; images may have any size.
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
      if (it->second.waiting > 0) continue;
      if (oldest == model.shapes.end() || it->second.last_arrival < oldest->second.last_arrival) oldest = it;
    }
    if (oldest != model.shapes.end()) model.shapes.erase(oldest);
  }
  Shape& shape = model.shapes[shapes];
  shape.limit = model.max_batch;
  return shape;
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

Clock::duration BatchPlanner::Shape::Time(int64_t capacity) const {
  const auto found = times.find(capacity);
  return found == times.end() ? Clock::duration{} : found->second.Get();
}

int64_t BatchPlanner::Shape::Holding(int64_t rows) const {
  int64_t size = 1;
  while (size < rows && size * 2 <= limit) size *= 2;
  return size;
}

int64_t BatchPlanner::Choose(const Shape& shape, int64_t rows, const Row& first, Clock::time_point now) {
  int64_t size = shape.Holding(rows);
  for (int64_t half = size / 2; half >= 1; half /= 2) {
    const Clock::duration rest = shape.Time(shape.Holding(std::min(rows, size) - half));
    const bool known = rest > Clock::duration{} && shape.Time(half) > Clock::duration{};
    if (!known || shape.Time(half) + rest >= shape.Time(size)) break;
    size = half;
  }
  if (!first.deadline) return size;
  for (int64_t sooner = size; sooner >= 1; sooner /= 2) {
    if (now + shape.Time(sooner) <= *first.deadline) return sooner;
  }
  return size;
}

std::optional<BatchPlanner::Batch> BatchPlanner::Next(Clock::time_point now) {
  const FairQueue::Item* item = queue_.Next(now, [](uint64_t, Priority) { return true; });
  if (item == nullptr) return std::nullopt;
  const Row head = rows_.at(item->id);
  std::vector<Row> rows = RowsOf(head.key);
  // An aged row gets what it has earned, whichever rows of its bucket ride along.
  const auto own = std::ranges::find(rows, head.id, &Row::id);
  std::rotate(rows.begin(), own, own + 1);
  // A stat does not wait for the rows of others.
  const auto stats = std::ranges::count(rows, Priority::kStat, &Row::priority);
  const auto count = static_cast<int64_t>(stats > 0 ? stats : static_cast<ptrdiff_t>(rows.size()));
  Shape& shape = models_.at(head.key.model).shapes.at(head.key.row_shapes);
  const int64_t capacity = Choose(shape, count, head, now);
  rows.resize(std::min(rows.size(), static_cast<size_t>(capacity)));
  Batch batch{head.key, capacity, std::move(rows), shape.Time(capacity)};
  const auto share = batch.expected / static_cast<int64_t>(batch.rows.size());
  for (const Row& row : batch.rows) {
    queue_.Start(row.id, std::max<Clock::duration>(share, std::chrono::microseconds(1)));
    rows_.erase(row.id);
    --shape.waiting;
  }
  return batch;
}

void BatchPlanner::Observe(const BucketKey& key, int64_t capacity, Clock::duration took) {
  const auto model = models_.find(key.model);
  if (model == models_.end()) return;
  const auto [time, first] = ShapeOf(model->second, key.row_shapes).times.try_emplace(capacity);
  if (!first) time->second.Add(took);
}

void BatchPlanner::Limit(const BucketKey& key, int64_t capacity) {
  Shape& shape = ShapeOf(models_[key.model], key.row_shapes);
  shape.limit = std::max<int64_t>(1, std::min(shape.limit, capacity));
}

}  // namespace radserve
