/// The exports of the addon: plain JavaScript objects in, requests out. All of it runs on the thread of
/// JavaScript that calls it. The arrays that a request reads stay referenced until its promise is settled or
/// the environment closes.
#include <napi.h>

#include <array>
#include <chrono>
#include <memory>
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

namespace radserve {
namespace {

Environment& Here(const Napi::CallbackInfo& info) { return *info.Env().GetInstanceData<Environment>(); }

/// Lets no exception but Napi::Error reach Node.
template <Napi::Value (*body)(const Napi::CallbackInfo&)>
Napi::Value Guarded(const Napi::CallbackInfo& info) {
  try {
    return body(info);
  } catch (const EngineError& e) {
    throw MakeError(info.Env(), Failure::Of(e));
  } catch (const Napi::Error&) {
    throw;
  } catch (const std::exception& e) {
    throw MakeError(info.Env(), {"internal", e.what()});
  }
}

void ReadLimits(const Napi::Object& o, Task& task) {
  if (Has(o, "timeoutMs")) {
    task.deadline =
        Clock::now() + std::chrono::microseconds(static_cast<int64_t>(Number(o, "timeoutMs") * 1000));
  }
  if (Has(o, "cancelId")) task.cancel_id = static_cast<uint64_t>(Number(o, "cancelId"));
}

void ReadOptions(const Napi::Object& o, Task& task) {
  task.priority = OneOf<Priority>(
      o, "priority", {{"stat", Priority::kStat}, {"routine", Priority::kRoutine}, {"bulk", Priority::kBulk}});
  ReadLimits(o, task);
}

/// Hands a filled request to a scheduler and gives the promise of its answer.
template <typename T>
Napi::Value Submit(const Napi::CallbackInfo& info, Scheduler& scheduler, const std::shared_ptr<T>& request,
                   Napi::Value (*answer)(Napi::Env, T&), const Napi::Value& read = Napi::Value()) {
  Environment& here = Here(info);
  request->client = here.client();
  request->environment = here.id();
  const auto [ticket, promise] =
      here.Expect([request, answer](Napi::Env env) { return answer(env, *request); }, read);
  request->ticket = ticket;
  try {
    scheduler.Submit(request);
  } catch (const EngineError& e) {
    here.Settle({ticket, Failure::Of(e)});
  }
  return promise;
}

Napi::Value Start(const Napi::CallbackInfo& info) {
  const auto o = info[0].As<Napi::Object>();
  const Engine& engine = Engine::Start(Int(o, "threads"));
  const Napi::Env env = info.Env();
  Napi::Object out = Napi::Object::New(env);
  out.Set("onnxRuntimeVersion", RuntimeVersion());
  out.Set("providers", WriteList(env, AvailableProviders(),
                                 [&](const std::string& name) { return Napi::String::New(env, name); }));
  out.Set("threads", engine.threads());
  return out;
}

Napi::Value CudaProblemText(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), CudaProblem(info[0].As<Napi::Number>().Int32Value()));
}

Napi::Value Inspect(const Napi::CallbackInfo& info) {
  auto request = std::make_shared<InspectRequest>();
  request->path = info[0].As<Napi::String>().Utf8Value();
  return Submit<InspectRequest>(info, Engine::Get().housekeeping(), request,
                                [](Napi::Env env, InspectRequest& r) {
                                  Napi::Object graph = WriteGraph(env, r.graph);
                                  graph.Set("float16", r.graph.float16);
                                  Napi::Object metadata = Napi::Object::New(env);
                                  for (const auto& [key, value] : r.graph.metadata) metadata.Set(key, value);
                                  graph.Set("metadata", metadata);
                                  return Napi::Value(graph);
                                });
}

