#include <cstring>
#include <memory>
#include <utility>

#include "addon/convert.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

/// Copying so much costs less than sharing it.
constexpr size_t kCopied = 4096;

/// The array owns a share of `owner`: no copy, unless it is small. Finalisers may run after the engine
/// stopped; they only drop the share.
Napi::ArrayBuffer Wrap(Napi::Env env, std::shared_ptr<void> owner, void* data, size_t bytes) {
  if (bytes <= kCopied) {
    Napi::ArrayBuffer copy = Napi::ArrayBuffer::New(env, bytes);
    if (bytes > 0) std::memcpy(copy.Data(), data, bytes);
    return copy;
  }
  auto share = std::make_unique<std::shared_ptr<void>>(std::move(owner));
  const auto release = [](Napi::Env, void*, std::shared_ptr<void>* share) {
    const std::unique_ptr<std::shared_ptr<void>> dropped(share);
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

Napi::Array WriteDoubles(Napi::Env env, const std::vector<double>& numbers) {
  return WriteList(env, numbers, [&](double n) { return Napi::Number::New(env, n); });
}

Napi::Uint8Array WriteBytes(Napi::Env env, const Tensor& tensor) {
  const size_t bytes = tensor.Bytes();
  return Napi::Uint8Array::New(env, bytes, Wrap(env, tensor.owner, tensor.data, bytes), 0);
}

Napi::Object WriteBox(Napi::Env env, const Box& box) {
  Napi::Object o = Napi::Object::New(env);
  o.Set("x0", box.x0);
  o.Set("y0", box.y0);
  o.Set("x1", box.x1);
  o.Set("y1", box.y1);
  o.Set("score", box.score);
  o.Set("label", box.label);
  if (box.corners) {
    o.Set("corners", WriteList(env, *box.corners, [&](const Corner& corner) {
            Napi::Object at = Napi::Object::New(env);
            at.Set("x", corner.x);
            at.Set("y", corner.y);
            return at;
          }));
  }
  if (box.z1 > box.z0) {
    o.Set("z0", box.z0);
    o.Set("z1", box.z1);
  }
  return o;
}

Napi::Object WritePoint(Napi::Env env, const Point& point) {
  Napi::Object o = Napi::Object::New(env);
  o.Set("x", point.x);
  o.Set("y", point.y);
  o.Set("score", point.score);
  o.Set("label", point.label);
  return o;
}

void WriteMask(Napi::Env env, MaskResult& result, Napi::Object& o) {
  o.Set("overlapping", result.overlapping);
  const size_t bytes = result.mask.size();
  o.Set("mask", Napi::Uint8Array::New(env, bytes, WrapVector(env, std::move(result.mask)), 0));
  o.Set("counts", WriteNumbers(env, result.counts));
  if (result.fractions.empty()) return;
  const size_t fractions = result.fractions.size();
  o.Set("fractions", Napi::Uint8Array::New(env, fractions, WrapVector(env, std::move(result.fractions)), 0));
}

/// VolumeGeometry of src/images/image.ts.
Napi::Object WriteGeometry(Napi::Env env, const VolumeGeometry& geometry) {
  const auto triple = [&](const std::array<double, 3>& v) { return WriteDoubles(env, {v[0], v[1], v[2]}); };
  Napi::Object o = Napi::Object::New(env);
  o.Set("origin", triple(geometry.origin));
  o.Set("sliceDirection", triple(geometry.direction[0]));
  o.Set("rowDirection", triple(geometry.direction[1]));
  o.Set("columnDirection", triple(geometry.direction[2]));
  o.Set("sliceSpacing", geometry.spacing[0]);
  o.Set("rowSpacing", geometry.spacing[1]);
  o.Set("columnSpacing", geometry.spacing[2]);
  return o;
}

/// ModelGridMask of src/engine/types.ts.
Napi::Object WriteModelMask(Napi::Env env, ModelMask& mask, const VolumeGeometry& source) {
  Napi::Object o = Napi::Object::New(env);
  o.Set("slices", mask.slices);
  o.Set("rows", mask.rows);
  o.Set("columns", mask.columns);
  o.Set("geometry", WriteGeometry(env, GeometryOf(mask.spans, source)));
  WriteMask(env, mask, o);
  return o;
}

/// EngineOutput of src/engine/types.ts.
Napi::Object WriteOutput(Napi::Env env, OutputResult& result, const std::optional<VolumeGeometry>& source) {
  const OutputKind& kind = *result.kind;
  Napi::Object o = Napi::Object::New(env);
  o.Set("kind", std::string(kind.gives));
  o.Set("tensor", result.tensor);
  if (result.slices > 0) o.Set("slices", result.slices);
  if (kind.gridded) {
    o.Set("rows", result.rows);
    o.Set("columns", result.columns);
  }
  if (kind.masks) WriteMask(env, result, o);
  if (result.model && source) o.Set("model", WriteModelMask(env, *result.model, *source));
  if (!kind.values.empty()) o.Set(std::string(kind.values), WriteFloats(env, std::move(result.values)));
  if (kind.gives == "boxes") {
    o.Set("boxes", WriteList(env, result.boxes, [&](const Box& box) { return WriteBox(env, box); }));
  }
  if (kind.gives == "points") {
    o.Set("points",
          WriteList(env, result.points, [&](const Point& point) { return WritePoint(env, point); }));
  }
  return o;
}

void WriteFacts(Napi::Env env, const PreparationFacts& facts, Napi::Object& o) {
  const auto& [geometry, found, observed] = facts;
  if (geometry) {
    const Geometry& g = *geometry;
    o.Set("placement", WriteDoubles(env, {static_cast<double>(g.rows), static_cast<double>(g.columns),
                                          static_cast<double>(g.top), static_cast<double>(g.left),
                                          static_cast<double>(g.height), static_cast<double>(g.width),
                                          g.source_top, g.source_left, g.source_height, g.source_width}));
  }
  if (found) {
    const Statistics& f = *found;
    o.Set("found", WriteDoubles(env, {f.min, f.max, f.mean, f.std, f.low, f.high}));
  }
  if (observed) o.Set("observed", WriteDoubles(env, {observed->low, observed->high}));
}

}  // namespace

Napi::Object WriteTensor(Napi::Env env, const Tensor& tensor) {
  Napi::Object o = Napi::Object::New(env);
  o.Set("name", tensor.name);
  o.Set("dtype", std::string(DtypeName(tensor.dtype)));
  o.Set("shape", WriteNumbers(env, tensor.shape));
  o.Set("data", WriteBytes(env, tensor));
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

Napi::Array WriteSessions(Napi::Env env, const std::vector<SessionMemory>& sessions) {
  return WriteList(env, sessions, [&](const SessionMemory& session) {
    Napi::Object o = Napi::Object::New(env);
    o.Set("spread", session.wide);
    o.Set("bytes", static_cast<double>(session.bytes));
    return o;
  });
}

/// NativeInference of src/engine/engine-addon.ts.
Napi::Object WriteInference(Napi::Env env, InferRequest& request) {
  Napi::Object o = Napi::Object::New(env);
  Napi::Array outputs = Napi::Array::New(env, request.outputs.size());
  for (uint32_t i = 0; i < request.outputs.size(); ++i) {
    outputs.Set(i, WriteOutput(env, request.outputs[i], request.geometry));
  }
  o.Set("outputs", outputs);
  if (request.dump) {
    Napi::Object tensors = Napi::Object::New(env);
    tensors.Set("inputs", WriteTensors(env, request.inputs));
    tensors.Set("outputs", WriteTensors(env, request.raw));
    std::vector<Tensor> probabilities;
    for (const OutputResult& output : request.outputs) {
      if (output.probabilities) probabilities.push_back(*output.probabilities);
    }
    tensors.Set("probabilities", WriteTensors(env, probabilities));
    o.Set("tensors", tensors);
  } else {
    o.Set("raw", WriteList(env, request.raw, [&](const Tensor& t) { return WriteBytes(env, t); }));
  }
  WriteFacts(env, request.preparation.empty() ? PreparationFacts{} : request.preparation.front(), o);
  if (request.preparation.size() > 1) {
    const std::vector<PreparationFacts> others(request.preparation.begin() + 1, request.preparation.end());
    o.Set("others", WriteList(env, others, [&](const PreparationFacts& facts) {
            Napi::Object other = Napi::Object::New(env);
            WriteFacts(env, facts, other);
            return other;
          }));
  }
  const Timings& t = request.timings;
  o.Set("timings", WriteDoubles(env, {t.queue_ms, t.prepare_ms, t.run_ms, t.postprocess_ms}));
  return o;
}

}  // namespace radserve
