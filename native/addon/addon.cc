/// The exports of the addon: plain JavaScript objects in, requests out. All of it runs on the
/// thread of JavaScript that calls it. The arrays that a request reads stay referenced until its
/// promise is settled or the environment closes.
#include <napi.h>

#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "addon/convert.h"
#include "addon/environment.h"
#include "base/error.h"
#include "engine/engine.h"
#include "engine/requests.h"
#include "engine/volume_plan.h"
#include "postprocess/kind.h"
#include "runtime/run_memory.h"

namespace radserve {
namespace {

Environment& Here(const Napi::CallbackInfo& info) {
  return *info.Env().GetInstanceData<Environment>();
}

/// Lets no exception but Napi::Error reach Node.
Napi::Value Guarded(const Export& called, const Napi::CallbackInfo& info) {
  try {
    return called.call(info);
  } catch (const EngineError& e) {
    throw MakeError(info.Env(), Failure::Of(e));
  } catch (const Napi::Error&) {
    throw;
  } catch (const std::exception& e) {
    throw MakeError(info.Env(), {"internal", e.what()});
  }
}

/// The number that the caller gave first.
int64_t First(const Napi::CallbackInfo& info) { return info[0].As<Napi::Number>().Int64Value(); }

std::shared_ptr<Model> ModelOf(const Napi::CallbackInfo& info) {
  return Engine::Get().Find(static_cast<uint64_t>(First(info)));
}

void ReadLimits(const Given& o, Task& task) {
  if (o.Has("timeoutMs")) {
    task.deadline = Clock::now() +
                    std::chrono::microseconds(static_cast<int64_t>(o.Number("timeoutMs") * 1000));
  }
  if (o.Has("cancelId")) task.cancel_id = static_cast<uint64_t>(o.Number("cancelId"));
}

void ReadOptions(const Given& o, Task& task) {
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

Napi::Value Start(const Napi::CallbackInfo& info) {
  const Engine& engine = Engine::Start(Given(info[0]).Int("threads"));
  const Napi::Env env = info.Env();
  const auto text = [&](const std::string& name) { return Napi::String::New(env, name); };
  return WriteFields(env, "onnxRuntimeVersion", RuntimeVersion(), "providers",
                     WriteList(env, AvailableProviders(), text), "threads", engine.threads());
}

Napi::Value CudaProblemText(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), CudaProblem(static_cast<int>(First(info))));
}

Napi::Value Inspect(const Napi::CallbackInfo& info) {
  auto request = std::make_shared<InspectRequest>();
  request->path = info[0].As<Napi::String>().Utf8Value();
  return Submit(info, Engine::Get().housekeeping(), request, [](Napi::Env env, InspectRequest& r) {
    Napi::Object graph = WriteGraph(env, r.graph);
    Napi::Object metadata = Napi::Object::New(env);
    for (const auto& [key, value] : r.graph.metadata) metadata.Set(key, value);
    SetFields(graph, "float16", r.graph.float16, "metadata", metadata);
    return graph;
  });
}

Napi::Value Load(const Napi::CallbackInfo& info) {
  const Given o(info[0]);
  auto request = std::make_shared<LoadRequest>();
  ReadLimits(o, *request);
  request->paths =
      o.List("paths", [](const Given& path) { return path.Get<std::string>("paths"); });
  request->mean_after_activation = o.Flag("meanAfterActivation");
  request->model = MakeModel();
  Model& model = *request->model;
  const std::vector<std::string> roles =
      o.List("roles", [](const Given& role) { return role.Get<std::string>("roles"); });
  model.inputs = o.List("inputs", [&](const Given& input) {
    return ReadInputSpec(ReadDescription(input.value()), roles);
  });
  model.outputs = o.List("outputs", [&](const Given& output) {
    return ReadOutputSpec(ReadDescription(output.value()), model.inputs);
  });
  model.environment = Here(info).id();
  o.Into("name", model.name, "version", model.version);
  if (o.Has("tiling")) model.tiling = ReadTilingSpec(ReadDescription(o.At("tiling")));
  model.max_batch = o.Int("maxBatch");
  model.settings = ReadSessionSettings(o);
  request->gpus = o.Ints("gpus");
  return Submit(info, Engine::Get().housekeeping(), request, [](Napi::Env env, LoadRequest& r) {
    Napi::Object loaded = WriteGraph(env, r.model->session->graph());
    loaded.Set("id", r.id);
    if (r.model->settings.provider == Provider::kCuda) loaded.Set("gpu", r.model->settings.device);
    loaded.Set("sessions", WriteSessions(env, r.model->session->Memory()));
    // The registry alone decides how long the session lives.
    r.model.reset();
    return loaded;
  });
}

Napi::Value KeepCanary(const Napi::CallbackInfo& info) {
  const Given o(info[1]);
  Engine::Get().KeepCanary(static_cast<uint64_t>(First(info)),
                           {o.List("feeds", ReadOwnTensor), o.List("expected", ReadOwnTensor),
                            o.Number("absolute"), o.Number("relative")});
  return info.Env().Undefined();
}

Napi::Value LeaveIdle(const Napi::CallbackInfo& info) {
  Engine::Get().LeaveIdle(std::chrono::milliseconds(First(info)));
  return info.Env().Undefined();
}

Napi::Value Unload(const Napi::CallbackInfo& info) {
  Environment& here = Here(info);
  const auto [ticket, promise] =
      here.Expect([](Napi::Env env) -> Napi::Value { return env.Undefined(); }, Napi::Value());
  const auto post = [client = here.client(), ticket = ticket] {
    client->Post(ticket, std::nullopt);
  };
  std::shared_ptr<Model> model = Engine::Get().Remove(static_cast<uint64_t>(First(info)));
  if (model == nullptr) {
    post();
  } else {
    model->released = post;
  }
  return promise;
}

/// The arrays of planes or tensors, in a list of our own: the caller may change its own while the
/// engine reads.
Napi::Array DataOf(const Napi::Array& given) {
  Napi::Array arrays = Napi::Array::New(given.Env(), given.Length());
  for (uint32_t i = 0; i < given.Length(); ++i) {
    const Napi::HandleScope scope(given.Env());
    arrays.Set(i, given.Get(i).As<Napi::Object>().Get("data"));
  }
  return arrays;
}

Napi::Value Infer(const Napi::CallbackInfo& info) {
  const auto planes = info[1].As<Napi::Array>();
  const Given options(info[2]);
  auto request = std::make_shared<InferRequest>();
  request->model = ModelOf(info);
  request->flow = request->model->id;
  std::vector<Plane> read;
  for (uint32_t i = 0; i < planes.Length(); ++i) {
    const Napi::HandleScope scope(info.Env());
    read.push_back(ReadPlane(Given(planes.Get(i))));
  }
  const size_t centre = options.Has("centre") ? static_cast<size_t>(options.Int("centre")) : 0;
  request->SetPlanes(std::move(read), ReadGeometry(options), centre);
  request->SetSources(ReadSources(options));
  request->SetNumbers(
      ReadNumberLists(options, "numbers").value_or(std::vector<std::vector<double>>()));
  if (options.Has("labels")) {
    const std::span<const uint8_t> labels = options.Bytes("labels");
    request->labels.assign(labels.begin(), labels.end());
  }
  request->SetThresholds(ReadNumberLists(options, "thresholds"));
  ReadOptions(options, *request);
  request->dump = options.Flag("dump");
  return Submit(info, Engine::Get().work(), request, WriteInference, DataOf(planes));
}

Napi::Value RunTensors(const Napi::CallbackInfo& info) {
  auto request = std::make_shared<TensorRequest>();
  const Given options(info[1]);
  request->model = ModelOf(info);
  request->flow = request->model->id;
  request->feeds = options.List("feeds", ReadTensor);
  ReadOptions(options, *request);
  const auto answer = [](Napi::Env env, TensorRequest& r) { return WriteTensors(env, r.outputs); };
  return Submit(info, Engine::Get().work(), request, answer,
                DataOf(options.At("feeds").As<Napi::Array>()));
}

Napi::Value Render(const Napi::CallbackInfo& info) {
  auto request = std::make_shared<RenderRequest>();
  const Given options(info[1]);
  request->plane = ReadPlane(Given(info[0]));
  options.Into("voiIndex", request->voi_index, "width", request->width, "height", request->height);
  const auto answer = [](Napi::Env env, RenderRequest& r) {
    return WriteTensor(env, r.picture).Get("data");
  };
  return Submit(info, Engine::Get().work(), request, answer,
                info[0].As<Napi::Object>().Get("data"));
}

Napi::Value Cancel(const Napi::CallbackInfo& info) {
  const auto id = static_cast<uint64_t>(First(info));
  Engine::Get().work().Cancel(id);
  Engine::Get().housekeeping().Cancel(id);
  return info.Env().Undefined();
}

Napi::Value ProgressOf(const Napi::CallbackInfo& info) {
  const auto progress = Engine::Get().ProgressOf(static_cast<uint64_t>(First(info)));
  if (!progress) return info.Env().Undefined();
  return WriteFields(info.Env(), "done", progress->first, "windows", progress->second);
}

Napi::Value PlanOf(const Napi::CallbackInfo& info) {
  const auto model = ModelOf(info);
  const Given o(info[1]);
  const auto geometry = ReadGeometry(o);
  const std::array<int, 3> sides = {o.Int("slices"), o.Int("rows"), o.Int("columns")};
  return Napi::Number::New(info.Env(), geometry ? BytesOfPlan(*model, sides, *geometry) : 0);
}

Napi::Value RunBytes(const Napi::CallbackInfo& info) {
  const auto model = ModelOf(info);
  const size_t pixels = model->SizeOf(Whole(info[1], 0, "pixels"));
  return Napi::Number::New(info.Env(), static_cast<double>(model->seen.Expected(pixels)));
}

Napi::Value RunMemoryNow(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), static_cast<double>(RunMemory()));
}

