#include <array>
#include <chrono>

#include "addon/values.h"

namespace radserve {
namespace {

constexpr std::array<const char*, kPriorities> kClasses = {"stat", "routine", "bulk"};

Napi::Object WriteCounts(Napi::Env env, const Agenda::Counts& counts) {
  Napi::Object o = Napi::Object::New(env);
  for (size_t i = 0; i < kPriorities; ++i) o.Set(kClasses[i], static_cast<double>(counts[i]));
  return o;
}

template <size_t size>
Napi::Object WriteHistogram(Napi::Env env, const Histogram<size>& histogram) {
  return WriteFields(env, "ends", WriteNumbers(env, histogram.Ends()), "counts",
                     WriteNumbers(env, histogram.counts()), "sum", histogram.sum());
}

Napi::Object WriteResidence(Napi::Env env, const Residence::Figures& figures) {
  using State = Residence::State;
  const bool here = figures.state == State::kLoaded || figures.state == State::kDraining;
  const char* const state = here                                ? "loaded"
                            : figures.state == State::kUnloaded ? "idle"
                                                                : "returning";
  Napi::Object o = WriteFields(env, "state", state, "loads", figures.loads, "loadSeconds",
                               std::chrono::duration<double>(figures.load_time).count());
  if (figures.failure) o.Set("problem", figures.failure->message);
  return o;
}

Napi::Object WriteFlow(Napi::Env env, const Model& model, const Agenda::FlowStats& flow) {
  Napi::Object o = WriteFields(env, "id", model.id, "name", model.name, "version", model.version,
                               "batched", model.batcher != nullptr);
  if (model.batcher != nullptr) o.Set("lanes", static_cast<double>(model.batcher->Lanes(model.id)));
  if (model.settings.OnGpu()) o.Set("gpu", model.settings.device);
  Napi::Object waits = Napi::Object::New(env);
  for (size_t i = 0; i < kPriorities; ++i)
    waits.Set(kClasses[i], WriteHistogram(env, flow.wait[i]));
  const RunStats::Figures runs = model.runs.Get();
  SetFields(o, "queued", WriteCounts(env, flow.queued), "started", WriteCounts(env, flow.started),
            "completed", flow.completed, "failed", flow.failed, "late", flow.late_runs, "refused",
            WriteFields(env, "deadline", flow.late), "waitSeconds", waits, "batchSizes",
            WriteHistogram(env, runs.batches), "runSeconds", WriteHistogram(env, runs.run),
            "gatheredBatches", runs.gathered, "sessions",
            WriteSessions(env, model.session->Memory()), "residence",
            WriteResidence(env, model.residence.Get()));
  return o;
}

Napi::Object WriteGpu(Napi::Env env, const GpuUse& use, size_t waiting) {
  return WriteFields(env, "number", use.device, "lost", use.lost, "waiting", waiting, "takenBytes",
                     use.taken, "limitBytes", use.limit, "freeBytes", use.free, "totalBytes",
                     use.total);
}

}  // namespace

Napi::Object WriteStats(Napi::Env env, Engine& engine) {
  const Scheduler::Stats stats = engine.work().GetStats();
  const auto gpu = [&](const std::pair<GpuUse, size_t>& each) {
    return WriteGpu(env, each.first, each.second);
  };
  const auto flow = [&](const std::shared_ptr<const Model>& model) {
    const auto found = stats.flows.find(model->id);
    return WriteFlow(env, *model, found == stats.flows.end() ? Agenda::FlowStats() : found->second);
  };
  return WriteFields(env, "running", stats.running, "parked", stats.parked, "late", stats.late_runs,
                     "threads", engine.threads(), "gpus", WriteList(env, engine.Gpus(), gpu),
                     "models", WriteList(env, engine.Models(), flow));
}

}  // namespace radserve
