#include "graph/engine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>

#include "base/error.h"
#include "graph/client.h"
#include "runtime/cuda.h"
#include "runtime/ort.h"

namespace radserve {
namespace {

constexpr auto kExitPatience = std::chrono::seconds(5);

/// The one Engine of the process, under a lock; leaked on purpose.
struct Shared {
  std::mutex mutex;
  std::unique_ptr<Engine> engine;
};

Shared& TheShared() {
  static auto& shared = *std::make_unique<Shared>().release();
  return shared;
}

/// process.exit and uncaught errors run exit handlers while engine threads work. They must be out
/// of ONNX Runtime before its static objects go; if one does not come back in time, the process
/// ends without destructors.
void StopAtExit(int status, void*) {
  Client::SilenceAll();
  Engine* engine = Engine::Started();
  if (engine != nullptr && !engine->Stop(kExitPatience)) _exit(status);
}

/// If the engine stops before the model has ended, whoever stops it ends the model.
void Release(Model* model) noexcept {
  try {
    std::shared_ptr<Model> owned(model);
    Engine* engine = Engine::Started();
    if (engine == nullptr) return;
    engine->housekeeping().Submit(std::make_shared<FunctionTask>(
        [owned = std::move(owned)](const TaskContext&) mutable { owned.reset(); }));
  } catch (const std::exception&) {
    // The engine takes no new work, or there is no memory for the task: the model has ended here.
  }
}

}  // namespace

std::shared_ptr<Model> ShareModel(std::unique_ptr<Model> model) {
  return {model.release(), Release};
}

Engine::Engine(int threads) : threads_(threads), work_(threads, true), housekeeping_(1) {}

Engine& Engine::Start(int threads) {
  Shared& shared = TheShared();
  const std::lock_guard lock(shared.mutex);
  if (!shared.engine) {
    StartRuntime();
    shared.engine = std::make_unique<Engine>(threads);
    on_exit(StopAtExit, nullptr);
  }
  return *shared.engine;
}

Engine& Engine::Get() {
  Engine* engine = Started();
  if (engine == nullptr)
    throw EngineError("internal", "The engine was used before it was started.");
  return *engine;
}

Engine* Engine::Started() {
  Shared& shared = TheShared();
  const std::lock_guard lock(shared.mutex);
  return shared.engine.get();
}

void Engine::Keep(std::shared_ptr<Model> model) {
  const std::lock_guard lock(mutex_);
  models_.emplace(model->id, std::move(model));
}

uint64_t Engine::NewId() {
  const std::lock_guard lock(mutex_);
  return next_id_++;
}

void Engine::Forget(const Model& model) {
  work_.Forget(model.id);
  if (model.batcher == nullptr) return;
  model.batcher->RemoveModel(model.id);
  model.device->RemoveModel(model.id);
}

int Engine::ChooseGpu(std::span<const int> gpus, size_t weights, size_t limit) {
  const auto waiting = [this](int gpu) {
    const std::lock_guard lock(mutex_);
    const auto found = places_.find(gpu);
    return found == places_.end() ? 0 : found->second.batcher->Waiting();
  };
  std::string found;
  for (bool may_fit = true; may_fit;) {
    std::optional<GpuUse> best;
    std::optional<int> could;
    size_t least = 0;
    found.clear();
    for (const int gpu : gpus) {
      const GpuUse use = UseOfGpu(gpu, limit);
      found += (found.empty() ? "" : ", ") + std::string("GPU ") + std::to_string(gpu) +
               (use.lost ? " is lost" : " has " + std::to_string(use.Room()));
      if (!could && CouldHaveRoom(use, weights)) could = gpu;
      if (use.lost || use.Room() < weights) continue;
      const size_t rows = waiting(gpu);
      if (best && (rows > least || (rows == least && use.Room() <= best->Room()))) continue;
      best = use;
      least = rows;
    }
    if (best) return best->device;
    SessionSettings place;
    place.provider = Provider::kCuda;
    place.device = could.value_or(0);
    may_fit = ForgoLanes() || (could && EvictUnused(place));
  }
  const std::string why =
      "Expected room for " + std::to_string(weights) + " bytes of weights on a GPU; " + found +
      ". Use fewer or smaller models, another GPU, or a larger RADSERVE_GPU_MEMORY; "
      "nvidia-smi shows what else is there.";
  // Nobody makes room on a GPU that is lost.
  if (std::ranges::all_of(gpus, GpuLost)) throw EngineError("model_unavailable", why);
  throw NoRoomToLoad("model_unavailable", why);
}

std::vector<std::pair<GpuUse, size_t>> Engine::Gpus() {
  std::vector<std::pair<GpuUse, size_t>> gpus;
  bool look = false;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, place] : places_) {
      if (number == kCpu) continue;
      gpus.emplace_back(place.use, place.batcher->Waiting());
      gpus.back().first.lost = GpuLost(number);
    }
    look = !gpus.empty() && !std::exchange(refreshing_, true);
  }
  if (!look) return gpus;
  try {
    housekeeping_.Submit(
        std::make_shared<FunctionTask>([this](const TaskContext&) { RefreshGpus(); }));
  } catch (const EngineError&) {
    // The engine is stopping.
  }
  return gpus;
}

