#pragma once

#include <napi.h>

#include <chrono>
#include <memory>

#include "addon/environment.h"
#include "addon/values.h"
#include "base/error.h"
#include "graph/requests.h"

/// From a call of JavaScript to a request, and to the promise of its answer.
namespace radserve {

inline Environment& Here(const Napi::CallbackInfo& info) {
  return *info.Env().GetInstanceData<Environment>();
}

/// The number that the caller gave first.
inline int64_t First(const Napi::CallbackInfo& info) {
  return info[0].As<Napi::Number>().Int64Value();
}

inline void ReadLimits(const Given& o, Task& task) {
  if (o.Has("timeoutMs")) {
    task.deadline = Clock::now() +
                    std::chrono::microseconds(static_cast<int64_t>(o.Number("timeoutMs") * 1000));
  }
  if (o.Has("cancelId")) task.cancel_id = static_cast<uint64_t>(o.Number("cancelId"));
}

inline void ReadOptions(const Given& o, Task& task) {
  task.priority = o.OneOf<Priority>(
      "priority",
      {{"stat", Priority::kStat}, {"routine", Priority::kRoutine}, {"bulk", Priority::kBulk}});
  if (o.Has("subject")) task.subject = static_cast<uint32_t>(o.Number("subject"));
  ReadLimits(o, task);
}

/// Hands a filled request to a scheduler and gives the promise of its answer.
template <typename T, typename Answer>
Napi::Value Submit(const Napi::CallbackInfo& info, Scheduler& scheduler,
                   const std::shared_ptr<T>& request, const Answer& answer,
                   const Napi::Value& read = Napi::Value()) {
  Environment& here = Here(info);
  request->client = here.client();
  request->environment = here.id();
  const auto [ticket, promise] = here.Expect(
      [request, answer](Napi::Env env) -> Napi::Value { return answer(env, *request); }, read);
  request->ticket = ticket;
  try {
    scheduler.Submit(request);
  } catch (const EngineError& e) {
    here.Settle({ticket, Failure::Of(e)});
  }
  return promise;
}

}  // namespace radserve
