#include "scheduling/agenda.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace radserve {
namespace {

/// The charge of an unknown start, so that flows take turns before anything is known.
constexpr auto kUnknownCost = std::chrono::milliseconds(1);

/// How long a run that was asked to stop may go on before it is late.
constexpr auto kLastMoment = std::chrono::seconds(1);

}  // namespace

/// The time that the class took, or, if it is new, that another class took: only the width of a run
/// differs.
Clock::duration Agenda::Expected(const std::array<MedianTime, kPriorities>& times,
                                 Priority priority) {
  const Clock::duration own = times[FairQueue::Index(priority)].Get();
  if (own > Clock::duration::zero()) return own;
  Clock::duration other{};
  for (const MedianTime& time : times) other = std::max(other, time.Get());
  return other;
}

Agenda::EntryPtr Agenda::Add(const std::shared_ptr<Task>& task, Clock::time_point now) {
  if (task->deadline && *task->deadline <= now) {
    ++flows_[task->flow].stats.late;
    throw EngineError("deadline_exceeded", "The work came after its deadline.");
  }
  auto entry = std::make_shared<Entry>();
  entry->number = next_number_++;
  entry->submitted = now;
  queue_.Add({entry->number, task->priority, QueueFlow(*task), task->deadline, now});
  if (task->deadline) deadlines_.emplace(std::pair(*task->deadline, entry->number), entry);
  ++flows_[task->flow].queued[FairQueue::Index(task->priority)];
  entry->task = task;
  entries_.emplace(entry->number, entry);
  return entry;
}

bool Agenda::HasPlace(uint32_t subject, Priority priority) const {
  if (places_ == 0) return true;
  const auto found = held_.find(subject);
  const size_t own = subject == 0 || found == held_.end() ? 0 : found->second;
  const size_t for_stat = priority == Priority::kStat ? 1 : 0;
  if (own >= places_ + for_stat) return false;
  const size_t left = places_ - std::min(places_, late_ - std::min(late_, places_));
  const size_t busy = running_ - late_;
  if (busy < left) return true;
  if (priority == Priority::kBulk) return false;
  const size_t for_others = subject != 0 && own == 0 ? 1 : 0;
  return busy < left + for_others || (for_stat == 1 && busy < left + 2);
}

bool Agenda::MayStart(uint64_t queue_flow, Priority priority) const {
  if (!HasPlace(static_cast<uint32_t>(queue_flow), priority)) return false;
  const auto found = flows_.find(queue_flow >> 32);
  if (found == flows_.end() || found->second.start_limit == 0) return true;
  const size_t limit = found->second.start_limit * (priority == Priority::kStat ? 2 : 1);
  return found->second.started < limit;
}

const FairQueue::Item* Agenda::NextItem(Clock::time_point now) const {
  return queue_.Next(now,
                     [this](uint64_t flow, Priority priority) { return MayStart(flow, priority); });
}

bool Agenda::HasNext(Clock::time_point now) const {
  return !resumed_.empty() || NextItem(now) != nullptr;
}

void Agenda::BeginRun(Entry& entry, Clock::time_point now) {
  entry.state = State::kRunning;
  entry.started = now;
  ++running_;
  ++held_[entry.task->subject];
}

void Agenda::EndRun(Entry& entry, Clock::time_point now) {
  --running_;
  entry.worked += now - entry.started;
  if (std::exchange(entry.late, false)) {
    --late_;
    if (const auto flow = flows_.find(entry.task->flow); flow != flows_.end())
      --flow->second.stats.late_runs;
  }
  const auto held = held_.find(entry.task->subject);
  if (--held->second == 0) held_.erase(held);
}

Agenda::EntryPtr Agenda::Next(Clock::time_point now) {
  EntryPtr entry;
  if (!resumed_.empty()) {
    entry = resumed_.front();
    resumed_.pop_front();
  } else {
    const FairQueue::Item* item = NextItem(now);
    if (item == nullptr) return nullptr;
    entry = entries_.at(item->id);
    const Task& task = *entry->task;
    Flow& flow = flows_[task.flow];
    const Clock::duration expected =
        Expected(flow.service, task.priority) + Expected(flow.device, task.priority);
    entry->charged = std::max<Clock::duration>(expected, kUnknownCost);
    queue_.Start(item->id, entry->charged);
    ++flow.started;
    --flow.queued[FairQueue::Index(task.priority)];
    ++flow.stats.started[FairQueue::Index(task.priority)];
    flow.stats.wait[FairQueue::Index(task.priority)].Add(now - entry->submitted);
  }
  BeginRun(*entry, now);
  return entry;
}

