/// Models that leave while nobody uses them, and come back: Engine's part of Residence.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"

namespace radserve {
namespace {

using ModelPtr = std::shared_ptr<const Model>;

class AwayTask : public Task {
 public:
  explicit AwayTask(std::function<void()> run) : run_(std::move(run)) {}
  void Run(const Lane&) override { run_(); }
  void Done(const std::optional<Failure>&) noexcept override {}

 private:
  std::function<void()> run_;
};

class BackTask : public Task {
 public:
  BackTask(ModelPtr model, std::function<void()> run) : model_(std::move(model)), run_(std::move(run)) {}
  void Run(const Lane&) override { run_(); }
  /// Whatever keeps the model away, those who wait for it hear it.
  void Done(const std::optional<Failure>& failure) noexcept override {
    if (failure) model_->residence.CouldNotCome(*failure);
  }

 private:
  ModelPtr model_;
  std::function<void()> run_;
};

bool SamePlace(const SessionSettings& a, const SessionSettings& b) {
  return a.provider == b.provider && (a.provider == Provider::kCpu || a.device == b.device);
}

}  // namespace

std::shared_ptr<const void> UseOf(const std::shared_ptr<const Model>& model) {
  const auto end = [model](const void*) {
    if (!model->residence.Exit()) return;
    try {
      Engine::Get().AskAway(model);
    } catch (const std::exception&) {
      // The engine is stopping, and everything leaves.
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
    TryAgain(model);
    const auto unused = model->residence.UnusedSince();
    if (!model->MayLeave() || !unused || *unused > since) continue;
    try {
      housekeeping_.Submit(std::make_shared<AwayTask>([this, model, since] { TakeAway(model, since); }));
    } catch (const EngineError&) {
      // The engine is stopping.
    }
  }
}

void Engine::TryAgain(const ModelPtr& model) {
  const Residence::Figures figures = model->residence.Get();
  if (figures.state != Residence::State::kAway || !figures.failure) return;
  const auto waiter = std::make_shared<Residence::Waiter>(nullptr);
  waiter->resume = [here = waiter.get(), model] {
    if (here->entered) UseOf(model);
  };
  if (model->residence.Wait(waiter)) AskBack(model, Priority::kBulk);
}

void Engine::AskBack(const ModelPtr& model, Priority priority) {
  try {
    const auto task = std::make_shared<BackTask>(model, [this, model] { BringBack(model); });
    task->priority = priority;
    housekeeping_.Submit(task);
  } catch (const std::exception&) {
    model->residence.CouldNotCome(Failure::Caught());
  }
}

void Engine::AskAway(const ModelPtr& model) {
  housekeeping_.Submit(
      std::make_shared<AwayTask>([this, model] { TakeAway(model, Clock::time_point::min()); }));
}

bool Engine::TakeAway(const ModelPtr& model, Clock::time_point unused_since) {
  if (!model->residence.BeginLeaving(unused_since)) return false;
  if (model->device != nullptr) model->device->Clear(model->id);
  model->session->Leave();
  if (model->settings.provider == Provider::kCuda) {
    ShrinkGpu(model->settings.device);
    LookAtGpus();
  }
  if (model->residence.Left()) AskBack(model, Priority::kRoutine);
  RoomMade();
  return true;
}

void Engine::RoomMade() {
  std::vector<ModelPtr> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(want_room_);
  }
  for (const ModelPtr& model : waiting) AskBack(model, Priority::kRoutine);
}

void Engine::WaitForRoom(const ModelPtr& model) {
  const std::lock_guard lock(mutex_);
  want_room_.push_back(model);
}

std::vector<ModelPtr> Engine::ModelsAt(const SessionSettings& place) {
  std::vector<ModelPtr> models = Models();
  std::erase_if(models, [&](const ModelPtr& model) {
    const Residence::State state = model->residence.Get().state;
    const bool here = state == Residence::State::kHere || state == Residence::State::kLeaving;
    return !here || !model->MayLeave() || !SamePlace(model->settings, place);
  });
  return models;
}

bool Engine::TakeUnused(const SessionSettings& place) {
  std::vector<std::pair<Clock::time_point, ModelPtr>> unused;
  for (ModelPtr& model : ModelsAt(place)) {
    if (const auto since = model->residence.UnusedSince()) unused.emplace_back(*since, std::move(model));
  }
  std::ranges::sort(unused, {}, &std::pair<Clock::time_point, ModelPtr>::first);
  // One that somebody has begun to use meanwhile stays.
  return std::ranges::any_of(
      unused, [this](const auto& entry) { return TakeAway(entry.second, Clock::time_point::max()); });
}

bool Engine::DrainOne(const SessionSettings& place) {
  std::vector<ModelPtr> models = ModelsAt(place);
  const auto leaving = [](const ModelPtr& model) {
    return model->residence.Get().state == Residence::State::kLeaving;
  };
  if (std::ranges::any_of(models, leaving)) return true;
  std::ranges::sort(models, {}, [](const ModelPtr& model) { return model->residence.Get().loaded; });
  const auto drained =
      std::ranges::find_if(models, [](const ModelPtr& model) { return model->residence.Drain(); });
  if (drained == models.end()) return false;
  // Its last use may have ended just before.
  AskAway(*drained);
  return true;
}

void Engine::LoadWithRoom(const SessionSettings& settings, const std::function<void()>& load) {
  for (;;) {
    try {
      load();
      return;
    } catch (const NoRoomToLoad&) {
      if (!TakeUnused(settings)) throw;
    }
  }
}

bool Engine::CouldHaveRoom(const GpuUse& use, size_t weights) {
  SessionSettings place;
  place.provider = Provider::kCuda;
  place.device = use.device;
  size_t room = use.Room();
  for (const ModelPtr& model : ModelsAt(place)) {
    if (model->residence.UnusedSince()) room += model->session->Weights();
  }
  return !use.lost && room >= weights;
}

bool Engine::RoomFor(const Model& model) {
  const SessionSettings& settings = model.settings;
  if (settings.provider == Provider::kCpu) return true;
  const size_t weights = model.session->Weights();
  for (;;) {
    const GpuUse use = UseOfGpu(settings.device, settings.device_memory);
    // A GPU that is lost says so when it is asked to load.
    if (use.lost || use.Room() >= weights) return true;
    if (TakeUnused(settings)) continue;
    if (DrainOne(settings)) return false;
    throw EngineError("model_unavailable",
                      "Expected room for " + std::to_string(weights) +
                          " bytes of weights on the GPU that the model comes back to, found " +
                          std::to_string(use.Room()) +
                          ", and no other model of this server is there. Look at "
                          "nvidia-smi for what has taken its memory, or set a larger RADSERVE_GPU_MEMORY.");
  }
}

void Engine::BringBack(const ModelPtr& model) {
  if (!model->residence.StillWanted()) return;
  const auto begun = Clock::now();
  if (!RoomFor(*model)) {
    WaitForRoom(model);
    return;
  }
  try {
    LoadWithRoom(model->settings, [&] { model->session->Return(); });
  } catch (const NoRoomToLoad&) {
    if (!DrainOne(model->settings)) throw;
    WaitForRoom(model);
    return;
  }
  std::shared_ptr<const Canary> canary;
  {
    const std::lock_guard lock(mutex_);
    canary = model->canary;
  }
  try {
    if (canary != nullptr) CheckCanary(*model->session, *canary);
  } catch (...) {
    model->session->Leave();
    throw;
  }
  if (model->settings.provider == Provider::kCuda) LookAtGpus();
  model->residence.Came(Clock::now() - begun);
}

}  // namespace radserve
