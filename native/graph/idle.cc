/// Models that are unloaded while nobody uses them, and loaded again: Engine's part of Residence.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/engine.h"
#include "graph/limit.h"
#include "graph/requests.h"

namespace radserve {
namespace {

using ModelPtr = std::shared_ptr<const Model>;

bool SamePlace(const SessionSettings& a, const SessionSettings& b) {
  return a.OnGpu() == b.OnGpu() && (!a.OnGpu() || a.device == b.device);
}

/// Two that are no numbers are equal, one alone never is.
bool Near(float expected, float found, const Canary& canary) {
  if (expected == found || (std::isnan(expected) && std::isnan(found))) return true;
  return std::fabs(double{expected} - double{found}) <=
         canary.absolute + canary.relative * std::fabs(double{expected});
}

size_t CountOutside(const Tensor& expected, const Tensor& found, const Canary& canary) {
  if (std::memcmp(expected.data, found.data, expected.Bytes()) == 0) return 0;
  const std::vector<float> wanted = AsFloats(expected);
  const std::vector<float> values = AsFloats(found);
  size_t outside = 0;
  for (size_t i = 0; i < wanted.size(); ++i) outside += Near(wanted[i], values[i], canary) ? 0 : 1;
  return outside;
}

/// What comes out for the canary, over all cores, as for requests that run tensors: where a model
/// runs by windows these are windows, too. Throws model_unavailable if that takes too long; what
/// the run throws.
std::vector<Tensor> RunCanary(const std::shared_ptr<const Model>& model, const Canary& canary,
                              const TaskContext& context) {
  const std::shared_ptr<RunRequest> request = model->MakeRun();
  request->model = model;
  request->feeds = canary.feeds;
  for (const Tensor& expected : canary.expected) request->wanted.push_back(expected.name);
  const Limit limit(canary.most_time, context.stop());
  try {
    return request->RunNow(TaskContext(
        limit.token(), context.submitted(), [] { return true; },
        [&context] { return context.Park(); }));
  } catch (const EngineError&) {
    if (!limit.token().stop_requested() || context.stop().stop_requested()) throw;
    throw EngineError("model_unavailable",
                      "The canary did not end within " + std::to_string(canary.most_time.count()) +
                          " ms now that the model came back. Look at the driver and the machine, "
                          "then run radserve models reload or restart the server.");
  }
}

/// Throws model_unavailable if something else comes out; what RunCanary throws.
void CheckCanary(const std::shared_ptr<const Model>& model, const Canary& canary,
                 const TaskContext& context) {
  const std::vector<Tensor> outputs = RunCanary(model, canary, context);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& expected = canary.expected[i];
    const bool alike = expected.dtype == outputs[i].dtype && expected.shape == outputs[i].shape;
    const size_t outside = alike ? CountOutside(expected, outputs[i], canary) : expected.Elements();
    if (outside == 0) continue;
    throw EngineError(
        "model_unavailable",
        "The canary's output \"" + expected.name + "\" is wrong now that the model came back: " +
            std::to_string(outside) + " of " + std::to_string(expected.Elements()) +
            " elements are outside of its tolerance. Look at the driver and the machine, then run "
            "radserve models reload or restart the server.");
  }
}

}  // namespace

std::shared_ptr<const void> UseOf(const std::shared_ptr<const Model>& model) {
  const auto end = [model](const void*) {
    if (!model->residence.EndUse()) return;
    try {
      Engine::Get().RequestUnload(model);
    } catch (const std::exception&) {
      // The engine is stopping, and every model ends.
    }
  };
  return {model.get(), end};
}

void Engine::KeepCanary(uint64_t id, Canary canary) {
  auto kept = std::make_shared<const Canary>(std::move(canary));
  const std::shared_ptr<Model> model = Find(id);
  const std::lock_guard lock(mutex_);
  model->canary = std::move(kept);
}

void Engine::LeaveIdle(Clock::duration idle) {
  const Clock::time_point since = Clock::now() - idle;
  for (const ModelPtr& model : Models()) {
    RetryFailed(model);
    const auto unused = model->residence.UnusedSince();
    if (!model->Evictable() || !unused || *unused > since) continue;
    try {
      housekeeping_.Submit(std::make_shared<FunctionTask>(
          [this, model, since](const TaskContext&) { Unload(model, since); }));
    } catch (const EngineError&) {
      // The engine is stopping.
    }
  }
}

void Engine::RetryFailed(const ModelPtr& model) {
  const Residence::Figures figures = model->residence.Get();
  if (figures.state != Residence::State::kUnloaded || !figures.failure) return;
  const auto pending = std::make_shared<Residence::PendingUse>(nullptr);
  pending->resume = [here = pending.get(), model] {
    if (here->entered) UseOf(model);
  };
  if (model->residence.Wait(pending)) RequestReload(model, Priority::kBulk);
}

void Engine::RequestReload(const ModelPtr& model, Priority priority) {
  try {
    // Those who wait for the model get the failure, whatever it is.
    const auto task = std::make_shared<FunctionTask>(
        [this, model](const TaskContext& context) { Reload(model, context); },
        [model](const Failure& failure) { model->residence.LoadFailed(failure); });
    task->priority = priority;
    housekeeping_.Submit(task);
  } catch (const std::exception&) {
    model->residence.LoadFailed(Failure::Caught());
  }
}

