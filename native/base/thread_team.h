#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace radserve {

/// Threads that share the steps of one loop with the thread that runs it. They live as long as the
/// work that they help with and sleep between loops. What the steps write must not overlap, so that
/// results are the same whichever thread takes which step.
class ThreadTeam {
 public:
  /// No helpers: the caller takes every step.
  ThreadTeam() = default;
  /// `threads` counts the caller. Before each loop `wide` says whether the helpers may be used for
  /// it. Where the system gives no thread, there are fewer.
  ThreadTeam(int threads, std::function<bool()> wide);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  /// Calls `step` with each number below `count`, once, from several threads, and waits until all
  /// are done. If steps throw, the failure of the lowest of those is thrown, and some of the others
  /// may be left out. One loop at a time.
  void For(size_t count, const std::function<void(size_t)>& step);

 private:
  void Help();
  void TakeSteps();

  std::function<bool()> wide_;
  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable ended_;
  const std::function<void(size_t)>* step_ = nullptr;
  size_t count_ = 0;
  std::atomic<size_t> next_ = 0;
  size_t turn_ = 0;
  size_t helping_ = 0;
  bool over_ = false;
  std::exception_ptr failure_;
  size_t failed_ = std::numeric_limits<size_t>::max();
  std::vector<std::thread> helpers_;
};

}  // namespace radserve
