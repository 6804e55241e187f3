#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "postprocess/activation.h"
#include "postprocess/highest.h"
#include "postprocess/kind.h"
#include "postprocess/maps.h"
#include "postprocess/masks.h"
#include "postprocess/postprocess.h"
#include "resample/resample.h"

namespace radserve {
namespace {

/// A tensor read as channels of maps over the model's grid.
struct VolumeMaps {
  const Tensor* tensor = nullptr;
  /// Those of the tensor that are read, and how many they are.
  std::vector<ptrdiff_t> which;
  size_t channels = 0;
  /// Depth, height, width; strides in elements.
  std::array<int, 3> sides{};
  std::array<ptrdiff_t, 3> strides{};
  ptrdiff_t channel_stride = 0;
  /// Where slices of the source come one after the other: gives the one with that number, counted
  /// as the source's. The strides are those of its tensor.
  std::function<const Tensor&(int slice)> take;
};

/// The channels of a segmentation: what is ignored is read too where it may be the highest.
VolumeMaps ReadMaps(const Tensor& tensor, const OutputSpec& spec, bool channels_last) {
  const size_t channels = ChannelsOf(spec);
  const auto [planar, sides] = ReadMapShape(tensor, 3, channels, channels_last);
  VolumeMaps maps{&tensor, {}, 0, {sides[0], sides[1], sides[2]}, {}, 0, {}};
  for (int c = 0; c < static_cast<int>(channels); ++c) {
    if (!MayOverlap(spec.activation) || spec.PlaceOf(c) >= 0) maps.which.push_back(c);
  }
  maps.channels = maps.which.size();
  const ptrdiff_t step = planar ? 1 : static_cast<ptrdiff_t>(channels);
  maps.strides = {step * maps.sides[1] * maps.sides[2], step * maps.sides[2], step};
  maps.channel_stride = planar ? maps.strides[0] * maps.sides[0] : 1;
  return maps;
}

/// The same of maps that come slice by slice; `see` is shown each once.
VolumeMaps ReadSlices(TiledSlices& slices, const OutputSpec& spec, bool channels_last,
                      const TiledSlices::See& see) {
  VolumeMaps maps = ReadMaps(slices.Take(0, see), spec, channels_last);
  maps.sides = slices.sides();
  maps.take = [&slices, see](int slice) -> const Tensor& { return slices.Take(slice, see); };
  return maps;
}

/// Calls `check` with all values of a tensor, in portions, from several threads.
template <typename Check>
void ForValues(const Tensor& tensor, const std::stop_token& stop, ThreadTeam& team,
               const Check& check) {
  constexpr size_t kPortion = size_t{1} << 16;
  const size_t all = tensor.Elements();
  team.For((all + kPortion - 1) / kPortion, [&](size_t portion) {
    CheckStop(stop);
    const size_t at = portion * kPortion;
    const size_t count = std::min(kPortion, all - at);
    if (tensor.dtype == Dtype::kFloat32) {
      return check(std::span<const float>(reinterpret_cast<const float*>(tensor.data) + at, count));
    }
    std::vector<float> values(count);
    LoadRow(tensor, static_cast<ptrdiff_t>(at), 1, count, values.data());
    check(std::span<const float>(values));
  });
}

/// The map as the source sees it: which of its axes, and from which end, runs along slices, rows
/// and columns.
struct SourceView {
  std::array<int, 3> sides{};
  std::array<ptrdiff_t, 3> strides{};
  ptrdiff_t first = 0;
  VolumeTaps taps;
};

SourceView ViewFromSource(const VolumeMaps& maps, const VolumePlacement& placement,
                          Interpolation interpolation) {
  SourceView view;
  for (size_t s = 0; s < 3; ++s) {
    const size_t a = placement.TensorAxis(static_cast<int>(s));
    const VolumeAxis& axis = placement.axes[a];
    view.sides[s] = maps.sides[a];
    const bool apart = s == 0 && maps.take;
    if (!apart) view.strides[s] = axis.flipped ? -maps.strides[a] : maps.strides[a];
    if (axis.flipped && !apart) view.first += maps.strides[a] * (maps.sides[a] - 1);
    view.taps[s] = axis.Back(maps.sides[a], interpolation);
  }
  return view;
}

/// Activates all channels of a plane of `pixels`, in parts of it.
void Activate(Activation activation, std::span<float> values, size_t pixels, ThreadTeam& team) {
  constexpr size_t kPart = size_t{1} << 12;
  if (activation == Activation::kSigmoid) {
    team.For((values.size() + kPart - 1) / kPart, [&](size_t part) {
      Sigmoid(values.subspan(part * kPart, std::min(kPart, values.size() - part * kPart)));
    });
  }
  if (activation == Activation::kSoftmax) {
    team.For((pixels + kPart - 1) / kPart,
             [&](size_t part) { SoftmaxPlanes(values, pixels, part * kPart, (part + 1) * kPart); });
  }
}

/// Of `labels` that of the channel that is highest at each voxel, the first of equal ones.
void Highest(const float* const* channels, std::span<const uint8_t> labels, size_t plane,
             uint8_t* out, ThreadTeam& team) {
  constexpr size_t kPart = size_t{1} << 12;
  team.For((plane + kPart - 1) / kPart, [&](size_t part) {
    const size_t at = part * kPart;
    const size_t voxels = std::min(kPart, plane - at);
    std::vector<float> best(channels[0] + at, channels[0] + at + voxels);
    std::fill_n(out + at, voxels, labels.front());
    for (size_t c = 1; c < labels.size(); ++c) {
      TakeHigher({channels[c] + at, voxels}, labels[c], best.data(), out + at);
    }
  });
}

/// What is wanted of one volume's maps.
struct Job {
  const OutputSpec& spec;
  const PreparedVolume& volume;
  /// Of what the maps cover.
  VolumePlacement placement;
  const VolumeView& view;
  std::span<const double> thresholds;
  const std::stop_token& stop;
  ThreadTeam& team;
};

bool ActivatesLast(const Job& job) { return job.view.activate_last || job.spec.activate_last; }

void CheckValues(const Job& job, const Tensor& tensor) {
  ForValues(tensor, job.stop, job.team, [&](std::span<const float> values) {
    if (job.spec.activation == Activation::kLabelMap) {
      std::vector<uint8_t> labels(values.size());
      return ToLabels(values, job.spec.labels, tensor.name, labels.data());
    }
    CheckFinite(values, tensor.name);
    if (job.spec.activation == Activation::kNone) CheckProbabilities(values, tensor.name);
  });
}

/// Whether the values themselves are looked at, beside the question which of them is the highest.
bool Shown(const OutputSpec& spec, const Tensor* probabilities) {
  return spec.Own<SegmentationSpec>().fractional || probabilities != nullptr;
}

/// Decides the voxels of one grid, slice by slice, by the values of all channels there.
class Decision {
 public:
  /// Makes room in `out`, whose sides are set, and fills it. `probabilities` takes the values
  /// themselves; null for none.
  Decision(const Job& job, size_t channels, MaskResult& out, Tensor* probabilities)
      : job_(job),
        labels_(LabelsOfChannels(job.spec)),
        channels_(channels),
        out_(out),
        probabilities_(probabilities) {
    const OutputSpec& spec = job.spec;
    out.overlapping = MayOverlap(spec.activation);
    out.mask.resize(out.Voxels() * (out.overlapping ? channels : 1));
    if (spec.Own<SegmentationSpec>().fractional)
      out.fractions.resize(out.Voxels() * static_cast<size_t>(spec.labels));
    // The highest of several stays the highest, so that softmax counts only where its values do.
    const bool softmax = spec.activation == Activation::kSoftmax && Shown(spec, probabilities);
    if (!ActivatesLast(job) || (spec.activation != Activation::kSigmoid && !softmax)) return;
    activated_.resize(channels * out.Plane());
    for (size_t c = 0; c < channels; ++c) planes_.push_back(activated_.data() + c * out.Plane());
  }

