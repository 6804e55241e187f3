#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "scheduling/task.h"

namespace radserve {

/// The completion queue of one environment (one thread of JavaScript). Engine threads post to it,
/// and the environment takes what they posted. After Close nothing is posted, and no engine thread
/// reads memory that belongs to the environment.
class Client {
 public:
  struct Completion {
    uint64_t ticket = 0;
    std::optional<Failure> failure;
  };

  /// `notify` is called when a completion comes into an empty queue; it must only wake the
  /// environment.
  explicit Client(std::function<void()> notify) : notify_(std::move(notify)) {}
  void Post(uint64_t ticket, const std::optional<Failure>& failure);
  std::vector<Completion> Take();
  /// From now on nothing is posted to any client, because the process ends: environments may be
  /// half gone.
  static void SilenceAll();
  /// Waits for engine threads that read the environment's memory, or notify it, at this moment.
  /// Idempotent.
  void Close();

  /// Holds the environment's memory in place while it lives. Throws `cancelled` after Close.
  class Pin {
   public:
    explicit Pin(Client& client);
    ~Pin();
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;

   private:
    Client& client_;
  };

 private:
  void Unpin();

  std::mutex mutex_;
  std::condition_variable unpinned_;
  std::function<void()> notify_;
  std::vector<Completion> completions_;
  int pins_ = 0;
  bool closed_ = false;
};

}  // namespace radserve
