#include "addon/environment.h"

#include "graph/engine.h"

namespace radserve {

Napi::Error MakeError(Napi::Env env, const Failure& failure) {
  Napi::Error error = Napi::Error::New(env, failure.message);
  error.Set("code", failure.code);
  return error;
}

std::atomic<uint64_t> Environment::next_id_ = 1;

void Environment::Open() {
  const auto on_wake = [](napi_env env, napi_value, void* context, void*) {
    if (env != nullptr) static_cast<Environment*>(context)->Drain();
  };
  const napi_status made =
      napi_create_threadsafe_function(env_, nullptr, nullptr, Napi::String::New(env_, "radserve"),
                                      0, 1, nullptr, nullptr, this, on_wake, &wake_);
  NAPI_THROW_IF_FAILED_VOID(env_, made);
  napi_unref_threadsafe_function(env_, wake_);
  // Close waits for calls under way before the function goes (hooks run last in first out, and the
  // function's own was registered above).
  client_ = std::make_shared<Client>(
      [wake = wake_] { napi_call_threadsafe_function(wake, nullptr, napi_tsfn_nonblocking); });
  const auto on_close = [](void* self) { static_cast<Environment*>(self)->Close(); };
  NAPI_THROW_IF_FAILED_VOID(env_, napi_add_env_cleanup_hook(env_, on_close, this));
}

void Environment::Close() {
  // First, so that runs which read this environment's memory end soon.
  if (Engine* engine = Engine::Started()) engine->RemoveEnvironment(id_);
  client_->Close();
  pending_.clear();
}

std::pair<uint64_t, Napi::Promise> Environment::Expect(Answer answer, const Napi::Value& read) {
  const uint64_t ticket = next_ticket_++;
  auto deferred = Napi::Promise::Deferred::New(env_);
  Napi::ObjectReference reference;
  if (read.IsObject()) reference = Napi::Persistent(read.As<Napi::Object>());
  pending_.emplace(ticket, Pending{deferred, std::move(answer), std::move(reference)});
  KeepLoopAlive();
  return {ticket, deferred.Promise()};
}

/// The event loop waits for the engine while, and only while, something is under way.
void Environment::KeepLoopAlive() {
  const bool busy = !pending_.empty();
  if (busy == alive_) return;
  alive_ = busy;
  if (busy) {
    napi_ref_threadsafe_function(env_, wake_);
  } else {
    napi_unref_threadsafe_function(env_, wake_);
  }
}

void Environment::Drain() {
  const Napi::HandleScope scope(env_);
  try {
    for (const Client::Completion& completion : client_->Take()) Settle(completion);
  } catch (const Napi::Error&) {
    // The thread is being ended, and no JavaScript runs in it any more: nobody waits for these.
  }
}

void Environment::Settle(const Client::Completion& completion) {
  auto node = pending_.extract(completion.ticket);
  if (node.empty()) return;
  KeepLoopAlive();
  const Pending& pending = node.mapped();
  if (completion.failure) {
    pending.deferred.Reject(MakeError(env_, *completion.failure).Value());
    return;
  }
  try {
    pending.deferred.Resolve(pending.answer(env_));
  } catch (const Napi::Error& e) {
    pending.deferred.Reject(e.Value());
  } catch (const std::exception& e) {
    pending.deferred.Reject(MakeError(env_, {"internal", e.what()}).Value());
  }
}

}  // namespace radserve
