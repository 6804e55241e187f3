#include "graph/client.h"

#include <atomic>
#include <utility>

#include "base/error.h"

namespace radserve {
namespace {

std::atomic<bool> silenced = false;

}  // namespace

void Client::Post(uint64_t ticket, const std::optional<Failure>& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || silenced) return;
    completions_.push_back({ticket, failure});
    // The thread that posted the first wakes the environment, which takes them all.
    if (completions_.size() > 1) return;
    ++pins_;
  }
  // Without the lock, which the environment wants as soon as it wakes.
  notify_();
  Unpin();
}

std::vector<Client::Completion> Client::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(completions_, {});
}

void Client::SilenceAll() { silenced = true; }

void Client::Close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  unpinned_.wait(lock, [this] { return pins_ == 0; });
}

Client::Pin::Pin(Client& client) : client_(client) {
  const std::lock_guard lock(client_.mutex_);
  if (client_.closed_)
    throw EngineError("cancelled", "The thread that asked for the work has ended.");
  ++client_.pins_;
}

Client::Pin::~Pin() { client_.Unpin(); }

void Client::Unpin() {
  const std::lock_guard lock(mutex_);
  if (--pins_ == 0) unpinned_.notify_all();
}

}  // namespace radserve
