/// The part of the addon that knows graphs and tensors alone. All of it runs on the thread of
/// JavaScript that calls it.
#include <napi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "addon/lent.h"
#include "addon/submit.h"
#include "base/error.h"
#include "graph/engine.h"
#include "graph/requests.h"
#include "runtime/openvino.h"
#include "runtime/run_memory.h"
#include "runtime/weights.h"

namespace radserve {
namespace {

Napi::Value Start(const Napi::CallbackInfo& info) {
  const Engine& engine = Engine::Start(Given(info[0]).Int("threads"));
  const Napi::Env env = info.Env();
  const auto text = [&](const std::string& name) { return Napi::String::New(env, name); };
  return WriteFields(env, "onnxRuntimeVersion", RuntimeVersion(), "providers",
                     WriteList(env, AvailableProviders(), text), "threads", engine.threads());
}

/// An answer of two texts: the version, and why it cannot be used ("" if it can).
Napi::Value OpenVino(const Napi::CallbackInfo& info) {
  return WriteFields(info.Env(), "version", openvino::Version(), "problem", openvino::Problem());
}

Napi::Value CudaProblemText(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), CudaProblem(static_cast<int>(First(info))));
}

Napi::Value Inspect(const Napi::CallbackInfo& info) {
  auto request = std::make_shared<InspectRequest>();
  request->path = info[0].As<Napi::String>().Utf8Value();
  return Submit(info, Engine::Get().housekeeping(), request, [](Napi::Env env, InspectRequest& r) {
    Napi::Object graph = WriteGraph(env, r.graph);
    const auto texts = [&](const std::map<std::string, std::string>& all) {
      Napi::Object object = Napi::Object::New(env);
      for (const auto& [key, value] : all) object.Set(key, value);
      return object;
    };
    SetFields(graph, "float16", r.graph.float16, "activations", texts(r.graph.activations),
              "metadata", texts(r.graph.metadata));
    return graph;
  });
}

/// Above the numbers that tasks of Radserve count up from 1, and exact in JavaScript.
Napi::Value NewCancelId(const Napi::CallbackInfo& info) {
  static std::atomic<uint64_t> next = uint64_t{1} << 52;
  return Napi::Number::New(info.Env(), static_cast<double>(next++));
}

/// `loadGraph({ path | bytes, maxBatch, provider, ... })`
Napi::Value LoadGraph(const Napi::CallbackInfo& info) {
  const Given o(info[0]);
  auto request = std::make_shared<LoadRequest>();
  ReadLimits(o, *request);
  if (o.Has("path")) {
    request->paths = {o.Text("path")};
  } else {
    const Lent lent = Borrow(o.At("bytes").As<Napi::TypedArray>());
    request->bytes = lent.bytes;
    request->owner = lent.owner;
  }
  request->shared = true;
  request->model = ShareModel(std::make_unique<Model>());
  request->model->name = o.Text("name");
  request->model->max_batch = o.Int("maxBatch");
  request->model->settings = ReadSessionSettings(o);
  request->model->settings.every_type = true;
  request->threads = o.Int("threads");
  request->gpus = o.Ints("gpus");
  const auto answer = [](Napi::Env env, LoadRequest& r) {
    const GraphInfo& graph = r.model->session->graph();
    const auto text = [&](const std::string& name) { return Napi::String::New(env, name); };
    Napi::Object loaded = WriteGraph(env, graph);
    SetFields(loaded, "id", r.id, "leftOut", WriteList(env, graph.left_out, text), "batching",
              static_cast<double>(r.model->batcher == nullptr ? 1 : r.model->max_batch));
    if (r.model->settings.OnGpu()) loaded.Set("gpu", r.model->settings.device);
    // The registry alone decides how long the session lives.
    r.model.reset();
    return loaded;
  };
  // The bytes stay where they are until they are read.
  return Submit(info, Engine::Get().housekeeping(), request, answer, o.At("bytes"));
}

Napi::Value KeepCanary(const Napi::CallbackInfo& info) {
  const Given o(info[1]);
  Engine::Get().KeepCanary(
      static_cast<uint64_t>(First(info)),
      {o.List("feeds", ReadOwnTensor), o.List("expected", ReadOwnTensor), o.Number("absolute"),
       o.Number("relative"), std::chrono::milliseconds(o.Int("timeoutMs"))});
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
  std::shared_ptr<Model> model = Engine::Get().LetGo(static_cast<uint64_t>(First(info)), here.id());
  if (model == nullptr) {
    post();
  } else {
    model->released = post;
  }
  return promise;
}

/// The shape that a list of numbers says. Throws `internal` for what TypeScript refuses before, so
/// that no length is ever wrong.
std::vector<int64_t> ReadShape(const Napi::Value& value) {
  const auto list = value.As<Napi::Array>();
  std::vector<int64_t> shape(list.Length());
  for (uint32_t i = 0; i < shape.size(); ++i)
    shape[i] = list.Get(i).As<Napi::Number>().Int64Value();
  return shape;
}