  void operator()(int slice, const float* const* given) {
    const OutputSpec& spec = job_.spec;
    const size_t plane = out_.Plane();
    const size_t voxels = out_.Voxels();
    const size_t at = static_cast<size_t>(slice) * plane;
    const float* const* channels = given;
    if (!planes_.empty()) {
      for (size_t c = 0; c < channels_; ++c) std::copy_n(given[c], plane, planes_[c]);
      Activate(spec.activation, activated_, plane, job_.team);
      channels = planes_.data();
    }
    uint8_t* out = out_.mask.data() + at;
    for (size_t c = 0; probabilities_ != nullptr && c < channels_; ++c) {
      std::copy_n(channels[c], plane,
                  reinterpret_cast<float*>(probabilities_->data) + c * voxels + at);
    }
    const bool fractional = spec.Own<SegmentationSpec>().fractional;
    for (size_t c = 0; fractional && c < channels_; ++c) {
      const int label = LabelOf(c);
      if (label > 0)
        ToSteps({channels[c], plane},
                out_.fractions.data() + static_cast<size_t>(label - 1) * voxels + at);
    }
    if (spec.activation == Activation::kLabelMap) {
      ToLabels({channels[0], plane}, spec.labels, spec.tensor, out);
    } else if (!out_.overlapping) {
      // Rounding makes equal scores of some that are not: what is decided are the scores before it.
      Highest(given, labels_, plane, out, job_.team);
    } else {
      for (size_t c = 0; c < channels_; ++c) {
        ToMask({channels[c], plane}, job_.thresholds[c], out + c * voxels);
      }
    }
  }

