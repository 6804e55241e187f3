#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/image.h"
#include "base/tensor.h"
#include "base/thread_team.h"
#include "engine/image_model.h"
#include "graph/requests.h"
#include "postprocess/postprocess.h"
#include "prepare/geometry.h"
#include "prepare/image.h"
#include "prepare/regrid.h"
#include "prepare/statistics.h"
#include "prepare/values.h"
#include "prepare/volume.h"
#include "prepare/volume_geometry.h"
#include "scheduling/task.h"
#include "tiling/tiling.h"

namespace radserve {

struct Timings {
  double queue_ms = 0;
  double prepare_ms = 0;
  double run_ms = 0;
  double postprocess_ms = 0;
};

/// A member of a case: so many of the request's planes, and where they lie as a volume.
struct Source {
  size_t first = 0;
  size_t count = 0;
  std::optional<VolumeGeometry> geometry;
  /// Its voxels are not those of the first source, and are taken to that one's grid.
  bool regrid = false;
};

/// Facts that only the preparation knows; receipts say them.
struct PreparationFacts {
  /// Where one frame lies in its tensor; a volume's grid follows from its manifest.
  std::optional<Geometry> geometry;
  std::optional<Statistics> found;
  std::optional<Range> observed;
  bool cut = false;
};

/// Loads a model of images: its session takes what its specs prepare, and gives what they decode.
class LoadImageModelRequest : public LoadRequest {
 public:
  /// Whether the mean of several graphs is that of what came out of the activations, and not of
  /// what went in.
  bool mean_after_activation = false;

 private:
  BeforeMean TakeBeforeMean() override;
};

/// A request for a model of images, of that kind: whole images and volumes go through the graph
/// window by window, where the manifest asks for it.
template <typename Kind>
class ByWindows : public Kind {
 public:
  Clock::duration DeviceTime() const override;

 protected:
  const ImageModel& Images() const { return static_cast<const ImageModel&>(*this->model); }
  std::vector<Tensor> RunHere(std::span<const Tensor> inputs, std::span<const std::string> outputs,
                              const TaskContext& context) override {
    return RunAlong({}, inputs, outputs, context);
  }
  /// The same, along `lead`.
  std::vector<Tensor> RunAlong(const LeadAxis& lead, std::span<const Tensor> inputs,
                               std::span<const std::string> outputs, const TaskContext& context);
  /// How windows of the model's only input are cut, and run by a device that has it; its progress
  /// is told to the engine.
  TiledView ViewAlong(const LeadAxis& lead, ThreadTeam* team, const TaskContext& context);
  /// Whether windows run on a device: it counts their runs itself.
  bool WindowsOnDevice() const { return Images().tiling && this->model->batcher != nullptr; }

 private:
  TakeOutputs BeginWindows(const Tensor& windows, const TaskContext& context);

  /// The share of the device that windows have had.
  Clock::duration windows_time_{};
};

/// Raw tensors through a model of images: canaries and `models try`.
class RunImageModelRequest : public ByWindows<RunRequest> {};

/// One frame, or the slices of one volume, through one model: prepare, run, post-process.
class InferRequest : public ByWindows<ModelRequest> {
 public:
  void Run(const TaskContext& context) override;
  /// `own` is the number of the frame among its neighbours. Throws bad_request if the model wants a
  /// volume and there is none, or the other way round, and for neighbours that it does not look at.
  void SetPlanes(std::vector<Plane> given, const std::optional<VolumeGeometry>& lies, size_t own);
  /// After SetPlanes: which planes are of which source of a case; the first is the one on whose
  /// grid results lie. Throws bad_request if they are not all planes, or not as many as the model's
  /// inputs ask for.
  void SetSources(std::vector<Source> given);
  /// For each input of numbers, in the manifest's order, its numbers. Throws bad_request if they do
  /// not fit.
  void SetNumbers(std::vector<std::vector<double>> given);
  /// The given thresholds, or the manifest's. Throws bad_request if the given ones do not fit its
  /// labels.
  void SetThresholds(const std::optional<std::vector<std::vector<double>>>& given);

