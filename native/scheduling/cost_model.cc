#include "scheduling/cost_model.h"

#include <algorithm>

namespace radserve {
namespace {

/// How much cheaper a row must become for a step up, and for staying there.
constexpr double kGain = 1.10;
constexpr double kKeepGain = 1.05;

template <typename T>
T MedianOf(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

bool CostModel::Measured(int64_t capacity) const {
  const auto found = sizes_.find(capacity);
  return found != sizes_.end() && found->second.time.known();
}

std::optional<Clock::duration> CostModel::Observe(int64_t capacity, Clock::duration took, bool switched) {
  Learned& learned = sizes_[capacity];
  if (!std::exchange(learned.warm, true)) return std::nullopt;
  if (switched) {
    // A size that never runs twice in a row is judged by the line through the others.
    if (!learned.time.known() && Sizes().size() < 2) return std::nullopt;
    return std::max(Clock::duration::zero(), took - Time(capacity));
  }
  learned.time.Add(took);
  UpdateCap();
  return std::nullopt;
}

void CostModel::Limit(int64_t capacity) {
  limit_ = std::max<int64_t>(1, std::min(limit_, capacity));
  UpdateCap();
}

void CostModel::UpdateCap() {
  const auto row_cost = [this](int64_t size) {
    return static_cast<double>(Time(size).count()) / static_cast<double>(size);
  };
  cap_ = 1;
  int64_t known = 0;
  // A step may be poor and the next one make up for it: two rows can cost a matrix product what four do.
  double asked = 1;
  for (int64_t size = 1; size <= limit_ && Measured(size); size *= 2) {
    known = size;
    if (size == 1) continue;
    asked *= size <= accepted_ ? kKeepGain : kGain;
    if (row_cost(cap_) < asked * row_cost(size)) continue;
    cap_ = size;
    asked = 1;
  }
  accepted_ = std::max<int64_t>(cap_, 1);
  if (known == cap_ && cap_ * 2 <= limit_) cap_ *= 2;
}

CostModel::Line CostModel::Fit() const {
  const std::vector<Size> known = Sizes();
  if (known.empty()) return {};
  if (known.size() == 1) return {known[0].time / known[0].rows, {}};
  std::vector<Clock::duration> slopes;
  for (size_t i = 0; i < known.size(); ++i) {
    for (size_t j = i + 1; j < known.size(); ++j) {
      slopes.push_back((known[j].time - known[i].time) / (known[j].rows - known[i].rows));
    }
  }
  Line line;
  line.per_row = std::max(Clock::duration::zero(), MedianOf(std::move(slopes)));
  std::vector<Clock::duration> rests;
  for (const Size& size : known) rests.push_back(size.time - size.rows * line.per_row);
  line.fixed = std::max(Clock::duration::zero(), MedianOf(std::move(rests)));
  return line;
}

std::vector<CostModel::Size> CostModel::Sizes() const {
  std::vector<Size> sizes;
  for (const auto& [rows, learned] : sizes_) {
    if (learned.time.known()) sizes.push_back({rows, learned.time.Get()});
  }
  return sizes;
}

Clock::duration CostModel::Time(int64_t capacity) const {
  const auto found = sizes_.find(capacity);
  if (found != sizes_.end() && found->second.time.known()) return found->second.time.Get();
  const std::vector<Size> known = Sizes();
  if (known.empty()) return {};
  if (known.size() > 1) {
    const Line line = Fit();
    return line.fixed + capacity * line.per_row;
  }
  const Size& only = known[0];
  if (capacity < only.rows) return only.time;
  return only.time + only.time * (capacity - only.rows) / (2 * only.rows);
}

}  // namespace radserve