Napi::Value Load(const Napi::CallbackInfo& info) {
  const auto o = info[0].As<Napi::Object>();
  auto request = std::make_shared<LoadRequest>();
  ReadLimits(o, *request);
  request->paths = List(o, "paths", [](const Napi::Value& v) { return v.As<Napi::String>().Utf8Value(); });
  request->mean_after_activation = Flag(o, "meanAfterActivation");
  request->model = MakeModel();
  request->model->inputs = List(o, "inputs", ReadInput);
  request->model->outputs =
      List(o, "outputs", [](const Napi::Value& v) { return ReadOutputSpec(ReadDescription(v)); });
  request->model->environment = Here(info).id();
  request->model->name = Text(o, "name");
  request->model->version = Text(o, "version");
  if (Has(o, "tiling")) request->model->tiling = ReadTiling(Child(o, "tiling"));
  request->model->max_batch = Int(o, "maxBatch");
  request->model->settings = ReadSessionSettings(o);
  request->gpus = List(o, "gpus", [](const Napi::Value& v) { return v.As<Napi::Number>().Int32Value(); });
  return Submit<LoadRequest>(info, Engine::Get().housekeeping(), request, [](Napi::Env env, LoadRequest& r) {
    Napi::Object loaded = WriteGraph(env, r.model->session->graph());
    loaded.Set("id", static_cast<double>(r.id));
    if (r.model->settings.provider == Provider::kCuda) loaded.Set("gpu", r.model->settings.device);
    loaded.Set("sessions", WriteSessions(env, r.model->session->Memory()));
    // The registry alone decides how long the session lives.
    r.model.reset();
    return Napi::Value(loaded);
  });
}

Napi::Value KeepCanary(const Napi::CallbackInfo& info) {
  const auto o = info[1].As<Napi::Object>();
  Engine::Get().KeepCanary(static_cast<uint64_t>(info[0].As<Napi::Number>().Int64Value()),
                           {List(o, "feeds", ReadOwnTensor), List(o, "expected", ReadOwnTensor),
                            Number(o, "absolute"), Number(o, "relative")});
  return info.Env().Undefined();
}

Napi::Value LeaveIdle(const Napi::CallbackInfo& info) {
  Engine::Get().LeaveIdle(std::chrono::milliseconds(info[0].As<Napi::Number>().Int64Value()));
  return info.Env().Undefined();
}

Napi::Value Unload(const Napi::CallbackInfo& info) {
  Environment& here = Here(info);
  const auto [ticket, promise] =
      here.Expect([](Napi::Env env) -> Napi::Value { return env.Undefined(); }, Napi::Value());
  const auto post = [client = here.client(), ticket = ticket] { client->Post(ticket, std::nullopt); };
  std::shared_ptr<Model> model =
      Engine::Get().Remove(static_cast<uint64_t>(info[0].As<Napi::Number>().Int64Value()));
  if (model == nullptr) {
    post();
  } else {
    model->released = post;
  }
  return promise;
}

/// The arrays of planes or tensors, in a list of our own: the caller may change its own while the engine
/// reads.
Napi::Array DataOf(const Napi::Array& given) {
  Napi::Array arrays = Napi::Array::New(given.Env(), given.Length());
  for (uint32_t i = 0; i < given.Length(); ++i) {
    const Napi::HandleScope scope(given.Env());
    arrays.Set(i, given.Get(i).As<Napi::Object>().Get("data"));
  }
  return arrays;
}

Napi::Value Infer(const Napi::CallbackInfo& info) {
  Engine& engine = Engine::Get();
  const auto planes = info[1].As<Napi::Array>();
  const auto options = info[2].As<Napi::Object>();
  auto request = std::make_shared<InferRequest>();
  request->model = engine.Find(static_cast<uint64_t>(info[0].As<Napi::Number>().Int64Value()));
  request->flow = request->model->id;
  std::vector<Plane> read;
  for (uint32_t i = 0; i < planes.Length(); ++i) {
    const Napi::HandleScope scope(info.Env());
    read.push_back(ReadPlane(planes.Get(i).As<Napi::Object>()));
  }
  const size_t centre = Has(options, "centre") ? static_cast<size_t>(Int(options, "centre")) : 0;
  request->SetPlanes(std::move(read), ReadGeometry(options), centre);
  request->SetSources(ReadSources(options));
  request->SetNumbers(ReadNumberLists(options));
  if (Has(options, "labels")) {
    const auto labels = options.Get("labels").As<Napi::Uint8Array>();
    request->labels.assign(labels.Data(), labels.Data() + labels.ByteLength());
  }
  request->SetThresholds(ReadThresholds(options));
  ReadOptions(options, *request);
  request->dump = options.Get("dump").ToBoolean();
  return Submit<InferRequest>(
      info, engine.work(), request,
      [](Napi::Env env, InferRequest& r) { return Napi::Value(WriteInference(env, r)); }, DataOf(planes));
}

