#include <memory>
#include <utility>

#include "addon_convert.h"

namespace radserve {
namespace {

/// The array owns a share of `owner`: no copy. Finalisers may run after the engine stopped; they only drop
/// the share.
Napi::ArrayBuffer Wrap(Napi::Env env, std::shared_ptr<void> owner, void* data, size_t bytes) {
  if (bytes == 0) return Napi::ArrayBuffer::New(env, 0);
  auto share = std::make_unique<std::shared_ptr<void>>(std::move(owner));
  const auto release = [](Napi::Env, void*, std::shared_ptr<void>* held) {
    const std::unique_ptr<std::shared_ptr<void>> dropped(held);
  };
  Napi::ArrayBuffer buffer = Napi::ArrayBuffer::New(env, data, bytes, release, share.get());
  static_cast<void>(share.release());
  return buffer;
}

template <typename T>
Napi::ArrayBuffer WrapVector(Napi::Env env, std::vector<T>&& values) {
  auto owner = std::make_shared<std::vector<T>>(std::move(values));
  return Wrap(env, owner, owner->data(), owner->size() * sizeof(T));
}

Napi::Value WriteFloats(Napi::Env env, std::vector<float>&& values) {
  const size_t count = values.size();
  return Napi::Float32Array::New(env, count, WrapVector(env, std::move(values)), 0);
}

Napi::Array WriteNumbers(Napi::Env env, const std::vector<int64_t>& numbers) {
  return WriteList(env, numbers, [&](int64_t n) { return Napi::Number::New(env, static_cast<double>(n)); });
}

Napi::Object WriteBox(Napi::Env env, const Box& box) {
  Napi::Object o = Napi::Object::New(env);
  o.Set("x0", box.x0);
  o.Set("y0", box.y0);
  o.Set("x1", box.x1);
  o.Set("y1", box.y1);
  o.Set("score", box.score);
  o.Set("label", box.label);
  return o;
}

void WriteMask(Napi::Env env, OutputResult& result, Napi::Object& o) {
  o.Set("overlapping", result.overlapping);
  const size_t bytes = result.mask.size();
  o.Set("mask", Napi::Uint8Array::New(env, bytes, WrapVector(env, std::move(result.mask)), 0));
  o.Set("counts", WriteNumbers(env, result.counts));
  if (result.fractions.empty()) return;
  const size_t fractions = result.fractions.size();
  o.Set("fractions", Napi::Uint8Array::New(env, fractions, WrapVector(env, std::move(result.fractions)), 0));
}

/// EngineOutput of src/engine.ts.
Napi::Object WriteOutput(Napi::Env env, OutputResult& result) {
  using Kind = OutputSpec::Kind;
  Napi::Object o = Napi::Object::New(env);
  o.Set("tensor", result.tensor);
  if (result.kind == Kind::kSegmentation || result.kind == Kind::kHeatmap) {
    if (result.slices > 0) o.Set("slices", result.slices);
    o.Set("rows", result.rows);
    o.Set("columns", result.columns);
  }
  switch (result.kind) {
    case Kind::kClassification:
      o.Set("kind", "classification");
      o.Set("scores", WriteFloats(env, std::move(result.values)));
      break;
    case Kind::kRegression:
      o.Set("kind", "regression");
      o.Set("values", WriteFloats(env, std::move(result.values)));
      break;
    case Kind::kSegmentation:
      o.Set("kind", "segmentation");
      WriteMask(env, result, o);
      break;
    case Kind::kDetection:
    case Kind::kProbabilityMap:
      o.Set("kind", "boxes");
      o.Set("boxes", WriteList(env, result.boxes, [&](const Box& box) { return WriteBox(env, box); }));
      break;
    case Kind::kHeatmap:
      o.Set("kind", "heatmap");
      o.Set("values", WriteFloats(env, std::move(result.values)));
      break;
  }
  return o;
}

}  // namespace

Napi::Object WriteTensor(Napi::Env env, const Tensor& tensor) {
  Napi::Object o = Napi::Object::New(env);
  o.Set("name", tensor.name);
  o.Set("dtype", std::string(DtypeName(tensor.dtype)));
  o.Set("shape", WriteNumbers(env, tensor.shape));
  o.Set("data",
        Napi::Uint8Array::New(env, tensor.Bytes(), Wrap(env, tensor.owner, tensor.data, tensor.Bytes()), 0));
  return o;
}

Napi::Array WriteTensors(Napi::Env env, const std::vector<Tensor>& tensors) {
  return WriteList(env, tensors, [&](const Tensor& t) { return WriteTensor(env, t); });
}

Napi::Object WriteGraph(Napi::Env env, const GraphInfo& graph) {
  const auto info = [&](const TensorInfo& t) {
    Napi::Object o = Napi::Object::New(env);
    o.Set("name", t.name);
    o.Set("dtype", std::string(DtypeName(t.dtype)));
    o.Set("shape", WriteNumbers(env, t.shape));
    o.Set("names", WriteList(env, t.names, [&](const std::string& n) { return Napi::String::New(env, n); }));
    return o;
  };
  Napi::Object o = Napi::Object::New(env);
  o.Set("inputs", WriteList(env, graph.inputs, info));
  o.Set("outputs", WriteList(env, graph.outputs, info));
  return o;
}

namespace {

Napi::Object WritePreparation(Napi::Env env, const PreparationFacts& facts) {
  Napi::Object o = Napi::Object::New(env);
  if (facts.geometry) {
    const Geometry& g = *facts.geometry;
    Napi::Object placement = Napi::Object::New(env);
    placement.Set("rows", g.rows);
    placement.Set("columns", g.columns);
    placement.Set("top", g.top);
    placement.Set("left", g.left);
    placement.Set("height", g.height);
    placement.Set("width", g.width);
    placement.Set("sourceTop", g.source_top);
    placement.Set("sourceLeft", g.source_left);
    placement.Set("sourceHeight", g.source_height);
    placement.Set("sourceWidth", g.source_width);
    o.Set("placement", placement);
  }
  if (facts.found) {
    Napi::Object found = Napi::Object::New(env);
    found.Set("min", facts.found->min);
    found.Set("max", facts.found->max);
    found.Set("mean", facts.found->mean);
    found.Set("std", facts.found->std);
    found.Set("low", facts.found->low);
    found.Set("high", facts.found->high);
    o.Set("found", found);
  }
  if (facts.observed) {
    Napi::Object observed = Napi::Object::New(env);
    observed.Set("low", facts.observed->low);
    observed.Set("high", facts.observed->high);
    o.Set("observed", observed);
  }
  return o;
}

}  // namespace

Napi::Array WriteSessions(Napi::Env env, const std::vector<SessionMemory>& sessions) {
  return WriteList(env, sessions, [&](const SessionMemory& session) {
    Napi::Object o = Napi::Object::New(env);
    o.Set("spread", session.wide);
    o.Set("bytes", static_cast<double>(session.bytes));
    return o;
  });
}

Napi::Object WriteInference(Napi::Env env, InferRequest& request) {
  Napi::Object o = Napi::Object::New(env);
  Napi::Array outputs = Napi::Array::New(env, request.outputs.size());
  for (uint32_t i = 0; i < request.outputs.size(); ++i) outputs.Set(i, WriteOutput(env, request.outputs[i]));
  o.Set("outputs", outputs);
  if (request.dump) o.Set("input", WriteTensor(env, request.input));
  o.Set("raw", WriteTensors(env, request.raw));
  o.Set("preparation", WritePreparation(env, request.preparation));
  Napi::Object timings = Napi::Object::New(env);
  timings.Set("queueMs", request.timings.queue_ms);
  timings.Set("prepareMs", request.timings.prepare_ms);
  timings.Set("runMs", request.timings.run_ms);
  timings.Set("postprocessMs", request.timings.postprocess_ms);
  o.Set("timings", timings);
  return o;
}

}  // namespace radserve
