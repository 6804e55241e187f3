#include "engine/requests.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <latch>
#include <tuple>

#include "base/error.h"
#include "base/sha256.h"
#include "engine/ensemble.h"
#include "engine/volume_plan.h"
#include "postprocess/kind.h"
#include "postprocess/masks.h"
#include "prepare/labels.h"
#include "runtime/run_memory.h"

namespace radserve {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

/// Numbers of a request as the tensor that the input wants.
Tensor TensorOf(const InputSpec& spec, const std::vector<double>& numbers,
                const TensorMaker& make) {
  std::vector<int64_t> shape = {1};
  if (!spec.flat) shape.push_back(static_cast<int64_t>(numbers.size()));
  Tensor tensor = make(spec.tensor, spec.dtype, std::move(shape));
  // Floats have no room for all digits of these
  const auto wholes = [&]<typename Whole>(Whole) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto whole = static_cast<Whole>(std::nearbyint(numbers[i]));
      std::memcpy(tensor.data + i * sizeof(whole), &whole, sizeof(whole));
    }
    return tensor;
  };
  if (spec.dtype == Dtype::kInt64) return wholes(int64_t{});
  if (spec.dtype == Dtype::kInt32) return wholes(int32_t{});
  const std::vector<float> floats(numbers.begin(), numbers.end());
  StoreRow(spec.dtype, floats.data(), floats.size(), tensor.data, 1);
  return tensor;
}

/// A map whose rows are columns of the image, [1, C, width, height], as others are, [1, C, height,
/// width].
Tensor SidesSwapped(const Tensor& map) {
  const size_t rank = map.shape.size();
  if (rank < 2) return MakeTensor(map.name, map.dtype, map.shape);
  std::vector<int64_t> shape = map.shape;
  std::swap(shape[rank - 2], shape[rank - 1]);
  const auto height = static_cast<size_t>(shape[rank - 2]);
  const auto width = static_cast<size_t>(shape[rank - 1]);
  const size_t size = DtypeSize(map.dtype);
  Tensor swapped = MakeTensorForOverwrite(map.name, map.dtype, std::move(shape));
  const size_t planes = height * width == 0 ? 0 : map.Elements() / (height * width);
  for (size_t plane = 0; plane < planes; ++plane) {
    const size_t first = plane * height * width;
    for (size_t y = 0; y < height; ++y) {
      for (size_t x = 0; x < width; ++x) {
        std::memcpy(swapped.data + (first + y * width + x) * size,
                    map.data + (first + x * height + y) * size, size);
      }
    }
  }
  return swapped;
}

/// Nobody asks how far work is that has ended.
class ProgressEnd {
 public:
  explicit ProgressEnd(uint64_t id) : id_(id) {}
  ~ProgressEnd() { Engine::Get().TellProgress(id_, std::nullopt); }
  ProgressEnd(const ProgressEnd&) = delete;
  ProgressEnd& operator=(const ProgressEnd&) = delete;

 private:
  uint64_t id_;
};

double Elapsed(Clock::time_point from, Clock::time_point to) {
  return Milliseconds(to - from).count();
}

}  // namespace

BeforeMean LoadImageModelRequest::TakeBeforeMean() {
  return mean_after_activation ? TakeActivations(static_cast<ImageModel&>(*model)) : BeforeMean();
}

template <typename Kind>
std::vector<Tensor> ByWindows<Kind>::RunAlong(const LeadAxis& lead, std::span<const Tensor> inputs,
                                              std::span<const std::string> outputs,
                                              const TaskContext& context) {
  const ImageModel& images = Images();
  if (!images.tiling || inputs.size() != 1 || images.FindsBoxes())
    return Kind::RunHere(inputs, outputs, context);
  ThreadTeam team(Engine::Get().threads(), [&context] { return context.Wide(); });
  return RunTiled(inputs[0], *images.tiling, ViewAlong(lead, &team, context), context.stop(),
                  [&](const Tensor& windows) {
                    auto outputs_of_windows =
                        Kind::RunHere(std::span(&windows, 1), outputs, context);
                    images.SeeWindows();
                    return outputs_of_windows;
                  });
}