Napi::Value RunTensors(const Napi::CallbackInfo& info) {
  Engine& engine = Engine::Get();
  auto request = std::make_shared<TensorRequest>();
  const auto options = info[1].As<Napi::Object>();
  request->model = engine.Find(static_cast<uint64_t>(info[0].As<Napi::Number>().Int64Value()));
  request->flow = request->model->id;
  request->feeds = List(options, "feeds", ReadTensor);
  ReadOptions(options, *request);
  return Submit<TensorRequest>(
      info, engine.work(), request,
      [](Napi::Env env, TensorRequest& r) { return Napi::Value(WriteTensors(env, r.outputs)); },
      DataOf(options.Get("feeds").As<Napi::Array>()));
}

Napi::Value Render(const Napi::CallbackInfo& info) {
  auto request = std::make_shared<RenderRequest>();
  const auto plane = info[0].As<Napi::Object>();
  const auto options = info[1].As<Napi::Object>();
  request->plane = ReadPlane(plane);
  request->voi_index = Int(options, "voiIndex");
  request->width = Int(options, "width");
  request->height = Int(options, "height");
  return Submit<RenderRequest>(
      info, Engine::Get().work(), request,
      [](Napi::Env env, RenderRequest& r) { return Napi::Value(WriteTensor(env, r.picture).Get("data")); },
      plane.Get("data"));
}

Napi::Value Cancel(const Napi::CallbackInfo& info) {
  const auto id = static_cast<uint64_t>(info[0].As<Napi::Number>().Int64Value());
  Engine::Get().work().Cancel(id);
  Engine::Get().housekeeping().Cancel(id);
  return info.Env().Undefined();
}

Napi::Value ProgressOf(const Napi::CallbackInfo& info) {
  const auto id = static_cast<uint64_t>(info[0].As<Napi::Number>().Int64Value());
  const auto progress = Engine::Get().ProgressOf(id);
  if (!progress) return info.Env().Undefined();
  Napi::Object found = Napi::Object::New(info.Env());
  found.Set("done", static_cast<double>(progress->first));
  found.Set("windows", static_cast<double>(progress->second));
  return found;
}

Napi::Value PlanOf(const Napi::CallbackInfo& info) {
  const auto model = Engine::Get().Find(static_cast<uint64_t>(info[0].As<Napi::Number>().Int64Value()));
  const auto o = info[1].As<Napi::Object>();
  const auto geometry = ReadGeometry(o);
  const std::array<int, 3> sides = {Int(o, "slices"), Int(o, "rows"), Int(o, "columns")};
  return Napi::Number::New(info.Env(), geometry ? BytesOfPlan(*model, sides, *geometry) : 0);
}

Napi::Value GetStats(const Napi::CallbackInfo& info) { return WriteStats(info.Env(), Engine::Get()); }

/// Takes milliseconds for a hundred MiB, and so does not run on the thread that asks. The engine is never ended.
class Returner : public Napi::AsyncWorker {
 public:
  explicit Returner(Napi::Env env) : Napi::AsyncWorker(env, "giveBack") {}

 protected:
  void Execute() override {
    if (Engine* engine = Engine::Started()) engine->GiveBack();
  }
};

Napi::Value GiveBack(const Napi::CallbackInfo& info) {
  auto returner = std::make_unique<Returner>(info.Env());
  returner->Queue();
  // It deletes itself when it is done
  (void)returner.release();
  return info.Env().Undefined();
}