 private:
  /// The number of a channel's label, from 1; 0 or less for none.
  int LabelOf(size_t channel) const {
    const auto c = static_cast<int>(channel);
    return out_.overlapping ? c + 1 : job_.spec.PlaceOf(c);
  }

  const Job& job_;
  /// Of each channel, where one alone is the highest.
  std::vector<uint8_t> labels_;
  size_t channels_;
  MaskResult& out_;
  Tensor* probabilities_;
  /// All channels of a plane that is activated last, and where each begins; empty where none is.
  std::vector<float> activated_;
  std::vector<float*> planes_;
};

/// Sets the sides of a mask on the grid of a map, as far as it lies within the source. Throws
/// output_invalid if nothing does.
ModelMask MaskWithin(const VolumeMaps& maps, const VolumePlacement& placement) {
  ModelMask mask;
  for (size_t s = 0; s < 3; ++s) {
    const size_t a = placement.TensorAxis(static_cast<int>(s));
    mask.spans[s] = placement.axes[a].Within(maps.sides[a]);
    if (mask.spans[s].count == 0) {
      throw EngineError("output_invalid",
                        "Expected voxels of the output \"" + maps.tensor->name +
                            "\" whose centres lie within the source, found none of " +
                            std::to_string(maps.sides[a]) + " along axis " + std::to_string(a + 1) +
                            ".");
    }
  }
  mask.slices = mask.spans[0].count;
  mask.rows = mask.spans[1].count;
  mask.columns = mask.spans[2].count;
  return mask;
}

/// Decides a map on its own grid, as its slices go by.
class ModelGrid {
 public:
  /// `mask` is from MaskWithin, and is filled.
  ModelGrid(const Job& job, const VolumeMaps& maps, const SourceView& view, ModelMask& mask)
      : mask_(mask),
        columns_(static_cast<size_t>(view.sides[2])),
        plane_(static_cast<size_t>(view.sides[1]) * columns_),
        decide_(job, maps.channels, mask, nullptr),
        channels_(maps.channels) {
    if (mask.Plane() < plane_) cut_.resize(mask.Plane() * maps.channels);
  }