template <typename Kind>
TiledView ByWindows<Kind>::ViewAlong(const LeadAxis& lead, ThreadTeam* team,
                                     const TaskContext& context) {
  const auto tell = [id = this->cancel_id](size_t done, size_t windows) {
    Engine::Get().TellProgress(id, Engine::Progress{done, windows});
  };
  const ImageModel& images = Images();
  TiledView view{images.inputs.at(0).channels_last, images.max_batch, lead, tell, team, {}};
  if (WindowsOnDevice()) {
    view.begin = [this, &context](const Tensor& windows) { return BeginWindows(windows, context); };
  }
  return view;
}

template <typename Kind>
TakeOutputs ByWindows<Kind>::BeginWindows(const Tensor& windows, const TaskContext& context) {
  const Model& model = *this->model;
  struct Windows {
    Batcher* batcher = nullptr;
    std::vector<std::shared_ptr<BatchRow>> rows;
    /// Shared with the batcher's thread, which may still be in its call when it is not waited for
    /// any more.
    std::shared_ptr<std::latch> left;
    std::optional<std::stop_callback<std::function<void()>>> on_stop;

    Windows() = default;
    Windows(const Windows&) = delete;
    Windows& operator=(const Windows&) = delete;
    ~Windows() {
      on_stop.reset();
      Cancel();
    }
    void Cancel() const {
      for (const auto& row : rows) batcher->Cancel(row);
    }
  };
  const auto begun = std::make_shared<Windows>();
  begun->batcher = model.batcher;
  const auto count = static_cast<size_t>(windows.shape.at(0));
  begun->left = std::make_shared<std::latch>(static_cast<ptrdiff_t>(count));
  BucketKey key{model.id, {{windows.shape.begin() + 1, windows.shape.end()}}};
  for (size_t i = 0; i < count; ++i) {
    Tensor input = model.device->NewRow(key, windows.name, windows.dtype);
    std::memcpy(input.data, windows.data + i * input.Bytes(), input.Bytes());
    const auto row = this->MakeRow({std::move(input)});
    row->done = [left = begun->left] { left->count_down(); };
    begun->rows.push_back(row);
  }
  model.batcher->Submit(begun->rows);
  begun->on_stop.emplace(context.stop(),
                         [windows_begun = begun.get()] { windows_begun->Cancel(); });
  return [this, begun] {
    begun->left->wait();
    std::vector<std::vector<Tensor>> outputs;
    for (const auto& row : begun->rows) {
      if (row->failure) throw EngineError(row->failure->code, row->failure->message);
      windows_time_ += row->share;
      outputs.push_back(std::move(row->outputs));
    }
    return outputs;
  };
}

template <typename Kind>
Clock::duration ByWindows<Kind>::DeviceTime() const {
  return windows_time_ + Kind::DeviceTime();
}

template class ByWindows<ModelRequest>;
template class ByWindows<RunRequest>;

void InferRequest::SetThresholds(const std::optional<std::vector<std::vector<double>>>& given) {
  const std::vector<OutputSpec>& specs = Images().outputs;
  for (const OutputSpec& spec : specs) thresholds.push_back(spec.thresholds);
  if (!given) return;
  const auto same_size = [](const auto& a, const auto& b) { return a.size() == b.size(); };
  if (!std::equal(given->begin(), given->end(), thresholds.begin(), thresholds.end(), same_size)) {
    throw EngineError("bad_request", "Expected one threshold for each label of each output.");
  }
  thresholds = *given;
}

void InferRequest::SetPlanes(std::vector<Plane> given, const std::optional<VolumeGeometry>& lies,
                             size_t own) {
  const auto some = [&](auto&& wanted) { return std::ranges::any_of(Images().inputs, wanted); };
  const bool volume = some([](const InputSpec& spec) { return spec.volume; });
  const bool neighbours = some([](const InputSpec& spec) { return spec.neighbours.has_value(); });
  if (volume && (!lies || given.empty())) {
    throw EngineError("bad_request",
                      "Expected the slices of one volume and its geometry, because the model takes "
                      "whole volumes; found " +
                          std::to_string(given.size()) + " plane(s)" +
                          (lies ? "." : " without geometry."));
  }
  const bool several = neighbours || some([](const InputSpec& spec) { return spec.OfCase(); });
  if (!volume &&
      (lies || given.empty() || own >= given.size() || (!several && given.size() != 1))) {
    throw EngineError(
        "bad_request",
        std::string("Expected one plane") + (neighbours ? " and its neighbours" : "") +
            " without geometry, because the model takes single images; found " +
            std::to_string(given.size()) + " plane(s)" + (lies ? " with geometry." : "."));
  }
  planes = std::move(given);
  geometry = lies;
  centre = own;
}