void Agenda::Told(const EntryPtr& entry, Clock::time_point now) {
  told_.emplace(now + kLastMoment, entry->number);
}

Agenda::EntryPtr Agenda::Late(Clock::time_point now) {
  while (!told_.empty() && told_.begin()->first <= now) {
    const auto found = entries_.find(told_.extract(told_.begin()).mapped());
    if (found == entries_.end() || found->second->state != State::kRunning) continue;
    EntryPtr entry = found->second;
    if (std::exchange(entry->late, true)) continue;
    ++late_;
    if (const auto flow = flows_.find(entry->task->flow); flow != flows_.end())
      ++flow->second.stats.late_runs;
    return entry;
  }
  return nullptr;
}

std::optional<Clock::time_point> Agenda::NextLook() const {
  const std::optional<Clock::time_point> deadline = NextDeadline();
  if (told_.empty()) return deadline;
  return deadline ? std::min(*deadline, told_.begin()->first) : told_.begin()->first;
}

bool Agenda::Park(const EntryPtr& entry, Clock::time_point now) {
  EndRun(*entry, now);
  if (std::exchange(entry->resumed_early, false)) {
    entry->state = State::kResumed;
    resumed_.push_back(entry);
    return true;
  }
  entry->state = State::kParked;
  ++parked_;
  return false;
}

bool Agenda::Resume(const EntryPtr& entry) {
  if (entry->state == State::kRunning) {
    entry->resumed_early = true;
    return false;
  }
  if (entry->state != State::kParked) return false;
  --parked_;
  entry->state = State::kResumed;
  resumed_.push_back(entry);
  return true;
}

void Agenda::End(const EntryPtr& entry, bool good) {
  const Task& task = *entry->task;
  if (task.deadline) deadlines_.erase({*task.deadline, entry->number});
  entries_.erase(entry->number);
  entry->state = State::kEnded;
  ++(good ? completed_ : failed_);
  const auto flow = flows_.find(task.flow);
  if (flow == flows_.end()) return;
  ++(good ? flow->second.stats.completed : flow->second.stats.failed);
}

void Agenda::Finish(const EntryPtr& entry, bool good, Clock::time_point now) {
  EndRun(*entry, now);
  const Task& task = *entry->task;
  const auto found = flows_.find(task.flow);
  if (found != flows_.end()) {
    Flow& flow = found->second;
    if (flow.started > 0) --flow.started;
    const Clock::duration device = task.DeviceTime();
    queue_.Charge(task.priority, QueueFlow(task), entry->worked + device - entry->charged);
    if (good) {
      flow.service[FairQueue::Index(task.priority)].Add(entry->worked);
      flow.device[FairQueue::Index(task.priority)].Add(device);
    }
  }
  End(entry, good);
}

void Agenda::Withdraw(const EntryPtr& entry) {
  queue_.Remove(entry->number);
  if (const auto flow = flows_.find(entry->task->flow); flow != flows_.end())
    --flow->second.queued[FairQueue::Index(entry->task->priority)];
  End(entry, false);
}

Agenda::EntryPtr Agenda::Overdue(Clock::time_point now) {
  if (deadlines_.empty() || deadlines_.begin()->first.first > now) return nullptr;
  return deadlines_.extract(deadlines_.begin()).mapped();
}

std::optional<Clock::time_point> Agenda::NextDeadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first.first;
}

std::vector<Agenda::EntryPtr> Agenda::Matching(
    const std::function<bool(const Task&)>& match) const {
  std::vector<EntryPtr> found;
  for (const auto& [number, entry] : entries_) {
    if (match(*entry->task)) found.push_back(entry);
  }
  return found;
}

void Agenda::SetStartLimit(uint64_t flow, size_t limit) { flows_[flow].start_limit = limit; }

void Agenda::Forget(uint64_t flow) { flows_.erase(flow); }

Agenda::Stats Agenda::GetStats() const {
  Stats stats;
  stats.running = running_ + resumed_.size();
  stats.parked = parked_;
  stats.late_runs = late_;
  stats.completed = completed_;
  stats.failed = failed_;
  for (size_t i = 0; i < kPriorities; ++i) stats.queued[i] = queue_.Count(static_cast<Priority>(i));
  for (const auto& [id, flow] : flows_) {
    stats.flows.emplace(id, flow.stats).first->second.queued = flow.queued;
  }
  return stats;
}

}  // namespace radserve