void Engine::RequestUnload(const ModelPtr& model) {
  housekeeping_.Submit(std::make_shared<FunctionTask>(
      [this, model](const TaskContext&) { Unload(model, Clock::time_point::min()); }));
}

bool Engine::Unload(const ModelPtr& model, Clock::time_point unused_since) {
  if (!model->residence.BeginUnload(unused_since)) return false;
  if (model->device != nullptr) model->device->Clear(model->id);
  model->session->Unload();
  if (model->settings.OnGpu()) {
    ShrinkGpu(model->settings.device);
    RefreshGpus();
  }
  // Those that waited for the room come first, and then the model again, if it is wanted already.
  const bool wanted = model->residence.Unloaded();
  RoomMade();
  if (wanted) RequestReload(model, Priority::kRoutine);
  return true;
}

void Engine::RoomMade() {
  std::vector<ModelPtr> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(awaiting_room_);
  }
  for (const ModelPtr& model : waiting) RequestReload(model, Priority::kRoutine);
}

std::vector<ModelPtr> Engine::EvictableOn(const SessionSettings& place) {
  std::vector<ModelPtr> models = Models();
  std::erase_if(models, [&](const ModelPtr& model) {
    const Residence::State state = model->residence.Get().state;
    const bool here = state == Residence::State::kLoaded || state == Residence::State::kDraining;
    return !here || !model->Evictable() || !SamePlace(model->settings, place);
  });
  return models;
}

bool Engine::ForgoLanes() {
  bool any = false;
  for (const ModelPtr& model : Models())
    any = (model->batcher != nullptr && model->batcher->ForgoLanes(model->id)) || any;
  return any;
}

bool Engine::EvictUnused(const SessionSettings& place) {
  if (place.OnGpu() && ForgoLanes()) return true;
  std::vector<std::pair<Clock::time_point, ModelPtr>> unused;
  for (ModelPtr& model : EvictableOn(place)) {
    if (const auto since = model->residence.UnusedSince())
      unused.emplace_back(*since, std::move(model));
  }
  std::ranges::sort(unused, {}, &std::pair<Clock::time_point, ModelPtr>::first);
  // One that somebody has begun to use meanwhile stays.
  return std::ranges::any_of(
      unused, [this](const auto& entry) { return Unload(entry.second, Clock::time_point::max()); });
}

bool Engine::DrainOne(const SessionSettings& place) {
  std::vector<ModelPtr> models = EvictableOn(place);
  const auto leaving = [](const ModelPtr& model) {
    return model->residence.Get().state == Residence::State::kDraining;
  };
  if (std::ranges::any_of(models, leaving)) return true;
  std::ranges::sort(models, {},
                    [](const ModelPtr& model) { return model->residence.Get().loaded; });
  const auto drained =
      std::ranges::find_if(models, [](const ModelPtr& model) { return model->residence.Drain(); });
  if (drained == models.end()) return false;
  // Its last use may have ended just before.
  RequestUnload(*drained);
  return true;
}

void Engine::LoadWithRoom(const SessionSettings& settings, const std::function<void()>& load) {
  for (;;) {
    try {
      load();
      return;
    } catch (const NoRoomToLoad&) {
      if (!EvictUnused(settings)) throw;
    }
  }
}

bool Engine::HasRoomOnCpu(const SessionSettings& place, size_t weights) {
  size_t here = 0;
  for (const ModelPtr& model : EvictableOn(place)) here += model->session->Weights();
  return here == 0 || here + weights <= weights_limit_;
}

bool Engine::MakeRoomOnCpu(const SessionSettings& place, size_t weights) {
  while (!HasRoomOnCpu(place, weights)) {
    if (!EvictUnused(place)) return false;
  }
  return true;
}

bool Engine::CouldHaveRoom(const GpuUse& use, size_t weights) {
  SessionSettings place;
  place.provider = Provider::kCuda;
  place.device = use.device;
  size_t room = use.Room();
  for (const ModelPtr& model : EvictableOn(place)) {
    if (model->residence.UnusedSince()) room += model->session->Weights();
  }
  return !use.lost && room >= weights;
}

bool Engine::AwaitRoom(const ModelPtr& model) {
  if (!DrainOne(model->settings)) return false;
  const std::lock_guard lock(mutex_);
  awaiting_room_.push_back(model);
  return true;
}

void Engine::Reload(const ModelPtr& model, const TaskContext& context) {
  if (!model->residence.HasPending()) return;
  const auto begun = Clock::now();
  const SessionSettings& settings = model->settings;
  const bool cuda = settings.OnGpu();
  const size_t weights = model->session->Weights();
  while (!cuda && !MakeRoomOnCpu(settings, weights)) {
    if (AwaitRoom(model)) return;
  }
  try {
    if (cuda) ChooseGpu(std::span(&settings.device, 1), weights, settings.device_memory);
    LoadWithRoom(settings, [&] { model->session->Reload(); });
  } catch (const NoRoomToLoad&) {
    if (!AwaitRoom(model)) throw;
    return;
  }
  std::shared_ptr<const Canary> canary;
  {
    const std::lock_guard lock(mutex_);
    canary = model->canary;
  }
  try {
    if (canary != nullptr) CheckCanary(model, *canary, context);
  } catch (...) {
    if (model->device != nullptr) model->device->Clear(model->id);
    model->session->Unload();
    throw;
  }
  if (cuda) RefreshGpus();
  model->residence.Loaded(Clock::now() - begun);
}

}  // namespace radserve