Napi::Value LimitRuns(const Napi::CallbackInfo& info) {
  LimitRunMemory(Whole(info[0], 0, "bytes"));
  return info.Env().Undefined();
}

Napi::Value LimitWeights(const Napi::CallbackInfo& info) {
  Engine::Get().LimitWeights(Whole(info[0], 0, "bytes"));
  return info.Env().Undefined();
}

Napi::Value GetStats(const Napi::CallbackInfo& info) {
  return WriteStats(info.Env(), Engine::Get());
}

/// Takes milliseconds for a hundred MiB, and so does not run on the thread that asks. The engine is
/// never ended.
Napi::Value GiveBack(const Napi::CallbackInfo& info) {
  const auto give = [] {
    Engine* const engine = Engine::Started();
    if (engine != nullptr) engine->GiveBack();
    return engine != nullptr;
  };
  BackgroundWork<bool>::Begin(info.Env(), "giveBack", give,
                              [](Napi::Env env, bool&) -> Napi::Value { return env.Undefined(); });
  return info.Env().Undefined();
}

Napi::Object Init(Napi::Env env, Napi::Object exports) {
  env.SetInstanceData(std::make_unique<Environment>(env).release());
  for (const auto& functions : {EngineExports(), FileExports(), PixelExports(), PictureExports()}) {
    for (const Export& each : functions) {
      const auto call = [&each](const Napi::CallbackInfo& info) { return Guarded(each, info); };
      exports.Set(each.name, Napi::Function::New(env, call, each.name));
    }
  }
  return exports;
}

}  // namespace

std::span<const Export> EngineExports() {
  static constexpr Export kExports[] = {{"start", Start},
                                        {"cudaProblem", CudaProblemText},
                                        {"inspect", Inspect},
                                        {"load", Load},
                                        {"keepCanary", KeepCanary},
                                        {"leaveIdle", LeaveIdle},
                                        {"unload", Unload},
                                        {"infer", Infer},
                                        {"runTensors", RunTensors},
                                        {"render", Render},
                                        {"cancel", Cancel},
                                        {"progress", ProgressOf},
                                        {"plan", PlanOf},
                                        {"giveBack", GiveBack},
                                        {"runBytes", RunBytes},
                                        {"limitRuns", LimitRuns},
                                        {"limitWeights", LimitWeights},
                                        {"runMemory", RunMemoryNow},
                                        {"stats", GetStats}};
  return kExports;
}

}  // namespace radserve

static Napi::Object InitAddon(Napi::Env env, Napi::Object exports) {
  return radserve::Init(env, exports);
}

NODE_API_MODULE(addon, InitAddon)
