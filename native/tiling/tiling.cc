#include "tiling/tiling.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"
#include "tiling/blend.h"
#include "tiling/windows.h"

namespace radserve {
namespace {

/// Sums above this are refused.
constexpr double kMaxSumBytes = 4294967296.0;

/// The grid of an output of `rows` windows. Throws output_invalid unless it has the window's sides.
Grid GridOfOutput(const Tensor& output, int64_t rows, const Grid& window, size_t spatial) {
  if (output.shape.size() == spatial + 2 && output.shape[0] == rows) {
    const Grid grid = GridOf(output, spatial, window.channels_last);
    if (grid.sides == window.sides) return grid;
  }
  throw EngineError("output_invalid",
                    "Expected the output \"" + output.name + "\" of " + std::to_string(rows) +
                        " window(s) with the window's sides, found " + ShapeText(output.shape) +
                        ". Tiling blends outputs voxel by voxel.");
}

/// What one of several windows gave, without a copy.
Tensor RowOf(const Tensor& output, size_t row, size_t rows) {
  if (rows == 1) return output;
  if (output.shape.empty() || output.shape[0] != static_cast<int64_t>(rows)) {
    throw EngineError("output_invalid", "Expected the output \"" + output.name + "\" of " +
                                            std::to_string(rows) + " windows, found " +
                                            ShapeText(output.shape) + ". Set batching.max to 1.");
  }
  Tensor one = output;
  one.shape[0] = 1;
  one.data += row * one.Bytes();
  return one;
}

double Bytes(const Sides& sides, double channels) {
  return static_cast<double>(Voxels(sides)) * channels * sizeof(float);
}

/// Batches that a device has at once: one for each of two lanes, and one more for when either has
/// ended.
constexpr size_t kAhead = 3;

}  // namespace

/// The windows of one tensor, which run one batch after the other, and what they add up to.
class WindowRun {
 public:
  /// @param all whether all slices are open at once.
  /// @param see is shown the outputs, and nothing is blended; null for blending.
  WindowRun(const Tensor& whole, const TilingSpec& spec, const TiledView& view,
            std::stop_token stop, RunWindows run, bool all, SeeWindow see = nullptr)
      : view_(view),
        stop_(std::move(stop)),
        run_(std::move(run)),
        see_(std::move(see)),
        spatial_(spec.window.size()),
        whole_spatial_(whole.shape.size() - 2),
        from_(GridOf(whole, whole_spatial_, view.channels_last)),
        window_(from_),
        windows_(WindowsOf(from_.sides, spec, view.lead)),
        weights_(WindowWeights(spec)),
        whole_name_(whole.name),
        dtype_(whole.dtype) {
    window_.sides = SidesOf(spec.window);
    cutter_.emplace(whole, from_, window_, spec);
    Tell();
    if (see_) return;
    const size_t lead = view.lead.axis;
    open_ = all ? slices()
                : OpenSlices(windows_, from_.sides, window_.sides[lead], view.lead, view.batch);
    // Weights add up as the outputs of a model do that gives ones.
    const Grid voxels{window_.sides, 1, 1, false};
    ones_ = MakeTensorForOverwrite("", Dtype::kFloat32, voxels.Shape(1, 3));
    std::fill_n(reinterpret_cast<float*>(ones_.data), ones_.Elements(), 1.0F);
    sums_.emplace(ones_, voxels, from_.sides, view.lead, open_, 3);
  }

  const Sides& sides() const { return from_.sides; }
  int slices() const { return from_.sides[view_.lead.axis]; }
  ThreadTeam& team() { return view_.team == nullptr ? alone_ : *view_.team; }
  bool Done() const { return next_ == windows_.size(); }
  /// Whether windows are still to come that reach a slice, which is counted in the lead axis'
  /// direction, as all are.
  bool IsOpen(int slice) const {
    const size_t lead = view_.lead.axis;
    return !Done() &&
           Counted(view_.lead, slices(), windows_[next_].start[lead], window_.sides[lead]) <= slice;
  }

