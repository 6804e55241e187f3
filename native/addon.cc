/// The only file that knows Node-API: plain JavaScript objects in, requests out; letters back, promises
/// settled.
///
/// Threads: everything here runs on the JavaScript thread of one environment, except the notification in
/// Open, which only wakes that thread. Engine threads never see a Node-API handle. Arrays that a request
/// reads are held by a reference in Pending until its promise is settled or the environment closes.
#include <napi.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine.h"
#include "error.h"

namespace radserve {
namespace {

// ---- JavaScript to C++. src/engine.ts has checked the values; a mismatch here is a fault of ours.

Napi::Value Field(const Napi::Object& object, const char* key) { return object.Get(key); }

bool Has(const Napi::Object& object, const char* key) { return !Field(object, key).IsUndefined(); }

[[noreturn]] void Unexpected(const char* key) {
  throw EngineError("internal", std::string("The addon was called with an unexpected \"") + key + "\".");
}

double Number(const Napi::Object& object, const char* key) {
  const Napi::Value value = Field(object, key);
  if (!value.IsNumber()) Unexpected(key);
  return value.As<Napi::Number>().DoubleValue();
}

int Int(const Napi::Object& object, const char* key) { return static_cast<int>(Number(object, key)); }

bool Flag(const Napi::Object& object, const char* key) { return Field(object, key).ToBoolean().Value(); }

std::string Text(const Napi::Object& object, const char* key) {
  const Napi::Value value = Field(object, key);
  if (!value.IsString()) Unexpected(key);
  return value.As<Napi::String>().Utf8Value();
}

Napi::Object Child(const Napi::Object& object, const char* key) {
  const Napi::Value value = Field(object, key);
  if (!value.IsObject()) Unexpected(key);
  return value.As<Napi::Object>();
}

template <typename T>
T OneOf(const Napi::Object& object, const char* key,
        std::initializer_list<std::pair<const char*, T>> choices) {
  const std::string found = Text(object, key);
  for (const auto& [name, value] : choices) {
    if (found == name) return value;
  }
  Unexpected(key);
}

template <typename Read>
auto List(const Napi::Object& object, const char* key, const Read& read) {
  const Napi::Value value = Field(object, key);
  if (!value.IsArray()) Unexpected(key);
  const auto array = value.As<Napi::Array>();
  std::vector<decltype(read(array.Get(0u)))> out;
  for (uint32_t i = 0; i < array.Length(); ++i) out.push_back(read(array.Get(i)));
  return out;
}

std::vector<double> Numbers(const Napi::Object& object, const char* key) {
  return List(object, key, [](const Napi::Value& v) { return v.As<Napi::Number>().DoubleValue(); });
}

/// thresholds: one list of numbers for each output.
std::optional<std::vector<std::vector<double>>> ReadThresholds(const Napi::Object& object) {
  if (!Has(object, "thresholds")) return std::nullopt;
  return List(object, "thresholds", [](const Napi::Value& value) {
    const auto numbers = value.As<Napi::Array>();
    std::vector<double> out;
    for (uint32_t i = 0; i < numbers.Length(); ++i) {
      out.push_back(numbers.Get(i).As<Napi::Number>().DoubleValue());
    }
    return out;
  });
}

std::vector<uint16_t> Words(const Napi::Object& object, const char* key) {
  const Napi::Value value = Field(object, key);
  if (!value.IsTypedArray()) Unexpected(key);
  const auto array = value.As<Napi::Uint16Array>();
  return {array.Data(), array.Data() + array.ElementLength()};
}

Dtype ReadDtype(const Napi::Object& object) {
  const auto dtype = DtypeFromName(Text(object, "dtype"));
  if (!dtype) Unexpected("dtype");
  return *dtype;
}

WindowFunction ReadWindowFunction(const Napi::Object& object) {
  return OneOf<WindowFunction>(object, "function",
                               {{"LINEAR", WindowFunction::kLinear},
                                {"LINEAR_EXACT", WindowFunction::kLinearExact},
                                {"SIGMOID", WindowFunction::kSigmoid}});
}

LookupTable ReadTable(const Napi::Object& object) {
  return {Number(object, "firstMapped"), Int(object, "bits"), Words(object, "entries")};
}

PixelFormat ReadFormat(const Napi::Object& o) {
  PixelFormat format;
  format.rows = Int(o, "rows");
  format.columns = Int(o, "columns");
  format.samples = Int(o, "samplesPerPixel");
  format.bits_allocated = Int(o, "bitsAllocated");
  format.bits_stored = Int(o, "bitsStored");
  format.high_bit = Int(o, "highBit");
  format.is_signed = Flag(o, "signed");
  format.is_float = Flag(o, "float");
  format.packed422 = Flag(o, "packed422");
  format.photometric = OneOf<Photometric>(o, "photometricInterpretation",
                                          {{"MONOCHROME1", Photometric::kMonochrome1},
                                           {"MONOCHROME2", Photometric::kMonochrome2},
                                           {"PALETTE COLOR", Photometric::kPalette},
                                           {"RGB", Photometric::kRgb},
                                           {"YBR_FULL", Photometric::kYbrFull},
                                           {"YBR_FULL_422", Photometric::kYbrFull422},
                                           {"YBR_PARTIAL_420", Photometric::kYbrPartial420}});
  return format;
}

ModalityTransform ReadModality(const Napi::Object& o) {
  using Kind = ModalityTransform::Kind;
  ModalityTransform modality;
  modality.kind = OneOf<Kind>(
      o, "kind", {{"identity", Kind::kIdentity}, {"rescale", Kind::kRescale}, {"lut", Kind::kLut}});
  if (modality.kind == Kind::kRescale) {
    modality.slope = Number(o, "slope");
    modality.intercept = Number(o, "intercept");
  }
  if (modality.kind == Kind::kLut) modality.lut = ReadTable(Child(o, "lut"));
  return modality;
}

VoiTransform ReadVoi(const Napi::Value& value) {
  const auto o = value.As<Napi::Object>();
  VoiTransform voi;
  if (Text(o, "kind") == "lut") {
    voi.lut = ReadTable(Child(o, "lut"));
  } else {
    voi.window = {Number(o, "center"), Number(o, "width"), ReadWindowFunction(o)};
  }
  return voi;
}

Interpretation ReadInterpretation(const Napi::Object& o) {
  Interpretation i;
  i.modality = ReadModality(Child(o, "modality"));
  i.hounsfield = Has(o, "units") && Text(o, "units") == "HU";
  i.voi = List(o, "voi", ReadVoi);
  if (Has(o, "padding")) {
    const Napi::Object padding = Child(o, "padding");
    i.padding = PaddingRange{Number(padding, "from"), Number(padding, "to")};
  }
  if (Has(o, "palette")) {
    const Napi::Object palette = Child(o, "palette");
    i.palette = Palette{Number(palette, "firstMapped"), Int(palette, "bits"), Words(palette, "red"),
                        Words(palette, "green"), Words(palette, "blue")};
  }
  return i;
}

/// The plane reads the array's own memory; the caller keeps a reference.
Plane ReadPlane(const Napi::Object& o) {
  const auto data = Field(o, "data");
  if (!data.IsTypedArray()) Unexpected("data");
  const auto bytes = data.As<Napi::Uint8Array>();
  return {ReadFormat(Child(o, "format")),
          {bytes.Data(), bytes.ByteLength()},
          ReadInterpretation(Child(o, "interpretation")),
          Number(o, "pixelAspect")};
}

SizeSpec ReadSize(const Napi::Object& o) {
  using Kind = SizeSpec::Kind;
  SizeSpec size;
  size.kind = OneOf<Kind>(
      o, "kind", {{"fixed", Kind::kFixed}, {"multiple_of", Kind::kMultipleOf}, {"source", Kind::kSource}});
  if (size.kind == Kind::kFixed) {
    size.height = Int(o, "height");
    size.width = Int(o, "width");
  }
  if (size.kind == Kind::kMultipleOf) {
    size.multiple = Int(o, "multiple");
    size.max_side = Int(o, "max_side");
  }
  return size;
}

ValuesSpec ReadValues(const Napi::Object& o) {
  using Kind = ValuesSpec::Kind;
  using IfAbsent = ValuesSpec::IfAbsent;
  ValuesSpec values;
  values.kind = OneOf<Kind>(o, "kind",
                            {{"stored", Kind::kStored},
                             {"modality", Kind::kModality},
                             {"voi", Kind::kVoi},
                             {"window", Kind::kWindow}});
  if (values.kind == Kind::kVoi) {
    values.index = Int(o, "index");
    values.if_absent = OneOf<IfAbsent>(o, "if_absent",
                                       {{"full_range", IfAbsent::kFullRange},
                                        {"min_max", IfAbsent::kMinMax},
                                        {"refuse", IfAbsent::kRefuse}});
  }
  if (values.kind == Kind::kWindow) {
    values.window = {Number(o, "center"), Number(o, "width"), ReadWindowFunction(o)};
  }
  return values;
}

NormalisationSpec ReadNormalisation(const Napi::Object& o) {
  using Kind = NormalisationSpec::Kind;
  NormalisationSpec n;
  n.kind = OneOf<Kind>(o, "kind",
                       {{"none", Kind::kNone},
                        {"scale", Kind::kScale},
                        {"mean_std", Kind::kMeanStd},
                        {"min_max", Kind::kMinMax},
                        {"z_score", Kind::kZScore},
                        {"percentile", Kind::kPercentile}});
  if (n.kind == Kind::kScale) {
    n.multiply = Number(o, "multiply");
    n.add = Number(o, "add");
  }
  if (n.kind == Kind::kMeanStd) {
    n.mean = Numbers(o, "mean");
    n.std = Numbers(o, "std");
  }
  if (n.kind == Kind::kPercentile) {
    n.low = Number(o, "low");
    n.high = Number(o, "high");
  }
  if (Has(o, "to")) {
    const std::vector<double> to = Numbers(o, "to");
    n.to = {to.at(0), to.at(1)};
  }
  return n;
}

InputSpec ReadInput(const Napi::Value& value) {
  const auto o = value.As<Napi::Object>();
  using Monochrome1 = InputSpec::Monochrome1;
  InputSpec spec;
  spec.tensor = Text(o, "tensor");
  spec.dtype = ReadDtype(o);
  spec.channels_last = Text(o, "layout") == "NHWC";
  spec.size = ReadSize(Child(o, "size"));
  spec.fit = OneOf<Fit>(o, "fit",
                        {{"stretch", Fit::kStretch},
                         {"letterbox", Fit::kLetterbox},
                         {"crop", Fit::kCrop},
                         {"none", Fit::kNone}});
  spec.interpolation = OneOf<Interpolation>(o, "interpolation",
                                            {{"area", Interpolation::kArea},
                                             {"linear", Interpolation::kLinear},
                                             {"cubic", Interpolation::kCubic},
                                             {"nearest", Interpolation::kNearest}});
  spec.values = ReadValues(Child(o, "values"));
  spec.monochrome1 = OneOf<Monochrome1>(o, "monochrome1",
                                        {{"invert", Monochrome1::kInvert},
                                         {"as_stored", Monochrome1::kAsStored},
                                         {"refuse", Monochrome1::kRefuse}});
  spec.channels = OneOf<ChannelOrder>(
      o, "channels",
      {{"grayscale", ChannelOrder::kGrayscale}, {"rgb", ChannelOrder::kRgb}, {"bgr", ChannelOrder::kBgr}});
  spec.accept_colour = Text(o, "colour_source") == "accept";
  if (Has(o, "clip")) {
    const std::vector<double> clip = Numbers(o, "clip");
    spec.clip = {clip.at(0), clip.at(1)};
  }
  spec.normalisation = ReadNormalisation(Child(o, "normalisation"));
  spec.background = Number(o, "background");
  return spec;
}

CalibrationSpec ReadCalibration(const Napi::Object& o) {
  using Kind = CalibrationSpec::Kind;
  CalibrationSpec c;
  c.kind = OneOf<Kind>(o, "kind",
                       {{"none", Kind::kNone},
                        {"temperature", Kind::kTemperature},
                        {"platt", Kind::kPlatt},
                        {"isotonic", Kind::kIsotonic}});
  if (c.kind == Kind::kTemperature) c.temperature = Number(o, "temperature");
  if (c.kind == Kind::kPlatt) {
    c.a = Number(o, "a");
    c.b = Number(o, "b");
  }
  if (c.kind == Kind::kIsotonic) {
    c.x = Numbers(o, "x");
    c.y = Numbers(o, "y");
  }
  return c;
}

MaskStep ReadStep(const Napi::Value& value) {
  using Kind = MaskStep::Kind;
  const auto o = value.As<Napi::Object>();
  MaskStep step{};
  step.kind = OneOf<Kind>(o, "step",
                          {{"drop_border_connected", Kind::kDropBorderConnected},
                           {"largest_component", Kind::kLargestComponent},
                           {"minimum_area", Kind::kMinimumArea},
                           {"fill_holes", Kind::kFillHoles}});
  step.labels = List(o, "labels", [](const Napi::Value& v) { return v.As<Napi::Number>().Int32Value(); });
  if (step.kind == Kind::kMinimumArea) step.pixels = Int(o, "pixels");
  return step;
}

void ReadDetection(const Napi::Object& o, OutputSpec& spec) {
  spec.box_format = OneOf<BoxFormat>(o, "format",
                                     {{"xyxy", BoxFormat::kXyxy},
                                      {"xywh", BoxFormat::kXywh},
                                      {"cxcywh", BoxFormat::kCxcywh},
                                      {"yxyx", BoxFormat::kYxyx}});
  spec.normalised = Flag(o, "normalised");
  spec.scores_tensor = Text(o, "scores");
  if (Has(o, "classes")) {
    spec.classes_tensor = Text(o, "classes");
    spec.first_class = Int(o, "first");
  }
  if (Has(o, "iou")) {
    spec.nms_iou = Number(o, "iou");
    spec.nms_per_class = Flag(o, "per_class");
  }
}

OutputSpec ReadOutput(const Napi::Value& value) {
  using Kind = OutputSpec::Kind;
  const auto o = value.As<Napi::Object>();
  OutputSpec spec;
  spec.kind = OneOf<Kind>(o, "kind",
                          {{"classification", Kind::kClassification},
                           {"regression", Kind::kRegression},
                           {"segmentation", Kind::kSegmentation},
                           {"detection", Kind::kDetection},
                           {"probability_map", Kind::kProbabilityMap},
                           {"heatmap", Kind::kHeatmap}});
  spec.tensor = Text(o, "tensor");
  spec.activation = OneOf<Activation>(o, "activation",
                                      {{"none", Activation::kNone},
                                       {"sigmoid", Activation::kSigmoid},
                                       {"softmax", Activation::kSoftmax},
                                       {"argmax", Activation::kArgmax},
                                       {"label_map", Activation::kLabelMap}});
  spec.labels = Int(o, "labels");
  spec.thresholds = Numbers(o, "thresholds");
  if (Has(o, "max_boxes")) spec.max_boxes = Int(o, "max_boxes");
  if (spec.kind == Kind::kClassification) spec.calibration = ReadCalibration(Child(o, "calibration"));
  if (spec.kind == Kind::kRegression) {
    spec.multiply = Numbers(o, "multiply");
    spec.add = Numbers(o, "add");
  }
  if (spec.kind == Kind::kSegmentation) spec.steps = List(o, "steps", ReadStep);
  if (spec.kind == Kind::kDetection) ReadDetection(o, spec);
  if (spec.kind == Kind::kProbabilityMap) {
    spec.map_threshold = Number(o, "threshold");
    spec.minimum_area = Number(o, "minimum_area");
    spec.unclip = Number(o, "unclip");
  }
  return spec;
}

Tensor ReadTensor(const Napi::Value& value) {
  const auto o = value.As<Napi::Object>();
  Tensor tensor =
      MakeTensor(Text(o, "name"), ReadDtype(o),
                 List(o, "shape", [](const Napi::Value& v) { return v.As<Napi::Number>().Int64Value(); }));
  const auto bytes = Field(o, "data").As<Napi::Uint8Array>();
  if (bytes.ByteLength() != tensor.Bytes()) Unexpected("data");
  if (tensor.Bytes() > 0) std::memcpy(tensor.data, bytes.Data(), tensor.Bytes());
  return tensor;
}

// ---- C++ to JavaScript.

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

template <typename T, typename Write>
Napi::Array WriteList(Napi::Env env, const std::vector<T>& items, const Write& write) {
  Napi::Array array = Napi::Array::New(env, items.size());
  for (uint32_t i = 0; i < items.size(); ++i) array.Set(i, write(items[i]));
  return array;
}

Napi::Array WriteNumbers(Napi::Env env, const std::vector<int64_t>& numbers) {
  return WriteList(env, numbers, [&](int64_t n) { return Napi::Number::New(env, static_cast<double>(n)); });
}

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
}

/// EngineOutput of src/engine.ts.
Napi::Object WriteOutput(Napi::Env env, OutputResult& result) {
  using Kind = OutputSpec::Kind;
  Napi::Object o = Napi::Object::New(env);
  o.Set("tensor", result.tensor);
  if (result.kind == Kind::kSegmentation || result.kind == Kind::kHeatmap) {
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

Napi::Object WriteInference(Napi::Env env, InferRequest& request) {
  Napi::Object o = Napi::Object::New(env);
  Napi::Array outputs = Napi::Array::New(env, request.outputs.size());
  for (uint32_t i = 0; i < request.outputs.size(); ++i) outputs.Set(i, WriteOutput(env, request.outputs[i]));
  o.Set("outputs", outputs);
  o.Set("input", WriteTensor(env, request.input));
  o.Set("raw", WriteTensors(env, request.raw));
  Napi::Object timings = Napi::Object::New(env);
  timings.Set("queueMs", request.timings.queue_ms);
  timings.Set("prepareMs", request.timings.prepare_ms);
  timings.Set("runMs", request.timings.run_ms);
  timings.Set("postprocessMs", request.timings.postprocess_ms);
  o.Set("timings", timings);
  return o;
}

Napi::Error MakeError(Napi::Env env, const std::string& code, const std::string& message) {
  Napi::Error error = Napi::Error::New(env, message);
  error.Set("code", code);
  return error;
}

// ---- One environment.

class Environment {
 public:
  explicit Environment(Napi::Env env) : env_(env), owner_(next_owner_++) { Open(); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  uint64_t owner() const { return owner_; }
  const std::shared_ptr<Client>& client() const { return client_; }

  using Answer = std::function<Napi::Value(Napi::Env)>;
  /// A promise under a new ticket. `held` stays referenced until the promise is settled.
  std::pair<uint64_t, Napi::Promise> Expect(Answer answer, const Napi::Value& held);
  /// The promise of a ticket for which no letter will come.
  void Forget(uint64_t ticket);

 private:
  struct Pending {
    Napi::Promise::Deferred deferred;
    Answer answer;
    Napi::ObjectReference held;
  };

  void Open();
  void Close();
  void Drain();
  void Settle(const Client::Letter& letter);
  void KeepLoopAlive();

  static std::atomic<uint64_t> next_owner_;

  Napi::Env env_;
  const uint64_t owner_;
  napi_threadsafe_function wake_ = nullptr;
  std::shared_ptr<Client> client_;
  std::map<uint64_t, Pending> pending_;
  uint64_t next_ticket_ = 1;
  bool alive_ = false;
};

std::atomic<uint64_t> Environment::next_owner_ = 1;

void Environment::Open() {
  const auto on_wake = [](napi_env env, napi_value, void* context, void*) {
    if (env != nullptr) static_cast<Environment*>(context)->Drain();
  };
  const napi_status made =
      napi_create_threadsafe_function(env_, nullptr, nullptr, Napi::String::New(env_, "radserve"), 0, 1,
                                      nullptr, nullptr, this, on_wake, &wake_);
  NAPI_THROW_IF_FAILED_VOID(env_, made);
  napi_unref_threadsafe_function(env_, wake_);
  // Called with the box locked and open; Close empties the box before the function goes (hooks run last in
  // first out, and the function's own was registered above).
  client_ = std::make_shared<Client>(
      [wake = wake_] { napi_call_threadsafe_function(wake, nullptr, napi_tsfn_nonblocking); });
  const auto on_close = [](void* self) { static_cast<Environment*>(self)->Close(); };
  NAPI_THROW_IF_FAILED_VOID(env_, napi_add_env_cleanup_hook(env_, on_close, this));
}

void Environment::Close() {
  client_->Close();
  if (Engine* engine = Engine::Started()) engine->RemoveOwner(owner_);
  pending_.clear();
}

std::pair<uint64_t, Napi::Promise> Environment::Expect(Answer answer, const Napi::Value& held) {
  const uint64_t ticket = next_ticket_++;
  auto deferred = Napi::Promise::Deferred::New(env_);
  Napi::ObjectReference reference;
  if (held.IsObject()) reference = Napi::Persistent(held.As<Napi::Object>());
  pending_.emplace(ticket, Pending{deferred, std::move(answer), std::move(reference)});
  KeepLoopAlive();
  return {ticket, deferred.Promise()};
}

void Environment::Forget(uint64_t ticket) {
  pending_.erase(ticket);
  KeepLoopAlive();
}

/// The event loop waits for the engine while, and only while, something is under way.
void Environment::KeepLoopAlive() {
  const bool wanted = !pending_.empty();
  if (wanted == alive_) return;
  alive_ = wanted;
  if (wanted) {
    napi_ref_threadsafe_function(env_, wake_);
  } else {
    napi_unref_threadsafe_function(env_, wake_);
  }
}

void Environment::Drain() {
  const Napi::HandleScope scope(env_);
  for (const Client::Letter& letter : client_->Take()) Settle(letter);
  KeepLoopAlive();
}

void Environment::Settle(const Client::Letter& letter) {
  auto node = pending_.extract(letter.ticket);
  if (node.empty()) return;
  const Pending& pending = node.mapped();
  if (letter.failure) {
    pending.deferred.Reject(MakeError(env_, letter.failure->code, letter.failure->message).Value());
    return;
  }
  try {
    pending.deferred.Resolve(pending.answer(env_));
  } catch (const Napi::Error& e) {
    pending.deferred.Reject(e.Value());
  } catch (const std::exception& e) {
    pending.deferred.Reject(MakeError(env_, "internal", e.what()).Value());
  }
}

// ---- Exports.

Environment& Here(const Napi::CallbackInfo& info) { return *info.Env().GetInstanceData<Environment>(); }

/// Lets no exception but Napi::Error reach Node.
template <Napi::Value (*body)(const Napi::CallbackInfo&)>
Napi::Value Guarded(const Napi::CallbackInfo& info) {
  try {
    return body(info);
  } catch (const EngineError& e) {
    throw MakeError(info.Env(), e.code(), e.what());
  } catch (const Napi::Error&) {
    throw;
  } catch (const std::exception& e) {
    throw MakeError(info.Env(), "internal", e.what());
  }
}

void ReadOptions(const Napi::Object& o, Task& task) {
  task.priority = OneOf<Priority>(
      o, "priority", {{"stat", Priority::kStat}, {"routine", Priority::kRoutine}, {"bulk", Priority::kBulk}});
  if (Has(o, "timeoutMs")) {
    task.deadline =
        Clock::now() + std::chrono::microseconds(static_cast<int64_t>(Number(o, "timeoutMs") * 1000));
  }
  if (Has(o, "cancelId")) task.cancel_id = static_cast<uint64_t>(Number(o, "cancelId"));
}

/// Hands a filled request to a scheduler and gives the promise of its answer.
template <typename T>
Napi::Value Submit(const Napi::CallbackInfo& info, Scheduler& scheduler, const std::shared_ptr<T>& request,
                   Napi::Value (*answer)(Napi::Env, T&), const Napi::Value& held = Napi::Value()) {
  Environment& here = Here(info);
  request->client = here.client();
  request->owner = here.owner();
  const auto [ticket, promise] =
      here.Expect([request, answer](Napi::Env env) { return answer(env, *request); }, held);
  request->ticket = ticket;
  try {
    scheduler.Submit(request);
  } catch (...) {
    here.Forget(ticket);
    throw;
  }
  return promise;
}

Napi::Value Start(const Napi::CallbackInfo& info) {
  const auto o = info[0].As<Napi::Object>();
  const Engine& engine = Engine::Start({Int(o, "threads"), static_cast<size_t>(Number(o, "queueLimit")),
                                        static_cast<size_t>(Number(o, "queueBytes"))});
  const Napi::Env env = info.Env();
  Napi::Object out = Napi::Object::New(env);
  out.Set("onnxRuntimeVersion", RuntimeVersion());
  out.Set("providers", WriteList(env, AvailableProviders(),
                                 [&](const std::string& name) { return Napi::String::New(env, name); }));
  out.Set("threads", engine.threads());
  return out;
}

Napi::Value CudaProblemText(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), CudaProblem());
}

Napi::Value Inspect(const Napi::CallbackInfo& info) {
  auto request = std::make_shared<InspectRequest>();
  request->path = info[0].As<Napi::String>().Utf8Value();
  return Submit<InspectRequest>(
      info, Engine::Get().housekeeping(), request,
      [](Napi::Env env, InspectRequest& r) { return Napi::Value(WriteGraph(env, r.graph)); });
}

Napi::Value Load(const Napi::CallbackInfo& info) {
  const auto o = info[0].As<Napi::Object>();
  auto request = std::make_shared<LoadRequest>();
  request->path = Text(o, "path");
  request->model = std::make_shared<Model>();
  request->model->inputs = List(o, "inputs", ReadInput);
  request->model->outputs = List(o, "outputs", ReadOutput);
  request->model->owner = Here(info).owner();
  request->model->provider =
      OneOf<Provider>(o, "provider", {{"cpu", Provider::kCpu}, {"cuda", Provider::kCuda}});
  return Submit<LoadRequest>(info, Engine::Get().housekeeping(), request, [](Napi::Env env, LoadRequest& r) {
    Napi::Object loaded = WriteGraph(env, r.model->session->graph());
    loaded.Set("id", static_cast<double>(r.id));
    // The registry alone decides how long the session lives.
    r.model.reset();
    return Napi::Value(loaded);
  });
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

Napi::Value Infer(const Napi::CallbackInfo& info) {
  Engine& engine = Engine::Get();
  const auto plane = info[1].As<Napi::Object>();
  const auto options = info[2].As<Napi::Object>();
  auto request = std::make_shared<InferRequest>();
  request->model = engine.Find(static_cast<uint64_t>(info[0].As<Napi::Number>().Int64Value()));
  request->plane = ReadPlane(plane);
  request->bytes = request->plane.data.size();
  request->SetThresholds(ReadThresholds(options));
  ReadOptions(options, *request);
  return Submit<InferRequest>(
      info, engine.work(), request,
      [](Napi::Env env, InferRequest& r) { return Napi::Value(WriteInference(env, r)); },
      Field(plane, "data"));
}

Napi::Value RunTensors(const Napi::CallbackInfo& info) {
  Engine& engine = Engine::Get();
  auto request = std::make_shared<TensorRequest>();
  const auto options = info[1].As<Napi::Object>();
  request->model = engine.Find(static_cast<uint64_t>(info[0].As<Napi::Number>().Int64Value()));
  request->feeds = List(options, "feeds", ReadTensor);
  for (const Tensor& feed : request->feeds) request->bytes += feed.Bytes();
  ReadOptions(options, *request);
  return Submit<TensorRequest>(info, engine.work(), request, [](Napi::Env env, TensorRequest& r) {
    return Napi::Value(WriteTensors(env, r.outputs));
  });
}

Napi::Value Render(const Napi::CallbackInfo& info) {
  auto request = std::make_shared<RenderRequest>();
  const auto plane = info[0].As<Napi::Object>();
  const auto options = info[1].As<Napi::Object>();
  request->plane = ReadPlane(plane);
  request->bytes = request->plane.data.size();
  request->voi_index = Int(options, "voiIndex");
  request->width = Int(options, "width");
  request->height = Int(options, "height");
  return Submit<RenderRequest>(
      info, Engine::Get().work(), request,
      [](Napi::Env env, RenderRequest& r) { return Napi::Value(WriteTensor(env, r.picture).Get("data")); },
      Field(plane, "data"));
}

Napi::Value Cancel(const Napi::CallbackInfo& info) {
  Engine::Get().work().Cancel(static_cast<uint64_t>(info[0].As<Napi::Number>().Int64Value()));
  return info.Env().Undefined();
}

Napi::Value GetStats(const Napi::CallbackInfo& info) {
  const Scheduler::Stats stats = Engine::Get().work().GetStats();
  Napi::Object o = Napi::Object::New(info.Env());
  Napi::Object queued = Napi::Object::New(info.Env());
  queued.Set("stat", static_cast<double>(stats.queued[0]));
  queued.Set("routine", static_cast<double>(stats.queued[1]));
  queued.Set("bulk", static_cast<double>(stats.queued[2]));
  o.Set("queued", queued);
  o.Set("queuedBytes", static_cast<double>(stats.queued_bytes));
  o.Set("running", static_cast<double>(stats.running));
  o.Set("completed", static_cast<double>(stats.completed));
  o.Set("failed", static_cast<double>(stats.failed));
  o.Set("refused", static_cast<double>(stats.refused));
  return o;
}

Napi::Object Init(Napi::Env env, Napi::Object exports) {
  env.SetInstanceData(std::make_unique<Environment>(env).release());
  exports.Set("start", Napi::Function::New(env, Guarded<Start>, "start"));
  exports.Set("cudaProblem", Napi::Function::New(env, Guarded<CudaProblemText>, "cudaProblem"));
  exports.Set("inspect", Napi::Function::New(env, Guarded<Inspect>, "inspect"));
  exports.Set("load", Napi::Function::New(env, Guarded<Load>, "load"));
  exports.Set("unload", Napi::Function::New(env, Guarded<Unload>, "unload"));
  exports.Set("infer", Napi::Function::New(env, Guarded<Infer>, "infer"));
  exports.Set("runTensors", Napi::Function::New(env, Guarded<RunTensors>, "runTensors"));
  exports.Set("render", Napi::Function::New(env, Guarded<Render>, "render"));
  exports.Set("cancel", Napi::Function::New(env, Guarded<Cancel>, "cancel"));
  exports.Set("stats", Napi::Function::New(env, Guarded<GetStats>, "stats"));
  return exports;
}

}  // namespace
}  // namespace radserve

static Napi::Object InitAddon(Napi::Env env, Napi::Object exports) { return radserve::Init(env, exports); }

NODE_API_MODULE(addon, InitAddon)
