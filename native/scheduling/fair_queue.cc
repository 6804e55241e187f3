#include "scheduling/fair_queue.h"

#include <algorithm>

namespace radserve {

FairQueue::Key FairQueue::DueKey(const Item& item) const {
  const Clock::time_point latest = item.arrived + options_.horizon;
  return {item.deadline ? std::min(*item.deadline, latest) : latest, item.id};
}

void FairQueue::Add(const Item& item) {
  const Item& kept = items_.emplace(item.id, item).first->second;
  Class& level = classes_[Index(item.priority)];
  const auto [found, fresh] = level.flows.try_emplace(item.flow);
  Flow& flow = found->second;
  if (fresh || flow.due.empty()) flow.start = std::max(flow.start, level.now);
  flow.due.emplace(DueKey(item), &kept);
  flow.arrivals.emplace(item.arrived, item.id);
  ++level.count;
}

void FairQueue::Visit(Priority priority, uint64_t flow,
                      const std::function<bool(const Item&)>& visit) const {
  const auto& flows = classes_[Index(priority)].flows;
  const auto found = flows.find(flow);
  if (found == flows.end()) return;
  for (const auto& [key, item] : found->second.due) {
    if (!visit(*item)) return;
  }
}

void FairQueue::Erase(const Item& item) {
  Class& level = classes_[Index(item.priority)];
  const auto found = level.flows.find(item.flow);
  Flow& flow = found->second;
  flow.due.erase(DueKey(item));
  flow.arrivals.erase({item.arrived, item.id});
  --level.count;
  // A tag ahead of the others is remembered: leaving and coming again is no way to the front.
  if (flow.due.empty() && flow.start <= level.now) level.flows.erase(found);
  if (level.count == 0) {
    level.flows.clear();
    level.now = {};
  }
  items_.erase(item.id);
}

bool FairQueue::Remove(uint64_t id) {
  const auto found = items_.find(id);
  if (found == items_.end()) return false;
  Erase(found->second);
  return true;
}

bool FairQueue::AgedBelow(size_t level, Clock::time_point now, const Eligible& eligible) const {
  for (size_t below = level + 1; below < kPriorities; ++below) {
    for (const auto& [id, flow] : classes_[below].flows) {
      if (flow.arrivals.empty() || !eligible(id, static_cast<Priority>(below))) continue;
      if (now - flow.arrivals.begin()->first >= options_.age[level]) return true;
    }
  }
  return false;
}

const FairQueue::Item* FairQueue::Next(Clock::time_point now, const Eligible& eligible) const {
  for (size_t i = 0; i < kPriorities; ++i) {
    const Class& level = classes_[i];
    const Flow* next = nullptr;
    for (const auto& [id, flow] : level.flows) {
      if (flow.due.empty() || !eligible(id, static_cast<Priority>(i))) continue;
      if (next == nullptr || flow.start < next->start) next = &flow;
    }
    if (next == nullptr) continue;
    if (level.starts + 1 >= options_.share && i + 1 < kPriorities && AgedBelow(i, now, eligible))
      continue;
    return next->due.begin()->second;
  }
  return nullptr;
}

FairQueue::Item FairQueue::Start(uint64_t id, Clock::duration cost) {
  const Item item = items_.at(id);
  const size_t index = Index(item.priority);
  for (size_t above = 0; above < index; ++above) {
    if (classes_[above].count > 0) classes_[above].starts = 0;
  }
  Class& level = classes_[index];
  ++level.starts;
  Flow& flow = level.flows.at(item.flow);
  level.now = std::max(level.now, flow.start);
  flow.start += cost;
  Erase(item);
  return item;
}

void FairQueue::Charge(Priority priority, uint64_t flow, Clock::duration cost) {
  Class& level = classes_[Index(priority)];
  const auto found = level.flows.find(flow);
  if (found == level.flows.end()) return;
  found->second.start = std::max(found->second.start + cost, level.now);
}

}  // namespace radserve