void CheckLength(const Tensor& tensor, size_t elements) {
  constexpr uint64_t kMost = uint64_t{1} << 53;
  uint64_t expected = 1;
  for (const int64_t side : tensor.shape) {
    const auto length = static_cast<uint64_t>(side);
    if (side < 0 || (length != 0 && expected > kMost / length)) Unexpected("shape");
    expected *= length;
  }
  const uint64_t in_byte = ElementsInByte(tensor.dtype);
  if (elements != expected / in_byte + (expected % in_byte == 0 ? 0 : 1)) Unexpected("data");
}

/// One feed: an array of the input's type, which is read where it lies, or a list of texts.
Tensor ReadFeed(const TensorInfo& input, const Napi::Value& data, const Napi::Value& shape) {
  Tensor tensor{input.name, input.dtype, ReadShape(shape), nullptr, nullptr};
  if (input.dtype == Dtype::kString) {
    const auto list = data.As<Napi::Array>();
    CheckLength(tensor, list.Length());
    tensor = MakeTexts(input.name, std::move(tensor.shape));
    uint32_t at = 0;
    for (std::string& text : tensor.Texts()) text = list.Get(at++).As<Napi::String>().Utf8Value();
    return tensor;
  }
  if (!data.IsTypedArray()) Unexpected("data");
  const auto array = data.As<Napi::TypedArray>();
  if (array.ElementSize() != DtypeSize(input.dtype)) Unexpected("data");
  CheckLength(tensor, array.ElementLength());
  const Lent lent = Borrow(array);
  tensor.data = const_cast<std::byte*>(lent.bytes.data());
  tensor.owner = std::const_pointer_cast<void>(lent.owner);
  return tensor;
}

/// For each output its shape, and its memory or its texts, one after the other.
Napi::Value WriteOutputs(Napi::Env env, RunRequest& request) {
  Napi::Array written = Napi::Array::New(env, 2 * request.outputs.size());
  uint32_t at = 0;
  for (const Tensor& output : request.outputs) {
    written.Set(at++, WriteNumbers(env, output.shape));
    if (output.dtype == Dtype::kString) {
      const auto text = [&](const std::string& each) { return Napi::String::New(env, each); };
      written.Set(at++, WriteList(env, output.Texts(), text));
    } else {
      written.Set(at++, Wrap(env, output.owner, output.data, output.Bytes()));
    }
  }
  return written;
}

/// `run(id, data, shapes, outputs, priority, timeoutMs, cancelId)`: `data` and `shapes` for each
/// input of the graph in its order, the numbers of the outputs that are wanted, and 0 for what is
/// not limited, or has no number. Arguments instead of an object, because each field of one costs
/// the thread that calls a microsecond.
Napi::Value Run(const Napi::CallbackInfo& info) {
  const std::shared_ptr<Model> model = Engine::Get().Find(static_cast<uint64_t>(First(info)));
  const GraphInfo& graph = model->session->graph();
  const std::shared_ptr<RunRequest> request = model->MakeRun();
  request->model = model;
  request->flow = model->id;
  const auto data = info[1].As<Napi::Array>();
  const auto shapes = info[2].As<Napi::Array>();
  if (data.Length() != graph.inputs.size()) Unexpected("data");
  for (uint32_t i = 0; i < data.Length(); ++i)
    request->feeds.push_back(ReadFeed(graph.inputs[i], data.Get(i), shapes.Get(i)));
  const auto outputs = info[3].As<Napi::Array>();
  for (uint32_t i = 0; i < outputs.Length(); ++i) {
    const size_t number = Whole(outputs.Get(i), 0, "outputs");
    if (number >= graph.outputs.size()) Unexpected("outputs");
    request->wanted.push_back(graph.outputs[number].name);
  }
  request->priority = static_cast<Priority>(std::min<size_t>(Whole(info[4], 0, "priority"), 2));
  const double milliseconds = info[5].As<Napi::Number>().DoubleValue();
  if (milliseconds > 0) {
    request->deadline =
        Clock::now() + std::chrono::microseconds(static_cast<int64_t>(milliseconds * 1000));
  }
  request->cancel_id = Whole(info[6], 0, "cancelId");
  request->subject = static_cast<uint32_t>(Whole(info[7], 0, "subject"));
  return Submit(info, Engine::Get().work(), request, WriteOutputs, data);
}

Napi::Value Cancel(const Napi::CallbackInfo& info) {
  const auto id = static_cast<uint64_t>(First(info));
  Engine::Get().work().Cancel(id);
  Engine::Get().housekeeping().Cancel(id);
  return info.Env().Undefined();
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

}  // namespace

std::span<const Export> GraphExports() {
  static constexpr Export kExports[] = {{"start", Start},
                                        {"cudaProblem", CudaProblemText},
                                        {"openvino", OpenVino},
                                        {"inspect", Inspect},
                                        {"loadGraph", LoadGraph},
                                        {"keepCanary", KeepCanary},
                                        {"leaveIdle", LeaveIdle},
                                        {"unload", Unload},
                                        {"run", Run},
                                        {"newCancelId", NewCancelId},
                                        {"cancel", Cancel},
                                        {"giveBack", GiveBack},
                                        {"limitRuns", LimitRuns},
                                        {"limitWeights", LimitWeights},
                                        {"runMemory", RunMemoryNow},
                                        {"stats", GetStats}};
  return kExports;
}

}  // namespace radserve