  bool Wants(int slice) const {
    return slice >= mask_.spans[0].begin && slice < mask_.spans[0].begin + mask_.slices;
  }

  /// A slice of the map as the source sees it: the planes of all channels.
  void See(int slice, const float* values) {
    for (size_t c = 0; c < channels_.size(); ++c) {
      channels_[c] = cut_.empty() ? values + c * plane_ : Cut(values + c * plane_, c);
    }
    decide_(slice - mask_.spans[0].begin, channels_.data());
  }

 private:
  /// The part of a plane that lies within the source.
  const float* Cut(const float* plane, size_t channel) {
    const auto& [slices, rows, columns] = mask_.spans;
    float* out = cut_.data() + channel * mask_.Plane();
    const auto width = static_cast<size_t>(columns.count);
    for (size_t y = 0; y < static_cast<size_t>(rows.count); ++y) {
      const float* from = plane + (y + static_cast<size_t>(rows.begin)) * columns_;
      std::copy_n(from + columns.begin, width, out + y * width);
    }
    return out;
  }

  ModelMask& mask_;
  size_t columns_;
  size_t plane_;
  Decision decide_;
  std::vector<const float*> channels_;
  /// The values of each channel that lie within the source; empty if all do.
  std::vector<float> cut_;
};

/// All channels of one slice of a map as the source sees it, activated.
class MapSlices {
 public:
  /// `own` is shown each slice of its grid once, in order, whether or not the source's grid needs
  /// it; null for none.
  MapSlices(const VolumeMaps& maps, const SourceView& view, Activation activation, ThreadTeam& team,
            ModelGrid* own)
      : maps_(maps), view_(view), activation_(activation), team_(team), own_(own) {}

  size_t plane() const {
    return static_cast<size_t>(view_.sides[1]) * static_cast<size_t>(view_.sides[2]);
  }

  /// Slices are loaded in order, each at most once.
  void Load(int slice, float* channels) {
    ShowUpTo(slice, channels);
    Read(slice, channels);
    if (own_ != nullptr && own_->Wants(slice)) own_->See(slice, channels);
    next_ = slice + 1;
  }

  /// Shows what comes after the slice that was loaded last.
  void ShowRest(float* channels) { ShowUpTo(view_.sides[0], channels); }

 private:
  void Read(int slice, float* channels) const {
    const Tensor& tensor = maps_.take ? maps_.take(slice) : *maps_.tensor;
    const auto columns = static_cast<size_t>(view_.sides[2]);
    team_.For(maps_.channels, [&](size_t c) {
      const ptrdiff_t first =
          view_.first + slice * view_.strides[0] + maps_.which[c] * maps_.channel_stride;
      for (int y = 0; y < view_.sides[1]; ++y) {
        LoadRow(tensor, first + y * view_.strides[1], view_.strides[2], columns,
                channels + c * plane() + static_cast<size_t>(y) * columns);
      }
    });
    Activate(activation_, {channels, maps_.channels * plane()}, plane(), team_);
  }

  void ShowUpTo(int slice, float* channels) {
    for (; own_ != nullptr && next_ < slice; ++next_) {
      if (!own_->Wants(next_)) continue;
      Read(next_, channels);
      own_->See(next_, channels);
    }
  }

