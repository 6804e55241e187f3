#include <array>
#include <chrono>
#include <map>
#include <string>

#include "addon/convert.h"

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
  Napi::Array ends = Napi::Array::New(env, size);
  Napi::Array counts = Napi::Array::New(env, size + 1);
  for (uint32_t i = 0; i < size; ++i) ends.Set(i, histogram.Ends()[i]);
  for (uint32_t i = 0; i <= size; ++i) counts.Set(i, static_cast<double>(histogram.counts()[i]));
  Napi::Object o = Napi::Object::New(env);
  o.Set("ends", ends);
  o.Set("counts", counts);
  o.Set("sum", histogram.sum());
  return o;
}

Napi::Object WriteResidence(Napi::Env env, const Residence::Figures& figures) {
  using State = Residence::State;
  Napi::Object o = Napi::Object::New(env);
  const bool here = figures.state == State::kLoaded || figures.state == State::kDraining;
  o.Set("state", here ? "loaded" : figures.state == State::kUnloaded ? "idle" : "returning");
  o.Set("loads", static_cast<double>(figures.loads));
  o.Set("loadSeconds", std::chrono::duration<double>(figures.load_time).count());
  if (figures.failure) o.Set("problem", figures.failure->message);
  return o;
}

Napi::Object WriteFlow(Napi::Env env, const Model& model, const Agenda::FlowStats& flow) {
  Napi::Object o = Napi::Object::New(env);
  o.Set("id", static_cast<double>(model.id));
  o.Set("name", model.name);
  o.Set("version", model.version);
  o.Set("batched", model.batcher != nullptr);
  if (model.batcher != nullptr) o.Set("lanes", static_cast<double>(model.batcher->Lanes(model.id)));
  if (model.settings.provider == Provider::kCuda) o.Set("gpu", model.settings.device);
  o.Set("queued", WriteCounts(env, flow.queued));
  o.Set("started", WriteCounts(env, flow.started));
  o.Set("completed", static_cast<double>(flow.completed));
  o.Set("failed", static_cast<double>(flow.failed));
  Napi::Object refused = Napi::Object::New(env);
  refused.Set("deadline", static_cast<double>(flow.late));
  o.Set("refused", refused);
  Napi::Object waits = Napi::Object::New(env);
  for (size_t i = 0; i < kPriorities; ++i) waits.Set(kClasses[i], WriteHistogram(env, flow.wait[i]));
  o.Set("waitSeconds", waits);
  const RunStats::Figures runs = model.runs.Get();
  o.Set("batchSizes", WriteHistogram(env, runs.batches));
  o.Set("runSeconds", WriteHistogram(env, runs.run));
  o.Set("gatheredBatches", static_cast<double>(runs.gathered));
  o.Set("sessions", WriteSessions(env, model.session->Memory()));
  o.Set("residence", WriteResidence(env, model.residence.Get()));
  return o;
}

Napi::Object WriteGpu(Napi::Env env, const GpuUse& use, size_t waiting) {
  Napi::Object o = Napi::Object::New(env);
  o.Set("number", use.device);
  o.Set("lost", use.lost);
  o.Set("waiting", static_cast<double>(waiting));
  o.Set("takenBytes", static_cast<double>(use.taken));
  o.Set("limitBytes", static_cast<double>(use.limit));
  o.Set("freeBytes", static_cast<double>(use.free));
  o.Set("totalBytes", static_cast<double>(use.total));
  return o;
}

}  // namespace

Napi::Object WriteStats(Napi::Env env, Engine& engine) {
  const Scheduler::Stats stats = engine.work().GetStats();
  Napi::Object o = Napi::Object::New(env);
  o.Set("running", static_cast<double>(stats.running));
  o.Set("parked", static_cast<double>(stats.parked));
  o.Set("gpus", WriteList(env, engine.Gpus(), [&](const std::pair<GpuUse, size_t>& gpu) {
          return WriteGpu(env, gpu.first, gpu.second);
        }));
  o.Set("models", WriteList(env, engine.Models(), [&](const std::shared_ptr<const Model>& model) {
          const auto flow = stats.flows.find(model->id);
          return WriteFlow(env, *model, flow == stats.flows.end() ? Agenda::FlowStats() : flow->second);
        }));
  return o;
}

}  // namespace radserve
