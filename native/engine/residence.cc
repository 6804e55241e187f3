#include "engine/residence.h"

#include <utility>

namespace radserve {

bool Residence::Enter() {
  const std::lock_guard lock(mutex_);
  if (figures_.state != State::kHere) return false;
  ++uses_;
  return true;
}

bool Residence::Exit() {
  const std::lock_guard lock(mutex_);
  last_use_ = Clock::now();
  return --uses_ == 0 && figures_.state == State::kLeaving;
}

bool Residence::Wait(const std::shared_ptr<Waiter>& waiter) {
  {
    const std::lock_guard lock(mutex_);
    if (figures_.state != State::kHere) {
      waiters_.push_back(waiter);
      const bool away = figures_.state == State::kAway;
      if (away) figures_.state = State::kReturning;
      return away;
    }
    ++uses_;
  }
  waiter->entered = true;
  waiter->resume();
  return false;
}

void Residence::Drop(const std::shared_ptr<Waiter>& waiter) {
  {
    const std::lock_guard lock(mutex_);
    if (std::erase(waiters_, waiter) == 0) return;
  }
  waiter->resume();
}

std::optional<Clock::time_point> Residence::UnusedSince() const {
  const std::lock_guard lock(mutex_);
  return figures_.state == State::kHere && uses_ == 0 ? std::optional(last_use_) : std::nullopt;
}

bool Residence::Drain() {
  const std::lock_guard lock(mutex_);
  if (figures_.state == State::kHere) figures_.state = State::kLeaving;
  return figures_.state == State::kLeaving;
}

bool Residence::BeginLeaving(Clock::time_point unused_since) {
  const std::lock_guard lock(mutex_);
  if (uses_ > 0) return false;
  const bool unused = figures_.state == State::kHere && last_use_ <= unused_since;
  if (unused) figures_.state = State::kLeaving;
  return figures_.state == State::kLeaving;
}

bool Residence::Left() {
  const std::lock_guard lock(mutex_);
  figures_.state = waiters_.empty() ? State::kAway : State::kReturning;
  return !waiters_.empty();
}

bool Residence::StillWanted() {
  const std::lock_guard lock(mutex_);
  if (waiters_.empty()) figures_.state = State::kAway;
  return !waiters_.empty();
}

void Residence::Came(Clock::duration took) {
  std::vector<std::shared_ptr<Waiter>> waiters;
  {
    const std::lock_guard lock(mutex_);
    last_use_ = Clock::now();
    figures_ = {State::kHere, figures_.loads + 1, last_use_, took, std::nullopt};
    waiters.swap(waiters_);
    uses_ += waiters.size();
  }
  for (const auto& waiter : waiters) {
    waiter->entered = true;
    waiter->resume();
  }
}

void Residence::CouldNotCome(const Failure& failure) {
  std::vector<std::shared_ptr<Waiter>> waiters;
  {
    const std::lock_guard lock(mutex_);
    figures_.state = State::kAway;
    figures_.failure = failure;
    waiters.swap(waiters_);
  }
  for (const auto& waiter : waiters) {
    waiter->failure = failure;
    waiter->resume();
  }
}

Residence::Figures Residence::Get() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

}  // namespace radserve