Napi::Object Init(Napi::Env env, Napi::Object exports) {
  env.SetInstanceData(std::make_unique<Environment>(env).release());
  exports.Set("start", Napi::Function::New(env, Guarded<Start>, "start"));
  exports.Set("cudaProblem", Napi::Function::New(env, Guarded<CudaProblemText>, "cudaProblem"));
  exports.Set("inspect", Napi::Function::New(env, Guarded<Inspect>, "inspect"));
  exports.Set("load", Napi::Function::New(env, Guarded<Load>, "load"));
  exports.Set("keepCanary", Napi::Function::New(env, Guarded<KeepCanary>, "keepCanary"));
  exports.Set("leaveIdle", Napi::Function::New(env, Guarded<LeaveIdle>, "leaveIdle"));
  exports.Set("unload", Napi::Function::New(env, Guarded<Unload>, "unload"));
  exports.Set("infer", Napi::Function::New(env, Guarded<Infer>, "infer"));
  exports.Set("runTensors", Napi::Function::New(env, Guarded<RunTensors>, "runTensors"));
  exports.Set("render", Napi::Function::New(env, Guarded<Render>, "render"));
  exports.Set("packRle", Napi::Function::New(env, Guarded<PackRleFrame>, "packRle"));
  exports.Set("unpackRle", Napi::Function::New(env, Guarded<UnpackRleFrame>, "unpackRle"));
  exports.Set("markPlane", Napi::Function::New(env, Guarded<MarkPlane>, "markPlane"));
  exports.Set("packBits", Napi::Function::New(env, Guarded<PackBits>, "packBits"));
  exports.Set("unpackBits", Napi::Function::New(env, Guarded<UnpackBits>, "unpackBits"));
  exports.Set("findStray", Napi::Function::New(env, Guarded<FindStray>, "findStray"));
  exports.Set("releaseBytes", Napi::Function::New(env, Guarded<ReleaseBytes>, "releaseBytes"));
  exports.Set("composePage", Napi::Function::New(env, Guarded<ComposeOverlay>, "composePage"));
  exports.Set("checkPanel", Napi::Function::New(env, Guarded<CheckOverlay>, "checkPanel"));
  exports.Set("fillOutline", Napi::Function::New(env, Guarded<FillGlyph>, "fillOutline"));
  exports.Set("cancel", Napi::Function::New(env, Guarded<Cancel>, "cancel"));
  exports.Set("progress", Napi::Function::New(env, Guarded<ProgressOf>, "progress"));
  exports.Set("plan", Napi::Function::New(env, Guarded<PlanOf>, "plan"));
  exports.Set("writeDurably", Napi::Function::New(env, Guarded<WriteFileDurably>, "writeDurably"));
  exports.Set("pinPath", Napi::Function::New(env, Guarded<PinPathLater>, "pinPath"));
  exports.Set("pinPathNow", Napi::Function::New(env, Guarded<PinPathNow>, "pinPathNow"));
  exports.Set("anyThere", Napi::Function::New(env, Guarded<AnyThereLater>, "anyThere"));
  exports.Set("readNow", Napi::Function::New(env, Guarded<ReadDescriptorNow>, "readNow"));
  exports.Set("linkDescriptor", Napi::Function::New(env, Guarded<LinkDescriptor>, "linkDescriptor"));
  exports.Set("lockDescriptor", Napi::Function::New(env, Guarded<LockDescriptor>, "lockDescriptor"));
  exports.Set("externalData", Napi::Function::New(env, Guarded<ExternalData>, "externalData"));
  exports.Set("giveBack", Napi::Function::New(env, Guarded<GiveBack>, "giveBack"));
  exports.Set("stats", Napi::Function::New(env, Guarded<GetStats>, "stats"));
  return exports;
}

}  // namespace
}  // namespace radserve

static Napi::Object InitAddon(Napi::Env env, Napi::Object exports) { return radserve::Init(env, exports); }

NODE_API_MODULE(addon, InitAddon)