void InferRequest::SetSources(std::vector<Source> given) {
  size_t most = 0;
  const auto see = [&](const InputSpec& spec) { most = std::max(most, spec.source); };
  for (const InputSpec& spec : Images().inputs) {
    see(spec);
    for (const InputSpec& part : spec.parts) see(part);
  }
  size_t next = 0;
  for (Source& source : given) {
    if (source.count == 0 || source.geometry.has_value() != geometry.has_value()) {
      throw EngineError("bad_request",
                        "Expected planes of each source, and geometry of each or of none.");
    }
    source.first = next;
    next += source.count;
  }
  const bool cases = most > 0;
  if (cases ? given.size() <= most : !given.empty()) {
    throw EngineError("bad_request", "Expected as many sources as the model's roles are; found " +
                                         std::to_string(given.size()) + ".");
  }
  if (!given.empty() && next != planes.size()) {
    throw EngineError("bad_request", "Expected the planes of all sources together.");
  }
  sources = std::move(given);
}

void InferRequest::SetNumbers(std::vector<std::vector<double>> given) {
  std::vector<size_t> counts;
  for (const InputSpec& spec : Images().inputs) {
    if (spec.numbers > 0) counts.push_back(static_cast<size_t>(spec.numbers));
  }
  if (!std::ranges::equal(counts, given, {}, {}, &std::vector<double>::size)) {
    throw EngineError("bad_request",
                      "Expected as many numbers as the model's inputs of numbers hold.");
  }
  numbers = std::move(given);
}

const Tensor& InferRequest::Raw(const std::string& name) const {
  const auto found =
      std::find_if(raw.begin(), raw.end(), [&](const Tensor& t) { return t.name == name; });
  if (found == raw.end())
    throw EngineError("internal", "The model has no output \"" + name + "\".");
  return *found;
}

void InferRequest::RunModel(const TaskContext& context) {
  const VolumePlacement* placement = TiledPlacement();
  const LeadAxis lead = placement == nullptr ? LeadAxis{} : LeadAlongSlices(*placement);
  if (placement != nullptr && !dump) {
    std::array<int, 3> sides{};
    std::ranges::transform(placement->axes, sides.begin(), &VolumeAxis::tensor);
    by_slices_ = BlendsBySlices(Images(), sides, lead);
  }
  if (by_slices_) return;
  const auto started = Clock::now();
  if (placement != nullptr && Images().FindsBoxes()) {
    CollectWindows(context);
  } else {
    raw = RunAlong(lead, inputs, model->OutputNames(), context);
    // What OpenVINO takes is not counted here: the thread's last run was another model's.
    if (!Images().tiling && model->settings.provider != Provider::kOpenVino)
      Images().seen.Saw(Images().SizeOf(Pixels()), MostOfLastRun());
  }
  const auto took = Clock::now() - started;
  timings.run_ms = Milliseconds(took).count();
  if (!WindowsOnDevice()) model->runs.Ran(1, took);
  if (!dump) inputs.clear();
}