  void RunBatch() {
    CheckStop(stop_);
    const std::span tiles = Batch(next_);
    if (!view_.begin) {
      AddAll(run_(Cut(tiles)), tiles);
    } else {
      while (ahead_.size() < kAhead && begun_ < windows_.size()) {
        const std::span after = Batch(begun_);
        ahead_.push_back(view_.begin(Cut(after)));
        begun_ += after.size();
      }
      const TakeOutputs take = std::move(ahead_.front());
      ahead_.pop_front();
      const std::vector<std::vector<Tensor>> outputs = take();
      for (size_t row = 0; row < tiles.size(); ++row)
        AddAll(outputs.at(row), tiles.subspan(row, 1));
    }
    for (Tile tile : tiles) {
      if (!sums_) break;
      tile.mirrored = {};
      sums_->Add(ones_, 0, tile, weights_, team());
    }
    next_ += tiles.size();
    Tell();
  }

  std::vector<Tensor> TakeAll() {
    std::vector<Tensor> blended;
    for (Blend& blend : blends_) blended.push_back(blend.TakeAll(sums_->sums()));
    return blended;
  }

  /// Channels of the only output before its sides. Asked after the first batch.
  int64_t planes() const { return blends_.at(0).planes(); }

  /// The only output's.
  const Tensor& TakeSlice(int slice) {
    const int at = view_.lead.reversed ? slices() - 1 - slice : slice;
    const Tensor& taken = blends_.at(0).TakeSlice(at, sums_->sums(), team());
    sums_->Clear(at);
    return taken;
  }

 private:
  void Tell() const {
    if (view_.tell) view_.tell(next_, windows_.size());
  }

  /// The windows that run together from that one on.
  std::span<const Tile> Batch(size_t first) const {
    const auto rows = std::min(view_.batch, static_cast<int64_t>(windows_.size() - first));
    return {windows_.data() + first, static_cast<size_t>(rows)};
  }

  Tensor Cut(std::span<const Tile> tiles) const {
    const size_t bytes = static_cast<size_t>(window_.Elements()) * DtypeSize(dtype_);
    const auto rows = static_cast<int64_t>(tiles.size());
    Tensor input = MakeTensorForOverwrite(whole_name_, dtype_, window_.Shape(rows, spatial_));
    for (size_t row = 0; row < tiles.size(); ++row)
      cutter_->Cut(tiles[row], input.data + row * bytes);
    return input;
  }

  void AddAll(const std::vector<Tensor>& outputs, std::span<const Tile> tiles) {
    for (size_t o = 0; o < outputs.size() && !see_; ++o) Add(o, outputs[o], tiles);
    for (size_t row = 0; row < tiles.size() && see_; ++row) {
      std::vector<Tensor> own;
      for (const Tensor& output : outputs) own.push_back(RowOf(output, row, tiles.size()));
      see_(own, {tiles[row].start, window_.sides, tiles[row].mirrored});
    }
  }

  void Add(size_t o, const Tensor& output, std::span<const Tile> tiles) {
    const auto rows = static_cast<int64_t>(tiles.size());
    const Grid grid = GridOfOutput(output, rows, window_, spatial_);
    if (blends_.size() == o) {
      CheckBytes(output, grid);
      blends_.emplace_back(output, grid, from_.sides, view_.lead, open_, whole_spatial_);
    }
    if (!blends_.at(o).Fits(output, rows, spatial_)) {
      throw EngineError(
          "output_invalid",
          "The output \"" + output.name + "\" does not have the same channels for every window.");
    }
    for (size_t row = 0; row < tiles.size(); ++row) {
      blends_[o].Add(output, static_cast<int64_t>(row), tiles[row], weights_, team());
    }
  }