void Engine::RefreshGpus() {
  std::vector<GpuUse> uses;
  {
    const std::lock_guard lock(mutex_);
    refreshing_ = false;
    for (const auto& [number, place] : places_) {
      if (number != kCpu) uses.push_back(place.use);
    }
  }
  for (GpuUse& use : uses) {
    use = UseOfGpu(use.device, use.limit);
    const std::lock_guard lock(mutex_);
    places_.at(use.device).use = use;
  }
}

std::vector<std::shared_ptr<const Model>> Engine::Models() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const Model>> models;
  for (const auto& [id, model] : models_) models.push_back(model);
  return models;
}

void Engine::GiveBack() { ReturnMemory(); }

std::shared_ptr<Model> Engine::Find(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(id);
  if (found == models_.end()) {
    throw EngineError("model_unavailable", "The engine has no model number " + std::to_string(id) +
                                               "; it was never loaded or has been unloaded.");
  }
  return found->second;
}

std::shared_ptr<Model> Engine::Hold(const std::string& key, uint64_t environment) {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, model] : models_) {
    if (key.empty() || model->key != key) continue;
    ++model->holders[environment];
    return model;
  }
  return nullptr;
}

std::shared_ptr<Model> Engine::LetGo(uint64_t id, uint64_t environment) {
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(id);
  if (found == models_.end()) return nullptr;
  auto& holders = found->second->holders;
  const auto own = holders.find(environment);
  if (own != holders.end() && --own->second == 0) holders.erase(own);
  return holders.empty() ? std::move(models_.extract(found).mapped()) : nullptr;
}

void Engine::RemoveEnvironment(uint64_t environment) {
  work_.CancelEnvironment(environment);
  housekeeping_.CancelEnvironment(environment);
  std::vector<std::shared_ptr<Model>> gone;
  const std::lock_guard lock(mutex_);
  std::erase_if(models_, [&](auto& entry) {
    if (entry.second->holders.erase(environment) == 0 || !entry.second->holders.empty())
      return false;
    gone.push_back(std::move(entry.second));
    return true;
  });
}

void Engine::TellProgress(uint64_t cancel_id, const std::optional<Progress>& progress) {
  if (cancel_id == 0) return;
  const std::lock_guard lock(mutex_);
  if (progress) {
    progress_[cancel_id] = *progress;
  } else {
    progress_.erase(cancel_id);
  }
}

std::optional<Engine::Progress> Engine::ProgressOf(uint64_t cancel_id) {
  const std::lock_guard lock(mutex_);
  const auto found = progress_.find(cancel_id);
  return found == progress_.end() ? std::nullopt : std::optional(found->second);
}

bool Engine::Stop(Clock::duration patience) {
  const bool worked = work_.Stop(patience);
  const bool kept = housekeeping_.Stop(patience);
  std::vector<Batcher*> batchers;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, place] : places_) batchers.push_back(place.batcher.get());
  }
  bool idle = true;
  for (Batcher* batcher : batchers) idle = batcher->Stop(patience) && idle;
  return idle && kept && worked;
}

}  // namespace radserve