void InferRequest::CollectWindows(const TaskContext& context) {
  const std::vector<std::string> names = model->OutputNames();
  const VolumePlacement& placement = prepared_.at(0).volume->placement;
  const Tensor whole = inputs.at(0);
  found_.resize(Images().outputs.size());
  std::vector<std::array<std::byte, 32>> digests;
  TiledView view = ViewAlong({}, nullptr, context);
  if (dump) {
    view.batch = 1;
    view.begin = nullptr;
  }
  Tensor went_in;
  size_t most = 0;
  const auto see = [&](std::span<const Tensor> given, const SeenWindow& window) {
    const TensorByName tensor = [&](const std::string& name) -> const Tensor& {
      return given[static_cast<size_t>(std::ranges::find(names, name) - names.begin())];
    };
    size_t count = 0;
    for (size_t i = 0; i < found_.size(); ++i) {
      const OutputSpec& spec = Images().outputs[i];
      const size_t before = found_[i].boxes.size();
      spec.kind->collect(spec, tensor, placement, window, thresholds[i], found_[i]);
      count += found_[i].boxes.size() - before;
    }
    windows_.push_back(window);
    if (dump && (raw.empty() || count > most)) {
      most = count;
      inputs = {went_in};
      raw.assign(given.begin(), given.end());
    }
    for (const Tensor& one : given) digests.push_back(Sha256(std::span(one.data, one.Bytes())));
  };
  const auto run = [&](const Tensor& windows) {
    went_in = windows;
    auto outputs_of_windows =
        model->session->Run(std::span(&windows, 1), names, context.Wide(), context.stop());
    model->SeeWindows();
    return outputs_of_windows;
  };
  ForWindows(whole, *Images().tiling, view, context.stop(), run, see);
  if (dump) return;
  const std::vector<int64_t> shape = {static_cast<int64_t>(windows_.size()),
                                      static_cast<int64_t>(names.size()), 32};
  Tensor& told = raw.emplace_back(MakeTensorForOverwrite(names.front(), Dtype::kUint8, shape));
  std::memcpy(told.data, digests.data(), told.Bytes());
}

size_t InferRequest::Pixels() const {
  size_t pixels = 0;
  for (const Plane& plane : planes) {
    pixels += static_cast<size_t>(plane.format.rows) * static_cast<size_t>(plane.format.columns);
  }
  return pixels;
}

const VolumePlacement* InferRequest::TiledPlacement() const {
  const bool tiled = Images().tiling && prepared_.size() == 1 && prepared_[0].volume;
  return tiled ? &prepared_[0].volume->placement : nullptr;
}

void InferRequest::RunSlices(const TaskContext& context) {
  const auto started = Clock::now();
  Clock::duration ran{};
  const std::vector<std::string> names = model->OutputNames();
  const auto run = [&](const Tensor& windows) {
    const auto began = Clock::now();
    auto ran_out =
        model->session->Run(std::span(&windows, 1), names, context.Wide(), context.stop());
    ran += Clock::now() - began;
    model->SeeWindows();
    return ran_out;
  };
  const PreparedVolume& volume = *prepared_.at(0).volume;
  const InputSpec& input = Images().inputs.at(0);
  ThreadTeam team(Engine::Get().threads(), [&context] { return context.Wide(); });
  TiledView view = ViewAlong(LeadAlongSlices(volume.placement), &team, context);
  if (view.begin) {
    view.begin = [&ran, begin = view.begin](const Tensor& windows) -> TakeOutputs {
      return [&ran, take = begin(windows)] {
        const auto began = Clock::now();
        auto outputs_of_windows = take();
        ran += Clock::now() - began;
        return outputs_of_windows;
      };
    };
  }
  TiledSlices slices(inputs.at(0), *Images().tiling, view, context.stop(), run);
  const VolumeView volume_view{input.channels_last,
                               input.resampling && input.resampling->activate_last, false, &team};
  outputs.push_back(PostprocessSlices(Images().outputs.at(0), slices, volume, volume_view,
                                      thresholds.at(0), context.stop(), raw.emplace_back()));
  inputs.clear();
  timings.run_ms = Milliseconds(ran).count();
  timings.postprocess_ms = Elapsed(started, Clock::now()) - timings.run_ms;
  if (!WindowsOnDevice()) model->runs.Ran(1, ran);
}

void InferRequest::AddLabels(const InputSpec& spec, const PreparedVolume& volume,
                             std::span<const uint8_t> inside, const TaskContext& context,
                             Tensor& tensor) {
  const auto& [slices, rows, columns] = volume.sides;
  const size_t voxels =
      static_cast<size_t>(slices) * static_cast<size_t>(rows) * static_cast<size_t>(columns);
  if (labels.size() != voxels) {
    throw EngineError("bad_request", "Expected the labels of another model for each of " +
                                         std::to_string(voxels) + " voxels, found " +
                                         std::to_string(labels.size()) + ".");
  }
  // Voxels outside of everything that is not 0 are no background to nnU-Net, but a label of its
  // own.
  for (size_t i = 0; i < inside.size(); ++i) {
    if (labels[i] == 0 && inside[i] == 0) labels[i] = kOutside;
  }
  FillLabelChannels(labels, volume.placement, spec, context.stop(), tensor);
}

