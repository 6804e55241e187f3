#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "base/description.h"
#include "base/tensor.h"
#include "base/thread_team.h"

namespace radserve {

/// Windows over a tensor that is larger than what the graph takes.
struct TilingSpec {
  /// Sides in the order of the tensor's axes: [depth,] height, width.
  std::vector<int> window;
  /// Part of a window that the next one covers too, from 0 to below 1.
  double overlap = 0.5;
  enum class Steps { kEven, kStride } steps = Steps::kEven;
  struct Gaussian {
    /// In window sides.
    double sigma = 0.125;
    /// The greatest weight is in the middle, (side - 1) / 2, instead of at floor(side / 2).
    bool middle = false;
    /// No weight is less.
    double least = 0;
  };
  /// Absent: all voxels of a window count the same.
  std::optional<Gaussian> gaussian;
  /// Axes along which each window runs mirrored too, alone and together, counted as in `window`.
  std::vector<int> mirrored;
  /// The value of the tensor that surrounds a tensor which is smaller than the window.
  float padding = 0;
  /// The nearest value of the tensor does, instead.
  bool pad_edge = false;
};

/// Reads `tiling` as the manifest has it.
TilingSpec ReadTilingSpec(const Description& tiling);

/// The first voxels of the windows along one axis of `side` voxels, which is at least `window`.
/// - even: as few windows as the overlap allows, their distances as equal as whole voxels can be,
///   halves to the even number (nnU-Net: Isensee et al., Nature Methods 18, 2021).
/// - stride: every window * (1 - overlap) voxels, cut off to a whole number and at least 1; the
///   last window ends with the axis (MONAI's sliding_window_inference).
std::vector<int> WindowStarts(int side, int window, double overlap, TilingSpec::Steps steps);

/// How much each voxel of a window counts: 1, or exp(-(i - c)^2 / (2 s^2)) for each axis,
/// multiplied, and at least `least`. s is sigma * side; c is floor(side / 2) or the middle, (side -
/// 1) / 2.
std::vector<float> WindowWeights(const TilingSpec& spec);

/// Gives windows [n, ...] to a model and takes its outputs, each [n, ...].
using RunWindows = std::function<std::vector<Tensor>(const Tensor& windows)>;

/// Waits for what windows gave that run beside the thread that calls: the outputs of each of them,
/// [1, ...]. Whoever drops it without a call cancels them.
using TakeOutputs = std::function<std::vector<std::vector<Tensor>>()>;

/// The axis along which windows move slowest, of depth, height and width, and whether they begin at
/// its end.
struct LeadAxis {
  size_t axis = 0;
  bool reversed = false;
};

/// How a model's tensors are cut into windows, beside what its manifest says.
struct TiledView {
  bool channels_last = false;
  /// Most windows in one run.
  int64_t batch = 1;
  LeadAxis lead;
  /// Told how many windows have run, of how many, before the first and after each batch.
  std::function<void(size_t done, size_t windows)> tell;
  /// Blends beside the thread that calls; null for none. It outlives the windows.
  ThreadTeam* team = nullptr;
  /// For a device that runs windows [n, ...] beside the thread that calls, in place of RunWindows:
  /// while it has some batches the last one is blended.
  std::function<TakeOutputs(const Tensor& windows)> begin = nullptr;
};

/// Runs a model over a tensor of one image or volume window by window: what came out for each voxel
/// is the weighted mean over the windows that cover it, and over the mirrored runs of each window.
/// Where the tensor is smaller than the window, it lies in the window's middle, and `padding` fills
/// the rest.
///
/// Over a volume, windows of two sides take each slice by itself: the model is given images,
/// without the depth.
///
/// Windows go along the lead axis and then in the order of the axes, up to `batch` in one run. The
/// sums are kept in float32, so that the outputs take four bytes for each voxel and channel, beside
/// one window's outputs. Every output must have the sides of the window. Throws output_invalid if
/// it has others, no_model_accepts if the outputs would take more than 4 GiB, `cancelled` once
/// `stop` is requested, and what `run` throws.
/// @returns float32 tensors with the sides of `whole`, channels where the model has them.
std::vector<Tensor> RunTiled(const Tensor& whole, const TilingSpec& spec, const TiledView& view,
                             const std::stop_token& stop, const RunWindows& run);

/// A window over a tensor of a volume: where it begins (below 0 where padding comes first), its
/// sides, and along which axes it is mirrored.
struct SeenWindow {
  std::array<int, 3> start{};
  std::array<int, 3> sides{};
  std::array<bool, 3> mirrored{};
};

/// Sees what came out for one window: tensors [1, ...].
using SeeWindow = std::function<void(std::span<const Tensor> outputs, const SeenWindow& window)>;

/// Runs the windows of RunTiled, in the same order, and shows what comes out instead of blending
/// it, whatever its sides are. Throws output_invalid for outputs that do not hold as many windows
/// as ran together, `cancelled` once `stop` is requested, and what `run` and `see` throw.
void ForWindows(const Tensor& whole, const TilingSpec& spec, const TiledView& view,
                const std::stop_token& stop, const RunWindows& run, const SeeWindow& see);

/// Bytes of the sums that RunTiled, or else TiledSlices, keeps for `channels` over a tensor of
/// these sides (depth, height, width).
double BytesOfSums(const std::array<int, 3>& sides, const TilingSpec& spec, const TiledView& view,
                   int64_t channels, bool all);

/// The windows of one tensor.
class WindowRun;

/// Gives what RunTiled makes of a model's only output, to the bit, slice by slice across the lead
/// axis: only sums to which windows are still to come are kept, so that a model of many labels can
/// look at volumes whose blended outputs no memory would hold. Windows run when a slice needs them.
class TiledSlices {
 public:
  /// Sees each slice once, in order, as soon as it is final.
  using See = std::function<void(const Tensor& slice)>;

  /// `whole` must outlive it. Throws what RunTiled throws; no_model_accepts if the sums would take
  /// more than 4 GiB.
  TiledSlices(const Tensor& whole, const TilingSpec& spec, const TiledView& view,
              std::stop_token stop, RunWindows run);
  ~TiledSlices();
  TiledSlices(const TiledSlices&) = delete;
  TiledSlices& operator=(const TiledSlices&) = delete;

  /// Depth, height and width of what is blended.
  const std::array<int, 3>& sides() const;
  /// One slice with the side 1 across the lead axis, until the next call. Slices are counted in the
  /// lead axis' direction and asked for in order; some may be left out.
  const Tensor& Take(int slice, const See& see);
  /// Sees what is left, too. Returns the SHA-256 of each channel of each slice, uint8 [slices,
  /// channels, 32], in the lead axis' direction; of a slice as a whole where channels come last,
  /// [slices, 1, 32].
  Tensor Finish(const See& see);

 private:
  using Digest = std::array<std::byte, 32>;

  void Hash(const Tensor& slice);

  std::unique_ptr<WindowRun> windows_;
  /// The first slice that has not been taken.
  int next_ = 0;
  const Tensor* taken_ = nullptr;
  std::vector<Digest> digests_;
};

}  // namespace radserve
