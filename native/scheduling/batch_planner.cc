#include "scheduling/batch_planner.h"

#include <algorithm>
#include <utility>

namespace radserve {
namespace {

/// Shapes of one model whose times are remembered; images may have any size.
constexpr size_t kShapes = 64;

/// A wait takes this part of the batch that it is for at most, so that rows which come seldom lose
/// little by it.
constexpr int kWaitPart = 8;

}  // namespace

void BatchPlanner::AddModel(uint64_t model, int64_t max_batch, bool padded) {
  models_[model].max_batch = max_batch;
  models_[model].padded = padded;
}

void BatchPlanner::RemoveModel(uint64_t model) { models_.erase(model); }

int64_t BatchPlanner::Lanes(uint64_t model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? 1 : found->second.lanes;
}

void BatchPlanner::SetLanes(uint64_t model, int64_t lanes) {
  const auto found = models_.find(model);
  if (found != models_.end()) found->second.lanes = lanes;
}

BatchPlanner::Shape& BatchPlanner::ShapeOf(Model& model, const Shapes& shapes) {
  const auto found = model.shapes.find(shapes);
  if (found != model.shapes.end()) return found->second;
  if (model.shapes.size() >= kShapes) {
    const auto oldest = std::ranges::min_element(model.shapes, {}, [](const auto& each) {
      return std::pair(each.second.waiting > 0, each.second.last_arrival);
    });
    if (oldest->second.waiting == 0) model.shapes.erase(oldest);
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
  const BucketKey& key = node.mapped().key;
  --models_.at(key.model).shapes.at(key.row_shapes).waiting;
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

Clock::duration BatchPlanner::Shape::Saved(int64_t rows) const {
  const auto all = std::min<int64_t>(static_cast<int64_t>(last_rows), limit);
  if (rows >= all) return {};
  const Clock::duration together = Time(Holding(all));
  const Clock::duration now = Time(Holding(rows));
  const Clock::duration later = Time(Holding(all - rows));
  if (std::min({together, now, later}) <= Clock::duration{}) return {};
  return std::clamp<Clock::duration>(now + later - together, {}, together / kWaitPart);
}

void BatchPlanner::Ended(const BucketKey& key, size_t rows, Clock::time_point now) {
  const auto model = models_.find(key.model);
  if (model == models_.end() || !model->second.padded) return;
  Shape& shape = ShapeOf(model->second, key.row_shapes);
  shape.last_rows = rows;
  shape.last_end = now;
}

int64_t BatchPlanner::Choose(const Shape& shape, int64_t rows, const Row& first,
                             Clock::time_point now) {
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

std::optional<BatchPlanner::Batch> BatchPlanner::Next(Clock::time_point now,
                                                      std::optional<Clock::time_point>* wait_until,
                                                      int64_t lane) {
  running_.erase(lane);
  const FairQueue::Item* item =
      queue_.Next(now, [&](uint64_t model, Priority) { return lane < Lanes(model); });
  if (item == nullptr) return std::nullopt;
  const Row head = rows_.at(item->id);
  std::vector<Row> rows = RowsOf(head.key);
  // An aged row gets what it has earned, whichever rows of its bucket ride along.
  const auto own = std::ranges::find(rows, head.id, &Row::id);
  std::rotate(rows.begin(), own, own + 1);
  // A stat does not wait for the rows of others.
  const auto stats = std::ranges::count(rows, Priority::kStat, &Row::priority);
  const auto waiting =
      static_cast<int64_t>(stats > 0 ? stats : static_cast<ptrdiff_t>(rows.size()));
  // Each lane takes its part of the rows that wait or run.
  const int64_t lanes = Lanes(head.key.model);
  int64_t all = waiting + lanes - 1;
  for (const auto& [other, running] : running_)
    all += running.first == head.key ? running.second : 0;
  const int64_t count = std::min(waiting, all / lanes);
  Shape& shape = models_.at(head.key.model).shapes.at(head.key.row_shapes);
  const Clock::time_point until = shape.last_end + shape.Saved(count);
  if (wait_until != nullptr && stats == 0 && rows_.size() == rows.size() && now < until &&
      (!head.deadline || until + shape.Time(shape.Holding(count)) <= *head.deadline)) {
    *wait_until = until;
    return std::nullopt;
  }
  const int64_t capacity = Choose(shape, count, head, now);
  rows.resize(std::min(rows.size(), static_cast<size_t>(capacity)));
  running_[lane] = {head.key, static_cast<int64_t>(rows.size())};
  Batch batch{head.key, capacity, std::move(rows), shape.Time(capacity), lanes};
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