  std::vector<Plane> planes;
  /// The frame itself, where `planes` has its neighbours too.
  size_t centre = 0;
  std::vector<Source> sources;
  std::vector<std::vector<double>> numbers;
  /// Present for volumes.
  std::optional<VolumeGeometry> geometry;
  /// For a model with label channels what another model marked: slices, rows, columns.
  std::vector<uint8_t> labels;
  /// For each output, one number a label.
  std::vector<std::vector<double>> thresholds;
  /// Whether the answer is to hold the tensor that goes in, too.
  bool dump = false;

  std::vector<OutputResult> outputs;
  /// The raw tensors that came out, each once, in the manifest's order.
  std::vector<Tensor> raw;
  /// The tensors that went in, in the manifest's order; after the run only if `dump` asks for them.
  std::vector<Tensor> inputs;
  /// One for each input of pixels, or for each of its parts.
  std::vector<PreparationFacts> preparation;
  Timings timings;

 private:
  void Prepare(const TaskContext& context);
  /// Fills the label channels of a tensor. `inside` are the voxels of the body, all where it is
  /// empty. Throws bad_request if the labels do not fit the volume.
  void AddLabels(const InputSpec& spec, const PreparedVolume& volume,
                 std::span<const uint8_t> inside, const TaskContext& context, Tensor& tensor);
  /// Runs the model on this thread.
  void RunModel(const TaskContext& context);
  void PostprocessAll(const TaskContext& context);
  /// Boxes in volumes: runs the windows here, and keeps what each of them found instead of what
  /// came out. If the tensors are asked for, they are those of the window that found most: what
  /// goes through the graph by itself.
  void CollectWindows(const TaskContext& context);
  /// The only output of a volume whose windows are blended slice by slice: they run here.
  void RunSlices(const TaskContext& context);
  /// Of all its planes.
  size_t Pixels() const;
  /// Where the tensor of the only input lies, for models of volumes in windows.
  const VolumePlacement* TiledPlacement() const;
  const Tensor& Raw(const std::string& name) const;

  /// Where an input lies in the source; one of the two is present, none for numbers. The tensors
  /// have moved to `inputs`.
  struct Prepared {
    std::optional<PreparedImage> image;
    std::optional<PreparedVolume> volume;
  };
  /// One input of pixels: its parts, and the labels of another model.
  Tensor PrepareImageInput(const InputSpec& spec, Prepared& prepared, const TaskContext& context,
                           const TensorMaker& make);
  /// One input, or one part of it, which is its tensor.
  Tensor PrepareOne(const InputSpec& spec, Prepared& prepared,
                    const std::optional<VolumeBody>& body, const TaskContext& context,
                    const TensorMaker& make);
  /// The slices that an input or a part of it is made of; those of a source of a case on the grid
  /// of the first.
  std::span<const Plane> SlicesOf(const InputSpec& spec, const TaskContext& context);
  /// The box that counts of the volumes of all parts together; none where the input does not crop.
  std::optional<VolumeBody> BodyOf(const InputSpec& spec, const TaskContext& context);
  /// Sources on the grid of the first, from when they are first looked at until their part is
  /// prepared.
  std::map<size_t, RegriddedSlices> moved_;
  /// One for each input of the manifest; of several parts the first.
  std::vector<Prepared> prepared_;
  /// The model runs while its output is post-processed.
  bool by_slices_ = false;
  /// The windows that CollectWindows ran, and for each output the boxes that they found.
  std::vector<SeenWindow> windows_;
  std::vector<FoundCuboids> found_;
};

class RenderRequest : public Request {
 public:
  void Run(const TaskContext& context) override;

  Plane plane;
  int voi_index = 0;
  int width = 0;
  int height = 0;
  /// uint8 [1,H,W,3].
  Tensor picture;
};

}  // namespace radserve
