#pragma once

#include <napi.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "graph/client.h"

namespace radserve {

Napi::Error MakeError(Napi::Env env, const Failure& failure);

/// One environment (one thread of JavaScript): the promises that it waits for, and the way back to
/// it. All of it runs on that thread, except the notification in Open, which only wakes the thread.
/// Engine threads never see a Node-API handle.
class Environment {
 public:
  explicit Environment(Napi::Env env) : env_(env), id_(next_id_++) { Open(); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  /// Its number in the process.
  uint64_t id() const { return id_; }
  const std::shared_ptr<Client>& client() const { return client_; }

  using Answer = std::function<Napi::Value(Napi::Env)>;
  /// A promise under a new ticket. `read`, which the request reads, stays referenced until the
  /// promise is settled.
  std::pair<uint64_t, Napi::Promise> Expect(Answer answer, const Napi::Value& read);
  /// Settles the promise of a ticket at once.
  void Settle(const Client::Completion& completion);

 private:
  struct Pending {
    Napi::Promise::Deferred deferred;
    Answer answer;
    Napi::ObjectReference read;
  };

  void Open();
  void Close();
  void Drain();
  void KeepLoopAlive();

  static std::atomic<uint64_t> next_id_;

  Napi::Env env_;
  const uint64_t id_;
  napi_threadsafe_function wake_ = nullptr;
  std::shared_ptr<Client> client_;
  std::map<uint64_t, Pending> pending_;
  uint64_t next_ticket_ = 1;
  bool alive_ = false;
};

}  // namespace radserve
