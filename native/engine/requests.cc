#include "engine/requests.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "engine/engine.h"

namespace radserve {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

/// The bucket of an input [1, ...].
BucketKey KeyOf(const Model& model, const std::vector<int64_t>& shape) {
  return {model.id, {{shape.begin() + 1, shape.end()}}};
}

double Elapsed(Clock::time_point from, Clock::time_point to) { return Milliseconds(to - from).count(); }

}  // namespace

void Request::Done(const std::optional<Failure>& failure) noexcept { client->Post(ticket, failure); }

void InspectRequest::Run(const Lane&) { graph = InspectGraph(path); }

void LoadRequest::Run(const Lane& lane) {
  Engine& engine = Engine::Get();
  SessionSettings& settings = model->settings;
  settings.threads = engine.threads();
  if (settings.provider == Provider::kCuda) {
    settings.device = engine.ChooseGpu(gpus, BytesOfWeights(path), settings.device_memory);
  }
  model->session = std::make_unique<Session>(path, settings, "model_unavailable");
  CheckStop(lane.stop());
  engine.Warm(model, lane.stop());
  CheckStop(lane.stop());
  engine.LookAtGpus();
  engine.Keep(model);
  id = model->id;
}

void LoadRequest::Done(const std::optional<Failure>& failure) noexcept {
  if (failure && id != 0) Engine::Get().Remove(id);
  Request::Done(failure);
}

bool ModelRequest::Batched(const Lane& lane) const {
  if (model->batcher == nullptr) return false;
  // Alone on the CPU, all cores for one image are sooner than any batch.
  return model->settings.provider != Provider::kCpu || !lane.Wide();
}

TensorMaker ModelRequest::InputMaker() const {
  if (model->batcher == nullptr) return MakeTensorForOverwrite;
  return [this](std::string name, Dtype dtype, const std::vector<int64_t>& shape) {
    return model->batcher->NewRow(KeyOf(*model, shape), std::move(name), dtype);
  };
}

void ModelRequest::Park(const Lane& lane, Tensor input) {
  auto row = std::make_shared<BatchRow>();
  row->key = KeyOf(*model, input.shape);
  row->priority = priority;
  row->deadline = deadline;
  row->inputs = {std::move(input)};
  row->keep = model;
  row->done = lane.Park();
  model->batcher->Submit(row);
  row_ = row;
  on_stop_.emplace(lane.stop(), [batcher = model->batcher, row] { batcher->Cancel(row); });
}

std::pair<std::vector<Tensor>, Clock::duration> ModelRequest::TakeRow() {
  on_stop_.reset();
  if (row_->failure) {
    throw EngineError(row_->failure->code, row_->failure->message);
  }
  return {std::move(row_->outputs), row_->ran};
}

Clock::duration ModelRequest::DeviceTime() const { return row_ == nullptr ? Clock::duration{} : row_->share; }

void InferRequest::SetThresholds(const std::optional<std::vector<std::vector<double>>>& given) {
  const std::vector<OutputSpec>& specs = model->outputs;
  for (const OutputSpec& spec : specs) thresholds.push_back(spec.thresholds);
  if (!given) return;
  const auto same_size = [](const auto& a, const auto& b) { return a.size() == b.size(); };
  if (!std::equal(given->begin(), given->end(), thresholds.begin(), thresholds.end(), same_size)) {
    throw EngineError("bad_request", "Expected one threshold for each label of each output.");
  }
  thresholds = *given;
}

void InferRequest::SetPlanes(std::vector<Plane> given, const std::optional<VolumeGeometry>& lies) {
  const bool volume = model->inputs.at(0).volume;
  if (volume && (!lies || given.empty())) {
    throw EngineError("bad_request",
                      "Expected the slices of one volume and its geometry, because the model takes "
                      "whole volumes; found " +
                          std::to_string(given.size()) + " plane(s)" + (lies ? "." : " without geometry."));
  }
  if (!volume && (lies || given.size() != 1)) {
    throw EngineError("bad_request",
                      "Expected one plane without geometry, because the model takes single images; "
                      "found " +
                          std::to_string(given.size()) + " plane(s)" + (lies ? " with geometry." : "."));
  }
  planes = std::move(given);
  geometry = lies;
}

const Tensor& InferRequest::Raw(const std::string& name) const {
  const auto found = std::find_if(raw.begin(), raw.end(), [&](const Tensor& t) { return t.name == name; });
  if (found == raw.end()) throw EngineError("internal", "The model has no output \"" + name + "\".");
  return *found;
}

void InferRequest::RunModel(const Lane& lane) {
  const auto started = Clock::now();
  raw = model->session->Run(std::span(&input, 1), model->OutputNames(), lane.Wide(), lane.stop());
  const auto took = Clock::now() - started;
  timings.run_ms = Milliseconds(took).count();
  model->runs.Ran(1, took);
  if (!dump) input = {};
}

