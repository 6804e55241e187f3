#include "graph/requests.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/sha256.h"
#include "runtime/nameless_file.h"
#include "runtime/weights.h"

namespace radserve {
namespace {

/// The bucket of inputs [1, ...] in the order of the graph's.
BucketKey KeyOf(const Model& model, std::span<const Tensor> inputs) {
  BucketKey key{model.id, {}};
  for (const Tensor& input : inputs)
    key.row_shapes.emplace_back(input.shape.begin() + 1, input.shape.end());
  return key;
}

/// Brings tensors into the order in which the graph has them.
void SortAs(const std::vector<TensorInfo>& graph, std::vector<Tensor>& tensors) {
  std::ranges::sort(tensors, {}, [&](const Tensor& tensor) {
    return std::ranges::find(graph, tensor.name, &TensorInfo::name) - graph.begin();
  });
}

/// Throws bad_request for a byte of a bool that is neither: every kernel would take it for
/// something else.
void CheckFlags(const Tensor& feed) {
  if (feed.dtype != Dtype::kBool) return;
  const std::span<const std::byte> bytes(feed.data, feed.Bytes());
  const auto other =
      std::ranges::find_if(bytes, [](std::byte byte) { return byte > std::byte{1}; });
  if (other == bytes.end()) return;
  throw EngineError("bad_request", "Expected 0 or 1 in each byte of the bool tensor \"" +
                                       feed.name + "\", found " +
                                       std::to_string(std::to_integer<int>(*other)) + ".");
}

/// What a file is known by: where it lies, and when it was last written. Throws model_unavailable
/// if it is no regular one: to open a pipe waits for its writer, and no deadline ends that.
std::string FileKey(const std::string& what, const std::string& path) {
  struct stat about = {};
  const bool there = stat(path.c_str(), &about) == 0;
  if (!there || !S_ISREG(about.st_mode)) {
    throw EngineError("model_unavailable", "Expected " + what + " at " + path + "; found no " +
                                               (there ? "regular " : "") + "file there.");
  }
  const auto number = [](auto value) { return std::to_string(value) + ":"; };
  return number(about.st_dev) + number(about.st_ino) + number(about.st_size) +
         number(about.st_mtim.tv_sec) + number(about.st_mtim.tv_nsec) +
         number(about.st_ctim.tv_sec) + number(about.st_ctim.tv_nsec);
}

std::string SettingsKey(const SessionSettings& settings, int64_t max_batch,
                        std::span<const int> gpus) {
  std::string key = std::to_string(static_cast<int>(settings.provider)) + "/" +
                    std::to_string(static_cast<int>(settings.precision)) + "/" +
                    std::to_string(settings.device_memory) + "/" + std::to_string(max_batch) + "/" +
                    std::to_string(settings.threads);
  for (const int gpu : gpus) key += "," + std::to_string(gpu);
  return key;
}

}  // namespace

void Request::Done(const std::optional<Failure>& failure) noexcept {
  client->Post(ticket, failure);
}

void InspectRequest::Run(const TaskContext&) { graph = InspectGraph(path); }

std::string LoadRequest::Key(const std::stop_token& stop) const {
  std::string key = SettingsKey(model->settings, model->max_batch, gpus);
  if (paths.empty()) {
    CheckStop(stop);
    const auto hash = Sha256(bytes);
    return key + "/bytes:" + std::string(reinterpret_cast<const char*>(hash.data()), hash.size());
  }
  for (const std::string& path : paths) {
    key += "/" + FileKey("a model", path);
    for (const std::string& name : ExternalLocations(path).value_or(std::set<std::string>()))
      key += FileKey("the model's weights", std::filesystem::path(path).parent_path() / name);
  }
  return key;
}

void LoadRequest::WriteBytes() {
  const auto beside = ExternalLocations(bytes).value_or(std::set<std::string>());
  if (!beside.empty()) {
    throw EngineError("model_unavailable", "The model has weights in a file beside it (\"" +
                                               *beside.begin() +
                                               "\"), which its bytes do not bring. Load it by its "
                                               "path, or with all weights inside.");
  }
  try {
    const auto file = std::make_shared<NamelessFile>();
    file->Write(bytes);
    paths = {file->path()};
    model->source = file;
  } catch (const std::runtime_error& e) {
    throw EngineError("overloaded", std::string("The model's bytes cannot be kept: ") + e.what() +
                                        ". Load it by its path, or give the process more memory.");
  }
}

void LoadRequest::Run(const TaskContext& context) {
  Engine& engine = Engine::Get();
  SessionSettings& settings = model->settings;
  settings.threads = threads == 0 ? engine.threads() : std::min(threads, engine.threads());
  if (shared) {
    model->key = Key(context.stop());
    if (std::shared_ptr<Model> there = engine.Hold(model->key, environment)) {
      id = there->id;
      model = std::move(there);
      return;
    }
  }
  if (paths.empty()) WriteBytes();
  bytes = {};
  owner.reset();
  settings.stop = context.stop();
  const auto weights = [this] {
    size_t all = 0;
    for (const std::string& path : paths) all += BytesOfWeights(path);
    return all;
  };
  if (settings.OnGpu()) {
    settings.device = engine.ChooseGpu(gpus, weights(), settings.device_memory);
  } else if (model->Evictable()) {
    // A new model does not wait for those that are in use: it is loaded beside them.
    static_cast<void>(engine.MakeRoomOnCpu(settings, weights()));
  }
  const auto begun = Clock::now();
  const BeforeMean before = TakeBeforeMean();
  engine.LoadWithRoom(settings, [&] {
    model->session = std::make_unique<Session>(paths, settings, "model_unavailable", before);
  });
  settings.stop = {};
  // A GPU makes more sessions of it later.
  if (!settings.OnGpu()) model->source.reset();
  CheckStop(context.stop());
  engine.Warm(model, context.stop());
  CheckStop(context.stop());
  engine.RefreshGpus();
  model->residence.Loaded(Clock::now() - begun);
  model->holders[environment] = 1;
  engine.Keep(model);
  id = model->id;
}

void LoadRequest::Done(const std::optional<Failure>& failure) noexcept {
  if (failure && id != 0) Engine::Get().LetGo(id, environment);
  Request::Done(failure);
}

void ModelRequest::Done(const std::optional<Failure>& failure) noexcept {
  // Both keep shares of the use.
  on_stop_.reset();
  row_.reset();
  use_.reset();
  Request::Done(failure);
}

bool ModelRequest::AcquireModel(const TaskContext& context) {
  if (use_ != nullptr || !model->Evictable()) return true;
  if (pending_ != nullptr) {
    on_stop_.reset();
    const std::shared_ptr<Residence::PendingUse> waited = std::exchange(pending_, nullptr);
    if (waited->entered) use_ = UseOf(model);
    if (waited->failure) throw EngineError(waited->failure->code, waited->failure->message);
  } else if (model->residence.BeginUse()) {
    use_ = UseOf(model);
  }
  CheckStop(context.stop());
  if (use_ != nullptr) return true;
  const auto pending = std::make_shared<Residence::PendingUse>(context.Park());
  pending_ = pending;
  if (model->residence.Wait(pending)) Engine::Get().RequestReload(model, priority);
  on_stop_.emplace(context.stop(), [model = model, pending] { model->residence.Drop(pending); });
  return false;
}

std::vector<Tensor> ModelRequest::RunHere(std::span<const Tensor> inputs,
                                          std::span<const std::string> outputs,
                                          const TaskContext& context) {
  return model->session->Run(inputs, outputs, context.Wide(), context.stop());
}

bool ModelRequest::Batched(const TaskContext& context) const {
  if (model->batcher == nullptr || model->RunsByWindows()) return false;
  // Alone on the CPU, all cores for one row are sooner than any batch.
  return model->settings.OnGpu() || !context.Wide();
}

TensorMaker ModelRequest::InputMaker() const {
  if (model->batcher == nullptr || model->RunsByWindows()) return MakeTensorForOverwrite;
  return [this](std::string name, Dtype dtype, const std::vector<int64_t>& shape) {
    const BucketKey key{model->id, {{shape.begin() + 1, shape.end()}}};
    return model->device->NewRow(key, std::move(name), dtype);
  };
}

std::shared_ptr<BatchRow> ModelRequest::MakeRow(std::vector<Tensor> inputs) const {
  auto row = std::make_shared<BatchRow>();
  row->key = KeyOf(*model, inputs);
  row->priority = priority;
  row->deadline = deadline;
  row->inputs = std::move(inputs);
  if (use_ == nullptr) {
    row->keep = model;
  } else {
    row->keep = use_;
  }
  return row;
}

void ModelRequest::Park(const TaskContext& context, std::vector<Tensor> inputs) {
  SortAs(model->session->graph().inputs, inputs);
  const auto row = MakeRow(std::move(inputs));
  row->done = context.Park();
  model->batcher->Submit(row);
  row_ = row;
  on_stop_.emplace(context.stop(), [batcher = model->batcher, row] { batcher->Cancel(row); });
}

std::pair<std::vector<Tensor>, Clock::duration> ModelRequest::TakeRow(const TaskContext& context) {
  on_stop_.reset();
  if (row_->crowded_out) {
    const auto started = Clock::now();
    std::vector<Tensor> outputs = RunHere(row_->inputs, model->OutputNames(), context);
    const auto took = Clock::now() - started;
    model->runs.Ran(1, took);
    return {std::move(outputs), took};
  }
  if (row_->failure) {
    throw EngineError(row_->failure->code, row_->failure->message);
  }
  return {std::move(row_->outputs), row_->ran};
}

Clock::duration ModelRequest::DeviceTime() const {
  return row_ == nullptr ? Clock::duration{} : row_->share;
}

bool RunRequest::IsRow() const {
  const GraphInfo& graph = model->session->graph();
  const auto feeds_input = [&](const TensorInfo& input) {
    return std::ranges::count_if(feeds, [&](const Tensor& feed) {
             return feed.name == input.name && feed.dtype == input.dtype &&
                    HasPlainElements(feed.dtype) && !feed.shape.empty() && feed.shape[0] == 1;
           }) == 1;
  };
  const std::vector<std::string> named = model->OutputNames();
  return feeds.size() == graph.inputs.size() && std::ranges::all_of(graph.inputs, feeds_input) &&
         std::ranges::all_of(graph.outputs, [&](const TensorInfo& output) {
           return HasPlainElements(output.dtype) &&
                  std::ranges::find(named, output.name) != named.end();
         });
}

std::vector<std::string> RunRequest::Wanted() const {
  if (!wanted.empty()) return wanted;
  std::vector<std::string> names;
  for (const TensorInfo& info : model->session->graph().outputs) names.push_back(info.name);
  return names;
}

void RunRequest::Run(const TaskContext& context) {
  if (parked()) {
    std::vector<Tensor> given = TakeRow(context).first;
    for (const std::string& name : Wanted())
      outputs.push_back(*std::ranges::find(given, name, &Tensor::name));
    return;
  }
  if (!AcquireModel(context)) return;
  const Client::Pin pin(*client);
  for (const Tensor& feed : feeds) CheckFlags(feed);
  if (Batched(context) && IsRow()) {
    // The device reads it when the environment may be gone.
    std::vector<Tensor> inputs;
    for (const Tensor& feed : feeds) {
      inputs.push_back(InputMaker()(feed.name, feed.dtype, feed.shape));
      if (feed.Bytes() > 0) std::memcpy(inputs.back().data, feed.data, feed.Bytes());
    }
    Park(context, std::move(inputs));
    return;
  }
  const auto started = Clock::now();
  outputs = RunNow(context);
  model->runs.Ran(1, Clock::now() - started);
}

}  // namespace radserve