  const VolumeMaps& maps_;
  const SourceView& view_;
  Activation activation_;
  ThreadTeam& team_;
  ModelGrid* own_;
  /// The first that has not gone by.
  int next_ = 0;
};

/// Labels are decided in the grid of the map, and each voxel of the source has that of the nearest:
/// what Decision gives for the nearest values, without resampling any of them.
void DecideNearest(const Job& job, const VolumeMaps& maps, const SourceView& view, MapSlices& map,
                   OutputResult& out) {
  out.mask.resize(out.Voxels());
  const auto columns = static_cast<size_t>(view.sides[2]);
  std::vector<float> values(maps.channels * map.plane());
  std::vector<const float*> channels;
  for (size_t c = 0; c < maps.channels; ++c) channels.push_back(values.data() + c * map.plane());
  const std::vector<uint8_t> of_channels = LabelsOfChannels(job.spec);
  std::vector<uint8_t> labels(map.plane());
  const size_t plane = out.Plane();
  uint8_t* to = out.mask.data();
  for (size_t z = 0; z < view.taps[0].size(); ++z, to += plane) {
    CheckStop(job.stop);
    const int slice = view.taps[0].first[z];
    if (z > 0 && slice == view.taps[0].first[z - 1]) {
      std::copy_n(to - plane, plane, to);
      continue;
    }
    map.Load(slice, values.data());
    Highest(channels.data(), of_channels, map.plane(), labels.data(), job.team);
    job.team.For(view.taps[1].size(), [&](size_t y) {
      const uint8_t* from = labels.data() + static_cast<size_t>(view.taps[1].first[y]) * columns;
      uint8_t* row = to + y * static_cast<size_t>(out.columns);
      for (const int x : view.taps[2].first) *row++ = from[x];
    });
  }
}

/// Fills the mask on the source's grid, whose sides are set, and what else is asked for.
void DecideMasks(const Job& job, const VolumeMaps& maps, OutputResult& out) {
  const OutputSpec& spec = job.spec;
  const bool labels = spec.activation == Activation::kLabelMap;
  const SourceView view = ViewFromSource(maps, job.placement,
                                         labels ? Interpolation::kNearest : Interpolation::kLinear);
  std::optional<ModelGrid> grid;
  if (spec.Own<SegmentationSpec>().model_grid) {
    out.model = MaskWithin(maps, job.placement);
    grid.emplace(job, maps, view, *out.model);
  }
  const Activation before = ActivatesLast(job) ? Activation::kNone : spec.activation;
  MapSlices map(maps, view, before, job.team, grid ? &*grid : nullptr);
  if (job.view.probabilities && !labels) {
    out.probabilities =
        MakeTensor(spec.tensor, Dtype::kFloat32,
                   {static_cast<int64_t>(maps.channels), out.slices, out.rows, out.columns});
  }
  Tensor* probabilities = out.probabilities ? &*out.probabilities : nullptr;
  // All channels of one slice.
  std::vector<float> values;
  const bool highest_only = !MayOverlap(spec.activation) && !labels && !Shown(spec, probabilities);
  if (highest_only && job.placement.axes[0].ends) {
    DecideNearest(job, maps, view, map, out);
  } else if (highest_only) {
    out.mask.resize(out.Voxels());
    HighestResampled highest(view.taps, {view.sides[1], view.sides[2]}, LabelsOfChannels(spec),
                             job.team);
    highest.Run(
        job.stop, [&](int slice, float* channels) { map.Load(slice, channels); },
        [&](int slice, std::span<const uint8_t> found) {
          const std::span<uint8_t> plane =
              std::span(out.mask).subspan(static_cast<size_t>(slice) * found.size(), found.size());
          std::ranges::copy(found, plane.begin());
        });
  } else {
    Decision decide(job, maps.channels, out, probabilities);
    const auto columns = static_cast<size_t>(view.sides[2]);
    values.resize(maps.channels * map.plane());
    ResampleVolume(
        view.taps, view.sides[2], static_cast<int>(maps.channels),
        [&](int slice) -> RowSource {
          CheckStop(job.stop);
          map.Load(slice, values.data());
          return [&](int row, float* const* channels) {
            for (size_t c = 0; c < maps.channels; ++c) {
              const float* from =
                  values.data() + c * map.plane() + static_cast<size_t>(row) * columns;
              std::copy_n(from, columns, channels[c]);
            }
          };
        },
        std::ref(decide));
  }
  if (!grid) return;
  values.resize(maps.channels * map.plane());
  map.ShowRest(values.data());
}

/// For each source axis which indices lie within what the maps cover.
std::array<std::vector<bool>, 3> SeenIndices(const VolumePlacement& placement) {
  std::array<std::vector<bool>, 3> seen;
  for (const VolumeAxis& axis : placement.axes) {
    std::vector<bool>& along = seen[static_cast<size_t>(axis.source_axis)];
    for (int i = 0; i < axis.source; ++i) {
      if (axis.ends) {
        along.push_back(axis.NearestOf(i) >= 0);
        continue;
      }
      const double at = axis.ToTensor(i + 0.5);
      const auto& [before, after] = axis.beyond;
      along.push_back((at >= 0 || at > -before) && (at <= axis.tensor || at < axis.tensor + after));
    }
  }
  return seen;
}

/// Voxels that the model did not see or its maps do not cover, and Pixel Padding, become
/// background, which is `cleared`.
template <typename T>
void ClearHidden(const Job& job, std::span<T> values, T cleared) {
  const PreparedVolume& volume = job.volume;
  const auto seen = SeenIndices(job.placement);
  const auto all = [](const std::vector<bool>& along) {
    return std::find(along.begin(), along.end(), false) == along.end();
  };
  if (all(seen[0]) && all(seen[1]) && all(seen[2]) && volume.padding.empty()) return;
  size_t i = 0;
  for (const bool slice : seen[0]) {
    for (const bool row : seen[1]) {
      for (const bool column : seen[2]) {
        const bool padding = !volume.padding.empty() && volume.padding[i] != 0;
        if (!slice || !row || !column || padding) values[i] = cleared;
        ++i;
      }
    }
  }
}

/// Which voxels of the model's grid are Pixel Padding: the source's voxel round their centre is.
/// Empty if none is.
std::vector<uint8_t> PaddingOf(const PreparedVolume& volume, const ModelMask& mask) {
  if (volume.padding.empty()) return {};
  std::array<std::vector<size_t>, 3> near;
  for (size_t s = 0; s < 3; ++s) {
    const auto& [begin, count, first, step] = mask.spans[s];
    for (int i = 0; i < count; ++i) {
      // A centre between two voxels is the second one's, whatever rounding made of it.
      const double at = std::floor(first + i * step + 1e-9);
      near[s].push_back(static_cast<size_t>(std::clamp(at, 0.0, volume.sides[s] - 1.0)));
    }
  }
  std::vector<uint8_t> padding;
  padding.reserve(mask.Voxels());
  const auto rows = static_cast<size_t>(volume.sides[1]);
  const auto columns = static_cast<size_t>(volume.sides[2]);
  for (const size_t z : near[0]) {
    for (const size_t y : near[1]) {
      for (const size_t x : near[2])
        padding.push_back(volume.padding[(z * rows + y) * columns + x]);
    }
  }
  return padding;
}

/// Finishes a mask on the model's grid that is decided.
void FinishModelMask(const Job& job, ModelMask& mask) {
  const std::vector<uint8_t> padding = PaddingOf(job.volume, mask);
  for (std::vector<uint8_t>* values : {&mask.mask, &mask.fractions}) {
    for (size_t i = 0; !padding.empty() && i < values->size(); ++i) {
      if (padding[i % padding.size()] != 0) (*values)[i] = 0;
    }
  }
  // The manifest counts voxels of the source.
  const double ratio = mask.spans[0].step * mask.spans[1].step * mask.spans[2].step;
  OutputSpec own = job.spec;
  for (MaskStep& step : own.Set<SegmentationSpec>().steps) {
    const double pixels = std::ceil(step.pixels / ratio - 1e-6);
    step.pixels = static_cast<int>(std::min<double>(pixels, std::numeric_limits<int>::max()));
  }
  FinishMask(own, padding, job.stop, mask);
}

void Segmentation(const Job& job, const VolumeMaps& maps, OutputResult& out) {
  const PreparedVolume& volume = job.volume;
  out.slices = volume.sides[0];
  out.rows = volume.sides[1];
  out.columns = volume.sides[2];
  out.overlapping = MayOverlap(job.spec.activation);
  DecideMasks(job, maps, out);
  const size_t voxels = out.Voxels();
  const auto clear = [&](auto values, auto cleared) {
    for (size_t at = 0; at < values.size(); at += voxels) {
      ClearHidden(job, values.subspan(at, voxels), at == 0 ? cleared : decltype(cleared){0});
    }
  };
  clear(std::span(out.mask), uint8_t{0});
  clear(std::span(out.fractions), uint8_t{0});
  if (out.probabilities) {
    const std::span all(reinterpret_cast<float*>(out.probabilities->data),
                        out.probabilities->Elements());
    clear(all, out.overlapping ? 0.0F : 1.0F);
  }
  FinishMask(job.spec, volume.padding, job.stop, out);
  if (out.model) FinishModelMask(job, *out.model);
}

}  // namespace

size_t ChannelsOf(const OutputSpec& spec) {
  if (spec.activation == Activation::kLabelMap) return 1;
  return spec.Columns() + (MayOverlap(spec.activation) ? 0 : 1);
}

OutputResult PostprocessSlices(const OutputSpec& spec, TiledSlices& slices,
                               const PreparedVolume& volume, const VolumeView& view,
                               std::span<const double> thresholds, const std::stop_token& stop,
                               Tensor& digests) {
  ThreadTeam alone;
  // Blended windows have the sides of the tensor.
  const Job job{spec,
                volume,
                volume.placement,
                view,
                thresholds,
                stop,
                view.team == nullptr ? alone : *view.team};
  OutputResult out = ResultOf(spec);
  const TiledSlices::See check = [&](const Tensor& slice) { CheckValues(job, slice); };
  Segmentation(job, ReadSlices(slices, spec, view.channels_last, check), out);
  digests = slices.Finish(check);
  return out;
}

OutputResult PostprocessCuboids(const OutputSpec& spec, FoundCuboids found,
                                std::span<const SeenWindow> windows,
                                const VolumePlacement& placement,
                                std::span<const double> thresholds) {
  OutputResult out = ResultOf(spec);
  out.boxes = spec.kind->settle(spec, std::move(found.boxes), windows, placement, thresholds);
  out.implausible = found.implausible;
  return out;
}

OutputResult PostprocessVolume(const OutputSpec& spec, const TensorByName& tensors,
                               const PreparedVolume& volume, const VolumeView& view,
                               std::span<const double> thresholds, const std::stop_token& stop) {
  if (!spec.kind->placed) {
    const Geometry none;
    return Postprocess(spec, tensors, {none, {}, view.channels_last}, thresholds);
  }
  if (spec.kind->collect != nullptr) {
    SeenWindow whole;
    std::ranges::transform(volume.placement.axes, whole.sides.begin(), &VolumeAxis::tensor);
    FoundCuboids found;
    spec.kind->collect(spec, tensors, volume.placement, whole, thresholds, found);
    return PostprocessCuboids(spec, std::move(found), {&whole, 1}, volume.placement, thresholds);
  }
  if (!spec.kind->masks) {
    throw EngineError("model_unavailable",
                      "Expected an output of a kind that volumes have, found \"" + spec.tensor +
                          "\" of the kind " + std::string(spec.kind->name) + ".");
  }
  ThreadTeam alone;
  OutputResult out = ResultOf(spec);
  const Tensor& tensor = tensors(spec.tensor);
  const VolumeMaps maps = ReadMaps(tensor, spec, view.channels_last);
  const Job job{spec,
                volume,
                CoveredPart(spec.cover, maps.sides, volume.placement, spec.tensor),
                view,
                thresholds,
                stop,
                view.team == nullptr ? alone : *view.team};
  CheckValues(job, tensor);
  Segmentation(job, maps, out);
  return out;
}

}  // namespace radserve
