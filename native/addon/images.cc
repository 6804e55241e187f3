/// Images through loaded models: plain JavaScript objects in, requests out. All of it runs on the
/// thread of JavaScript that calls it. The arrays that a request reads stay referenced until its
/// promise is settled or the environment closes.
#include <napi.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "addon/convert.h"
#include "addon/submit.h"
#include "base/error.h"
#include "engine/requests.h"
#include "engine/volume_plan.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

/// Throws model_unavailable, also for a graph that was loaded without specs.
std::shared_ptr<ImageModel> ImagesOf(const Napi::CallbackInfo& info) {
  auto model =
      std::dynamic_pointer_cast<ImageModel>(Engine::Get().Find(static_cast<uint64_t>(First(info))));
  if (model != nullptr) return model;
  throw EngineError("model_unavailable", "Model number " + std::to_string(First(info)) +
                                             " was loaded for tensors; it takes no images.");
}

Napi::Value Load(const Napi::CallbackInfo& info) {
  const Given o(info[0]);
  auto request = std::make_shared<LoadImageModelRequest>();
  ReadLimits(o, *request);
  request->paths =
      o.List("paths", [](const Given& path) { return path.Get<std::string>("paths"); });
  request->mean_after_activation = o.Flag("meanAfterActivation");
  auto made = std::make_unique<ImageModel>();
  ImageModel& model = *made;
  request->model = ShareModel(std::move(made));
  const std::vector<std::string> roles =
      o.List("roles", [](const Given& role) { return role.Get<std::string>("roles"); });
  model.inputs = o.List("inputs", [&](const Given& input) {
    return ReadInputSpec(ReadDescription(input.value()), roles);
  });
  model.outputs = o.List("outputs", [&](const Given& output) {
    return ReadOutputSpec(ReadDescription(output.value()), model.inputs);
  });
  o.Into("name", model.name, "version", model.version);
  if (o.Has("tiling")) model.tiling = ReadTilingSpec(ReadDescription(o.At("tiling")));
  model.max_batch = o.Int("maxBatch");
  model.settings = ReadSessionSettings(o);
  request->gpus = o.Ints("gpus");
  return Submit(info, Engine::Get().housekeeping(), request,
                [](Napi::Env env, LoadImageModelRequest& r) {
                  Napi::Object loaded = WriteGraph(env, r.model->session->graph());
                  loaded.Set("id", r.id);
                  if (r.model->settings.OnGpu()) loaded.Set("gpu", r.model->settings.device);
                  loaded.Set("sessions", WriteSessions(env, r.model->session->Memory()));
                  // The registry alone decides how long the session lives.
                  r.model.reset();
                  return loaded;
                });
}

/// The arrays of planes, in a list of our own: the caller may change its own while the
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
  request->model = ImagesOf(info);
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

Napi::Value ProgressOf(const Napi::CallbackInfo& info) {
  const auto progress = Engine::Get().ProgressOf(static_cast<uint64_t>(First(info)));
  if (!progress) return info.Env().Undefined();
  return WriteFields(info.Env(), "done", progress->first, "windows", progress->second);
}

Napi::Value PlanOf(const Napi::CallbackInfo& info) {
  const auto model = ImagesOf(info);
  const Given o(info[1]);
  const auto geometry = ReadGeometry(o);
  const std::array<int, 3> sides = {o.Int("slices"), o.Int("rows"), o.Int("columns")};
  return Napi::Number::New(info.Env(), geometry ? BytesOfPlan(*model, sides, *geometry) : 0);
}

Napi::Value RunBytes(const Napi::CallbackInfo& info) {
  const auto model = ImagesOf(info);
  const size_t pixels = model->SizeOf(Whole(info[1], 0, "pixels"));
  return Napi::Number::New(info.Env(), static_cast<double>(model->seen.Expected(pixels)));
}

}  // namespace

std::span<const Export> ImageExports() {
  static constexpr Export kExports[] = {{"load", Load},     {"infer", Infer},
                                        {"render", Render}, {"progress", ProgressOf},
                                        {"plan", PlanOf},   {"runBytes", RunBytes}};
  return kExports;
}

}  // namespace radserve
