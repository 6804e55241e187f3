#include "graph/residence.h"

namespace radserve {

bool Residence::BeginUse() {
  const std::lock_guard lock(mutex_);
  if (figures_.state != State::kLoaded) return false;
  ++uses_;
  return true;
}

bool Residence::EndUse() {
  const std::lock_guard lock(mutex_);
  last_use_ = Clock::now();
  return --uses_ == 0 && figures_.state == State::kDraining;
}

bool Residence::Wait(const std::shared_ptr<PendingUse>& pending) {
  {
    const std::lock_guard lock(mutex_);
    if (figures_.state != State::kLoaded) {
      pending_.push_back(pending);
      const bool unloaded = figures_.state == State::kUnloaded;
      if (unloaded) figures_.state = State::kReloading;
      return unloaded;
    }
    ++uses_;
  }
  pending->entered = true;
  pending->resume();
  return false;
}

void Residence::Drop(const std::shared_ptr<PendingUse>& pending) {
  {
    const std::lock_guard lock(mutex_);
    if (std::erase(pending_, pending) == 0) return;
  }
  pending->resume();
}

std::optional<Clock::time_point> Residence::UnusedSince() const {
  const std::lock_guard lock(mutex_);
  return figures_.state == State::kLoaded && uses_ == 0 ? std::optional(last_use_) : std::nullopt;
}

bool Residence::Drain() {
  const std::lock_guard lock(mutex_);
  if (figures_.state == State::kLoaded) figures_.state = State::kDraining;
  return figures_.state == State::kDraining;
}

bool Residence::BeginUnload(Clock::time_point unused_since) {
  const std::lock_guard lock(mutex_);
  if (uses_ > 0) return false;
  const bool unused = figures_.state == State::kLoaded && last_use_ <= unused_since;
  if (unused) figures_.state = State::kDraining;
  return figures_.state == State::kDraining;
}

bool Residence::Unloaded() {
  const std::lock_guard lock(mutex_);
  figures_.state = pending_.empty() ? State::kUnloaded : State::kReloading;
  return !pending_.empty();
}

bool Residence::HasPending() {
  const std::lock_guard lock(mutex_);
  if (pending_.empty()) figures_.state = State::kUnloaded;
  return !pending_.empty();
}

void Residence::Loaded(Clock::duration took) {
  std::vector<std::shared_ptr<PendingUse>> pending;
  {
    const std::lock_guard lock(mutex_);
    last_use_ = Clock::now();
    figures_ = {State::kLoaded, figures_.loads + 1, last_use_, took, std::nullopt};
    pending.swap(pending_);
    uses_ += pending.size();
  }
  for (const auto& pending : pending) {
    pending->entered = true;
    pending->resume();
  }
}

void Residence::LoadFailed(const Failure& failure) {
  std::vector<std::shared_ptr<PendingUse>> pending;
  {
    const std::lock_guard lock(mutex_);
    figures_.state = State::kUnloaded;
    figures_.failure = failure;
    pending.swap(pending_);
  }
  for (const auto& pending : pending) {
    pending->failure = failure;
    pending->resume();
  }
}

Residence::Figures Residence::Get() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

}  // namespace radserve