void InferRequest::Prepare(const Lane& lane) {
  const InputSpec& spec = model->inputs[0];
  const auto started = Clock::now();
  const Client::Pin pin(*client);
  // What JavaScript gets keeps its memory for as long as it likes.
  const TensorMaker make = dump ? MakeTensorForOverwrite : InputMaker();
  if (geometry) {
    volume_ = PrepareVolume(planes, *geometry, spec, lane.stop(), make);
    input = std::move(volume_->tensor);
    preparation.found = volume_->found;
  } else {
    image_ = PrepareImage(planes[0], spec, make);
    input = std::move(image_->tensor);
    preparation = {image_->geometry, image_->found, image_->observed};
  }
  timings.prepare_ms = Elapsed(started, Clock::now());
}

void InferRequest::PostprocessAll(const Lane& lane) {
  const auto ran = Clock::now();
  const bool channels_last = model->inputs[0].channels_last;
  const auto tensor = [this](const std::string& name) -> const Tensor& { return Raw(name); };
  for (size_t i = 0; i < model->outputs.size(); ++i) {
    CheckStop(lane.stop());
    if (volume_) {
      outputs.push_back(
          PostprocessVolume(model->outputs[i], tensor, *volume_, channels_last, thresholds[i], lane.stop()));
    } else {
      const SourceGrid grid{image_->geometry, image_->padding, channels_last};
      outputs.push_back(Postprocess(model->outputs[i], tensor, grid, thresholds[i]));
    }
  }
  timings.postprocess_ms = Elapsed(ran, Clock::now());
}

void InferRequest::Run(const Lane& lane) {
  if (parked()) {
    Clock::duration ran{};
    std::tie(raw, ran) = TakeRow();
    timings.run_ms = Milliseconds(ran).count();
  } else {
    timings.queue_ms = Elapsed(lane.submitted(), Clock::now());
    Prepare(lane);
    CheckStop(lane.stop());
    if (Batched(lane)) {
      Park(lane, dump ? input : std::move(input));
      return;
    }
    RunModel(lane);
  }
  CheckStop(lane.stop());
  PostprocessAll(lane);
}

bool TensorRequest::IsRow() const {
  const GraphInfo& graph = model->session->graph();
  if (feeds.size() != 1 || graph.inputs.size() != 1) return false;
  const Tensor& feed = feeds[0];
  const TensorInfo& input = graph.inputs[0];
  const std::vector<std::string> named = model->OutputNames();
  return feed.name == input.name && feed.dtype == input.dtype && !feed.shape.empty() && feed.shape[0] == 1 &&
         std::ranges::all_of(graph.outputs, [&](const TensorInfo& output) {
           return std::ranges::find(named, output.name) != named.end();
         });
}

void TensorRequest::Run(const Lane& lane) {
  const std::vector<TensorInfo>& graph = model->session->graph().outputs;
  const auto place = [&](const Tensor& tensor) {
    return std::ranges::find(graph, tensor.name, &TensorInfo::name) - graph.begin();
  };
  if (parked()) {
    outputs = TakeRow().first;
    std::ranges::sort(outputs, {}, place);
    return;
  }
  const Client::Pin pin(*client);
  if (Batched(lane) && IsRow()) {
    // The device reads it when the environment may be gone.
    const Tensor& feed = feeds[0];
    Tensor input = InputMaker()(feed.name, feed.dtype, feed.shape);
    if (feed.Bytes() > 0) std::memcpy(input.data, feed.data, feed.Bytes());
    Park(lane, std::move(input));
    return;
  }
  std::vector<std::string> names;
  for (const TensorInfo& info : graph) names.push_back(info.name);
  const auto started = Clock::now();
  outputs = model->session->Run(feeds, names, lane.Wide(), lane.stop());
  model->runs.Ran(1, Clock::now() - started);
}

void RenderRequest::Run(const Lane&) {
  InputSpec spec;
  spec.dtype = Dtype::kUint8;
  spec.channels_last = true;
  spec.size = {SizeSpec::Kind::kFixed, height, width, 1, 0};
  spec.fit = Fit::kStretch;
  spec.interpolation = Interpolation::kDisplay;
  spec.values.kind = ValuesSpec::Kind::kVoi;
  spec.values.index = voi_index;
  spec.values.if_absent = ValuesSpec::IfAbsent::kMinMax;
  spec.channels = ChannelOrder::kRgb;
  spec.normalisation.kind = NormalisationSpec::Kind::kScale;
  spec.normalisation.multiply = 255;
  const Client::Pin pin(*client);
  picture = PrepareImage(plane, spec).tensor;
}

}  // namespace radserve
