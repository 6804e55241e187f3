#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "scheduling/fair_queue.h"

namespace radserve {

/// Requests its stop once the time is over, or `stop` is requested.
class Limit {
 public:
  Limit(Clock::duration time, const std::stop_token& stop)
      : forward_(stop, [this] { source_.request_stop(); }),
        timer_([this, time](const std::stop_token& done) {
          std::mutex mutex;
          std::unique_lock lock(mutex);
          std::condition_variable_any().wait_for(lock, done, time, [] { return false; });
          if (!done.stop_requested()) source_.request_stop();
        }) {}
  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  std::stop_callback<std::function<void()>> forward_;
  std::jthread timer_;
};

}  // namespace radserve