Tensor InferRequest::PrepareOne(const InputSpec& spec, Prepared& prepared,
                                const std::optional<VolumeBody>& body, const TaskContext& context,
                                const TensorMaker& make) {
  const std::span<const Plane> all(planes);
  if (geometry) {
    ThreadTeam team(Engine::Get().threads(), [&context] { return context.Wide(); });
    prepared.volume = PrepareVolume(SlicesOf(spec, context), *geometry, spec, context.stop(), make,
                                    body ? &*body : nullptr, &team);
    moved_.erase(spec.source);
    preparation.push_back(
        {std::nullopt, prepared.volume->found, std::nullopt, prepared.volume->cut});
    return std::move(prepared.volume->tensor);
  }
  if (sources.empty()) {
    // An input without neighbours sees the frame alone.
    const bool alone = !spec.neighbours;
    prepared.image =
        PrepareImage(alone ? all.subspan(centre, 1) : all, alone ? 0 : centre, spec, make);
  } else {
    prepared.image = PrepareImage(all.subspan(sources.at(spec.source).first, 1), 0, spec, make);
  }
  const PreparedImage& image = *prepared.image;
  preparation.push_back({image.geometry, image.found, image.observed, image.cut});
  return std::move(prepared.image->tensor);
}

std::span<const Plane> InferRequest::SlicesOf(const InputSpec& spec, const TaskContext& context) {
  if (sources.empty()) return planes;
  const auto slices_of = [&](const Source& source) {
    return std::span<const Plane>(planes).subspan(source.first, source.count);
  };
  const auto grid_of = [&](const Source& source) {
    const PixelFormat& format = planes[source.first].format;
    return VolumeGrid{*source.geometry,
                      {static_cast<int>(source.count), format.rows, format.columns}};
  };
  const Source& source = sources.at(spec.source);
  if (!source.regrid) return slices_of(source);
  RegriddedSlices& moved = moved_[spec.source];
  if (moved.planes.empty()) {
    moved =
        RegridSlices(slices_of(source), grid_of(source), grid_of(sources.front()), context.stop());
  }
  return moved.planes;
}

std::optional<VolumeBody> InferRequest::BodyOf(const InputSpec& spec, const TaskContext& context) {
  if (!geometry || !spec.resampling || !spec.resampling->CropsSource()) return std::nullopt;
  const std::span<const InputSpec> parts = spec.Parts();
  const size_t count = sources.empty() ? planes.size() : sources.front().count;
  const PixelFormat& format = planes.front().format;
  const std::array<int, 3> sides = {static_cast<int>(count), format.rows, format.columns};
  const bool marks = spec.AsksForInside();
  BodyFinder finder(sides, marks);
  for (const InputSpec& part : parts) finder.Add(SlicesOf(part, context), part, context.stop());
  VolumeBody body = finder.Take();
  // nnU-Net counts what is enclosed as inside, and so what another model marked, wherever that is.
  // It fills in three dimensions, in which nothing is enclosed by a single slice.
  if (marks && sides[0] > 1) FillHoles({body.inside, sides[0], sides[1], sides[2], {}}, 1);
  if (spec.label_channels > 0 && labels.size() == body.inside.size()) {
    for (size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] != 0) body.inside[i] = 1;
    }
  }
  return body;
}

Tensor InferRequest::PrepareImageInput(const InputSpec& spec, Prepared& prepared,
                                       const TaskContext& context, const TensorMaker& make) {
  const std::optional<VolumeBody> body = BodyOf(spec, context);
  Tensor tensor;
  if (spec.parts.empty()) {
    tensor = PrepareOne(spec, prepared, body, context, make);
  } else {
    std::vector<Tensor> parts;
    SharedTensor shared(spec.Channels() + spec.label_channels, make);
    const TensorMaker part_maker = [&](std::string name, Dtype dtype, std::vector<int64_t> shape) {
      return spec.channels_last ? MakeTensorForOverwrite(std::move(name), dtype, std::move(shape))
                                : shared.Part(std::move(name), dtype, std::move(shape));
    };
    for (const InputSpec& part : spec.parts) {
      Prepared other;
      Prepared& own = parts.empty() ? prepared : other;
      parts.push_back(PrepareOne(part, own, body, context, part_maker));
    }
    if (spec.channels_last && spec.label_channels > 0) {
      std::vector<int64_t> shape = parts.front().shape;
      shape.back() = spec.label_channels;
      parts.push_back(MakeTensor(spec.tensor, spec.dtype, std::move(shape)));
    }
    tensor = spec.channels_last ? JoinChannels(parts, make) : shared.Take();
  }
  if (spec.label_channels > 0 && prepared.volume) {
    const std::span<const uint8_t> inside = body ? body->inside : std::span<const uint8_t>();
    AddLabels(spec, *prepared.volume, inside, context, tensor);
  }
  return tensor;
}