  void CheckBytes(const Tensor& output, const Grid& grid) const {
    Sides open = from_.sides;
    open[view_.lead.axis] = open_;
    const double bytes = Bytes(open, static_cast<double>(grid.planes * grid.per_voxel));
    if (bytes <= kMaxSumBytes) return;
    throw EngineError(
        "no_model_accepts",
        "The output \"" + output.name + "\" over " + std::to_string(open_) + " of " +
            std::to_string(slices()) + " slices would take " +
            std::to_string(static_cast<int64_t>(bytes / 1073741824)) +
            " GiB, which is more than 4 GiB. Use a larger spacing, smaller windows, or a smaller "
            "image.");
  }

  TiledView view_;
  std::stop_token stop_;
  RunWindows run_;
  SeeWindow see_;
  /// Axes of a window, and of the tensor.
  size_t spatial_;
  size_t whole_spatial_;
  Grid from_;
  Grid window_;
  std::vector<Tile> windows_;
  std::vector<float> weights_;
  std::string whole_name_;
  Dtype dtype_;
  std::optional<Cutter> cutter_;
  int open_ = 0;
  Tensor ones_;
  std::optional<Blend> sums_;
  std::vector<Blend> blends_;
  size_t next_ = 0;
  /// The next batches, which a device has already, and the first window after them.
  std::deque<TakeOutputs> ahead_;
  size_t begun_ = 0;
  ThreadTeam alone_;
};

std::vector<Tensor> RunTiled(const Tensor& whole, const TilingSpec& spec, const TiledView& view,
                             const std::stop_token& stop, const RunWindows& run) {
  WindowRun windows(whole, spec, view, stop, run, true);
  while (!windows.Done()) windows.RunBatch();
  return windows.TakeAll();
}

void ForWindows(const Tensor& whole, const TilingSpec& spec, const TiledView& view,
                const std::stop_token& stop, const RunWindows& run, const SeeWindow& see) {
  WindowRun windows(whole, spec, view, stop, run, true, see);
  while (!windows.Done()) windows.RunBatch();
}

double BytesOfSums(const Sides& sides, const TilingSpec& spec, const TiledView& view,
                   int64_t channels, bool all) {
  Sides open = sides;
  const size_t lead = view.lead.axis;
  if (!all) {
    const int length = SidesOf(spec.window)[lead];
    open[lead] =
        OpenSlices(WindowsOf(sides, spec, view.lead), sides, length, view.lead, view.batch);
  }
  return Bytes(open, static_cast<double>(channels + 1));
}

TiledSlices::TiledSlices(const Tensor& whole, const TilingSpec& spec, const TiledView& view,
                         std::stop_token stop, RunWindows run)
    : windows_(
          std::make_unique<WindowRun>(whole, spec, view, std::move(stop), std::move(run), false)) {}

TiledSlices::~TiledSlices() = default;

const Sides& TiledSlices::sides() const { return windows_->sides(); }

const Tensor& TiledSlices::Take(int slice, const See& see) {
  for (; next_ <= slice; ++next_) {
    while (windows_->IsOpen(next_)) windows_->RunBatch();
    taken_ = &windows_->TakeSlice(next_);
    see(*taken_);
    Hash(*taken_);
  }
  return *taken_;
}

Tensor TiledSlices::Finish(const See& see) {
  const int slices = windows_->slices();
  Take(slices - 1, see);
  const auto channels = static_cast<int64_t>(digests_.size()) / slices;
  Tensor all =
      MakeTensorForOverwrite(taken_->name, Dtype::kUint8, {slices, channels, sizeof(Digest)});
  std::memcpy(all.data, digests_.data(), all.Bytes());
  return all;
}

void TiledSlices::Hash(const Tensor& slice) {
  const auto planes = static_cast<size_t>(windows_->planes());
  const size_t bytes = slice.Bytes() / planes;
  const size_t first = digests_.size();
  digests_.resize(first + planes);
  windows_->team().For(planes, [&](size_t plane) {
    digests_[first + plane] = Sha256(std::span(slice.data + plane * bytes, bytes));
  });
}

}  // namespace radserve
