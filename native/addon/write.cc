#include <memory>
#include <span>
#include <utility>

#include "addon/convert.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

/// An array of the same numbers, which owns them.
template <typename T>
Napi::Value WriteVector(Napi::Env env, std::vector<T>&& values) {
  const auto owner = std::make_shared<std::vector<T>>(std::move(values));
  const size_t count = owner->size();
  return Napi::TypedArrayOf<T>::New(env, count, Wrap(env, owner, owner->data(), count * sizeof(T)),
                                    0);
}

Napi::Object WriteBox(Napi::Env env, const Box& box) {
  Napi::Object o = WriteFields(env, "x0", box.x0, "y0", box.y0, "x1", box.x1, "y1", box.y1, "score",
                               box.score, "label", box.label);
  if (box.corners) {
    o.Set("corners", WriteList(env, *box.corners, [&](const Corner& corner) {
            return WriteFields(env, "x", corner.x, "y", corner.y);
          }));
  }
  if (box.z1 > box.z0) SetFields(o, "z0", box.z0, "z1", box.z1);
  return o;
}

Napi::Object WritePoint(Napi::Env env, const Point& point) {
  return WriteFields(env, "x", point.x, "y", point.y, "score", point.score, "label", point.label);
}

void WriteMask(Napi::Env env, MaskResult& result, Napi::Object& o) {
  SetFields(o, "overlapping", result.overlapping, "mask", WriteVector(env, std::move(result.mask)),
            "counts", WriteNumbers(env, result.counts));
  if (!result.fractions.empty()) o.Set("fractions", WriteVector(env, std::move(result.fractions)));
}

/// VolumeGeometry of src/images/image.ts.
Napi::Object WriteGeometry(Napi::Env env, const VolumeGeometry& geometry) {
  const auto triple = [&](const std::array<double, 3>& v) { return WriteNumbers(env, v); };
  const auto& [slice, row, column] = geometry.direction;
  return WriteFields(env, "origin", triple(geometry.origin), "sliceDirection", triple(slice),
                     "rowDirection", triple(row), "columnDirection", triple(column), "sliceSpacing",
                     geometry.spacing[0], "rowSpacing", geometry.spacing[1], "columnSpacing",
                     geometry.spacing[2]);
}

/// ModelGridMask of src/engine/types.ts.
Napi::Object WriteModelMask(Napi::Env env, ModelMask& mask, const VolumeGeometry& source) {
  Napi::Object o =
      WriteFields(env, "slices", mask.slices, "rows", mask.rows, "columns", mask.columns,
                  "geometry", WriteGeometry(env, GeometryOf(mask.spans, source)));
  WriteMask(env, mask, o);
  return o;
}

/// EngineOutput of src/engine/types.ts.
Napi::Object WriteOutput(Napi::Env env, OutputResult& result,
                         const std::optional<VolumeGeometry>& source) {
  const OutputKind& kind = *result.kind;
  Napi::Object o = WriteFields(env, "kind", std::string(kind.gives), "tensor", result.tensor);
  if (result.slices > 0) o.Set("slices", result.slices);
  if (kind.gridded) SetFields(o, "rows", result.rows, "columns", result.columns);
  if (kind.masks) WriteMask(env, result, o);
  if (result.model && source) o.Set("model", WriteModelMask(env, *result.model, *source));
  if (!kind.values.empty())
    o.Set(std::string(kind.values), WriteVector(env, std::move(result.values)));
  if (kind.gives == "boxes") {
    o.Set("boxes",
          WriteList(env, result.boxes, [&](const Box& box) { return WriteBox(env, box); }));
  }
  if (result.implausible > 0) o.Set("implausible", static_cast<double>(result.implausible));
  if (kind.gives == "points") {
    o.Set("points", WriteList(env, result.points,
                              [&](const Point& point) { return WritePoint(env, point); }));
  }
  return o;
}

void WriteFacts(Napi::Env env, const PreparationFacts& facts, Napi::Object& o) {
  const auto& [geometry, found, observed, cut] = facts;
  if (geometry) {
    const auto& [rows, columns, antialias] = *geometry;
    o.Set("placement",
          WriteNumbers(
              env, std::array{static_cast<double>(rows.tensor), static_cast<double>(columns.tensor),
                              static_cast<double>(rows.first), static_cast<double>(columns.first),
                              static_cast<double>(rows.count), static_cast<double>(columns.count),
                              rows.seen_from, columns.seen_from, rows.seen, columns.seen}));
  }
  if (found) {
    const Statistics& f = *found;
    o.Set("found", WriteNumbers(env, std::array{f.min, f.max, f.mean, f.std, f.low, f.high}));
  }
  if (observed) o.Set("observed", WriteNumbers(env, std::array{observed->low, observed->high}));
  if (cut) o.Set("cut", true);
}

}  // namespace

Napi::Uint8Array WriteBytes(Napi::Env env, std::vector<uint8_t>&& bytes) {
  return WriteVector(env, std::move(bytes)).As<Napi::Uint8Array>();
}

/// NativeInference of src/engine/engine-addon.ts.
Napi::Object WriteInference(Napi::Env env, InferRequest& request) {
  Napi::Object o = Napi::Object::New(env);
  o.Set("outputs", WriteList(env, request.outputs, [&](OutputResult& result) {
          return WriteOutput(env, result, request.geometry);
        }));
  if (request.dump) {
    std::vector<Tensor> probabilities;
    for (const OutputResult& output : request.outputs) {
      if (output.probabilities) probabilities.push_back(*output.probabilities);
    }
    o.Set("tensors", WriteFields(env, "inputs", WriteTensors(env, request.inputs), "outputs",
                                 WriteTensors(env, request.raw), "probabilities",
                                 WriteTensors(env, probabilities)));
  } else {
    o.Set("raw", WriteList(env, request.raw, [&](const Tensor& t) { return WriteBytes(env, t); }));
  }
  WriteFacts(env, request.preparation.empty() ? PreparationFacts{} : request.preparation.front(),
             o);
  if (request.preparation.size() > 1) {
    const auto others = std::span(request.preparation).subspan(1);
    o.Set("others", WriteList(env, others, [&](const PreparationFacts& facts) {
            Napi::Object other = Napi::Object::New(env);
            WriteFacts(env, facts, other);
            return other;
          }));
  }
  const Timings& t = request.timings;
  o.Set("timings",
        WriteNumbers(env, std::array{t.queue_ms, t.prepare_ms, t.run_ms, t.postprocess_ms}));
  return o;
}

}  // namespace radserve