void InferRequest::Prepare(const TaskContext& context) {
  const auto started = Clock::now();
  const Client::Pin pin(*client);
  // JavaScript keeps the memory of what it gets for as long as it likes.
  const TensorMaker make = dump ? MakeTensorForOverwrite : InputMaker();
  auto given = numbers.begin();
  for (const InputSpec& spec : Images().inputs) {
    Prepared& prepared = prepared_.emplace_back();
    if (spec.numbers > 0) {
      inputs.push_back(TensorOf(spec, *given++, make));
    } else {
      inputs.push_back(PrepareImageInput(spec, prepared, context, make));
    }
    CheckStop(context.stop());
  }
  timings.prepare_ms = Elapsed(started, Clock::now());
}

void InferRequest::PostprocessAll(const TaskContext& context) {
  const auto ran = Clock::now();
  ThreadTeam team(geometry ? Engine::Get().threads() : 1, [&context] { return context.Wide(); });
  std::map<std::string, Tensor> swapped;
  for (const OutputSpec& spec : Images().outputs) {
    if (spec.kind->gridded && Images().inputs.at(spec.input).transposed)
      swapped.emplace(spec.tensor, SidesSwapped(Raw(spec.tensor)));
  }
  const auto tensor = [&](const std::string& name) -> const Tensor& {
    const auto found = swapped.find(name);
    return found == swapped.end() ? Raw(name) : found->second;
  };
  for (size_t i = 0; i < Images().outputs.size(); ++i) {
    CheckStop(context.stop());
    const OutputSpec& spec = Images().outputs[i];
    const Prepared& prepared = prepared_.at(spec.input);
    const bool channels_last = Images().inputs.at(spec.input).channels_last;
    if (!windows_.empty()) {
      outputs.push_back(PostprocessCuboids(spec, std::move(found_[i]), windows_,
                                           prepared.volume->placement, thresholds[i]));
    } else if (prepared.volume) {
      const auto& resampling = Images().inputs.at(spec.input).resampling;
      const VolumeView view{channels_last, resampling && resampling->activate_last, dump, &team};
      outputs.push_back(
          PostprocessVolume(spec, tensor, *prepared.volume, view, thresholds[i], context.stop()));
    } else {
      const PreparedImage& image = prepared.image.value();
      const SourceGrid grid{image.geometry, image.padding, channels_last};
      if (spec.activation == Activation::kPrototypes) {
        const size_t boxes_output = TableOf(spec, Images().outputs);
        const TableOfBoxes boxes{Images().outputs.at(boxes_output), thresholds.at(boxes_output)};
        outputs.push_back(PostprocessPrototypes(spec, boxes, tensor, grid, thresholds[i]));
      } else {
        outputs.push_back(Postprocess(spec, tensor, grid, thresholds[i]));
      }
    }
  }
  timings.postprocess_ms = Elapsed(ran, Clock::now());
}

void InferRequest::Run(const TaskContext& context) {
  const ProgressEnd end(cancel_id);
  if (!parked() && !AcquireModel(context)) return;
  if (parked()) {
    Clock::duration ran{};
    std::tie(raw, ran) = TakeRow(context);
    timings.run_ms = Milliseconds(ran).count();
  } else {
    timings.queue_ms = Elapsed(context.submitted(), Clock::now());
    Prepare(context);
    CheckStop(context.stop());
    if (Batched(context)) {
      Park(context, dump ? inputs : std::exchange(inputs, {}));
      return;
    }
    RunModel(context);
  }
  CheckStop(context.stop());
  if (by_slices_) {
    RunSlices(context);
  } else {
    PostprocessAll(context);
  }
}

void RenderRequest::Run(const TaskContext&) {
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
  picture = PrepareImage({&plane, 1}, 0, spec).tensor;
}

}  // namespace radserve
