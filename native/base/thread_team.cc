#include "base/thread_team.h"

#include <system_error>
#include <utility>

namespace radserve {

ThreadTeam::ThreadTeam(int threads, std::function<bool()> wide) : wide_(std::move(wide)) {
  try {
    for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { Help(); });
  } catch (const std::system_error&) {
    // The caller does what helpers would have done.
  }
}

ThreadTeam::~ThreadTeam() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  begun_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadTeam::For(size_t count, const std::function<void(size_t)>& step) {
  if (count < 2 || helpers_.empty() || !wide_()) {
    for (size_t i = 0; i < count; ++i) step(i);
    return;
  }
  {
    const std::scoped_lock lock(mutex_);
    step_ = &step;
    count_ = count;
    next_ = 0;
    failure_ = nullptr;
    failed_ = std::numeric_limits<size_t>::max();
    helping_ = helpers_.size();
    ++turn_;
  }
  begun_.notify_all();
  TakeSteps();
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return helping_ == 0; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadTeam::Help() {
  size_t seen = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      begun_.wait(lock, [&] { return over_ || turn_ != seen; });
      if (over_) return;
      seen = turn_;
    }
    TakeSteps();
    const std::scoped_lock lock(mutex_);
    if (--helping_ == 0) ended_.notify_one();
  }
}

void ThreadTeam::TakeSteps() {
  for (size_t i = next_++; i < count_; i = next_++) {
    try {
      (*step_)(i);
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (i < failed_) {
        failed_ = i;
        failure_ = std::current_exception();
      }
      next_ = count_;
    }
  }
}

}  // namespace radserve
