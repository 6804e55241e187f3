#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "postprocess/activation.h"
#include "postprocess/highest.h"
#include "postprocess/maps.h"
#include "postprocess/postprocess.h"
#include "resample/resample.h"

namespace radserve {
namespace {

/// A tensor read as channels of maps over the model's grid.
struct VolumeMaps {
  const Tensor* tensor = nullptr;
  size_t channels = 0;
  /// Depth, height, width; strides in elements.
  std::array<int, 3> sides{};
  std::array<ptrdiff_t, 3> strides{};
  ptrdiff_t channel_stride = 0;
  /// Where slices of the source come one after the other: gives the one with that number, counted as the source's. The
  /// strides are those of its tensor.
  std::function<const Tensor&(int slice)> take;
};

VolumeMaps ReadMaps(const Tensor& tensor, size_t channels, bool channels_last) {
  const auto [planar, sides] = ReadMapShape(tensor, 3, channels, channels_last);
  VolumeMaps maps{&tensor, channels, {sides[0], sides[1], sides[2]}, {}, 0, {}};
  const ptrdiff_t step = planar ? 1 : static_cast<ptrdiff_t>(channels);
  maps.strides = {step * maps.sides[1] * maps.sides[2], step * maps.sides[2], step};
  maps.channel_stride = planar ? maps.strides[0] * maps.sides[0] : 1;
  return maps;
}

/// The same of maps that come slice by slice; `see` is shown each once.
VolumeMaps ReadSlices(TiledSlices& slices, size_t channels, bool channels_last, const TiledSlices::See& see) {
  VolumeMaps maps = ReadMaps(slices.Take(0, see), channels, channels_last);
  maps.sides = slices.sides();
  maps.take = [&slices, see](int slice) -> const Tensor& { return slices.Take(slice, see); };
  return maps;
}

/// Calls `check` with all values of a tensor, in portions, from several threads.
template <typename Check>
void ForValues(const Tensor& tensor, const std::stop_token& stop, Crew& crew, const Check& check) {
  constexpr size_t kPortion = size_t{1} << 16;
  const size_t all = tensor.Elements();
  crew.For((all + kPortion - 1) / kPortion, [&](size_t portion) {
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

/// The map as the source sees it: which of its axes, and from which end, runs along slices, rows and columns.
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
void Activate(Activation activation, std::span<float> values, size_t pixels, Crew& crew) {
  constexpr size_t kPart = size_t{1} << 12;
  if (activation == Activation::kSigmoid) {
    crew.For((values.size() + kPart - 1) / kPart, [&](size_t part) {
      Sigmoid(values.subspan(part * kPart, std::min(kPart, values.size() - part * kPart)));
    });
  }
  if (activation == Activation::kSoftmax) {
    crew.For((pixels + kPart - 1) / kPart, [&](size_t part) {
      SoftmaxPlanes(values, pixels, part * kPart, std::min(pixels, (part + 1) * kPart));
    });
  }
}

/// All channels of one slice of a map as the source sees it, activated.
class MapSlices {
 public:
  MapSlices(const VolumeMaps& maps, const SourceView& view, Activation activation, Crew& crew)
      : maps_(maps), view_(view), activation_(activation), crew_(crew) {}

  size_t plane() const { return static_cast<size_t>(view_.sides[1]) * static_cast<size_t>(view_.sides[2]); }

  void Load(int slice, float* channels) const {
    const Tensor& tensor = maps_.take ? maps_.take(slice) : *maps_.tensor;
    const auto columns = static_cast<size_t>(view_.sides[2]);
    crew_.For(maps_.channels, [&](size_t c) {
      const ptrdiff_t first =
          view_.first + slice * view_.strides[0] + static_cast<ptrdiff_t>(c) * maps_.channel_stride;
      for (int y = 0; y < view_.sides[1]; ++y) {
        LoadRow(tensor, first + y * view_.strides[1], view_.strides[2], columns,
                channels + c * plane() + static_cast<size_t>(y) * columns);
      }
    });
    Activate(activation_, {channels, maps_.channels * plane()}, plane(), crew_);
  }

 private:
  const VolumeMaps& maps_;
  const SourceView& view_;
  Activation activation_;
  Crew& crew_;
};

/// Gives `decide` each source slice with a plane of every channel, resampled.
void ForSourceSlices(const VolumeMaps& maps, const VolumePlacement& placement, Activation activation,
                     Interpolation interpolation, const std::stop_token& stop, Crew& crew,
                     const RowSink& decide) {
  const SourceView view = ViewFromSource(maps, placement, interpolation);
  const MapSlices map(maps, view, activation, crew);
  const auto columns = static_cast<size_t>(view.sides[2]);
  std::vector<float> values(maps.channels * map.plane());
  ResampleVolume(
      view.taps, view.sides[2], static_cast<int>(maps.channels),
      [&](int slice) -> RowSource {
        CheckStop(stop);
        map.Load(slice, values.data());
        return [&](int row, float* const* channels) {
          for (size_t c = 0; c < maps.channels; ++c) {
            const float* from = values.data() + c * map.plane() + static_cast<size_t>(row) * columns;
            std::copy_n(from, columns, channels[c]);
          }
        };
      },
      decide);
}

/// The channel that is highest at each voxel of the source, the first of equal ones.
void HighestOnSource(const VolumeMaps& maps, const VolumePlacement& placement, Activation activation,
                     const std::stop_token& stop, Crew& crew, std::span<uint8_t> mask) {
  const SourceView view = ViewFromSource(maps, placement, Interpolation::kLinear);
  const MapSlices map(maps, view, activation, crew);
  HighestResampled highest(view.taps, {view.sides[1], view.sides[2]}, maps.channels, crew);
  highest.Run(
      stop, [&](int slice, float* channels) { map.Load(slice, channels); },
      [&](int slice, std::span<const uint8_t> labels) {
        std::ranges::copy(labels, mask.begin() + slice * static_cast<ptrdiff_t>(labels.size()));
      });
}

/// The channel that is highest at each voxel, the first of equal ones.
void Highest(const float* const* channels, size_t count, size_t plane, uint8_t* out) {
  std::vector<float> best(channels[0], channels[0] + plane);
  std::fill_n(out, plane, uint8_t{0});
  for (size_t c = 1; c < count; ++c) {
    TakeHigher({channels[c], plane}, static_cast<uint8_t>(c), best.data(), out);
  }
}

void CheckValues(const OutputSpec& spec, const Tensor& tensor, const std::stop_token& stop, Crew& crew) {
  ForValues(tensor, stop, crew, [&](std::span<const float> values) {
    if (spec.activation == Activation::kLabelMap) {
      std::vector<uint8_t> labels(values.size());
      return ToLabels(values, spec.labels, tensor.name, labels.data());
    }
    CheckFinite(values, tensor.name);
    if (spec.activation == Activation::kNone) CheckProbabilities(values, tensor.name);
  });
}

struct Grid {
  size_t plane = 0;
  size_t voxels = 0;
};

/// Activates all channels of a plane after they have gone back to the source.
class LastActivation {
 public:
  LastActivation(Activation activation, size_t channels, size_t plane)
      : activation_(activation), plane_(plane), values_(channels * plane) {
    for (size_t c = 0; c < channels; ++c) channels_.push_back(values_.data() + c * plane);
  }

  const float* const* operator()(const float* const* channels) {
    for (size_t c = 0; c < channels_.size(); ++c) std::copy_n(channels[c], plane_, channels_[c]);
    if (activation_ == Activation::kSigmoid) Sigmoid(values_);
    if (activation_ == Activation::kSoftmax) SoftmaxPlanes(values_, plane_);
    return channels_.data();
  }

 private:
  Activation activation_;
  size_t plane_;
  std::vector<float> values_;
  std::vector<float*> channels_;
};

std::vector<uint8_t> MaskOf(const OutputSpec& spec, const VolumeMaps& maps, const PreparedVolume& volume,
                            const VolumeView& view, std::span<const double> thresholds, const Grid& grid,
                            const std::stop_token& stop, Crew& crew, OutputResult& result) {
  std::vector<uint8_t>& fractions = result.fractions;
  const bool overlapping = MayOverlap(spec.activation);
  const bool labels = spec.activation == Activation::kLabelMap;
  std::vector<uint8_t> mask(grid.voxels * (overlapping ? maps.channels : 1));
  // Channel 0 is background where labels exclude each other.
  const size_t first = overlapping ? 0 : 1;
  if (spec.fractional) fractions.resize(grid.voxels * (maps.channels - first));
  if (view.probabilities && !labels) {
    const auto slices = static_cast<int64_t>(grid.voxels / grid.plane);
    result.probabilities =
        MakeTensor(spec.tensor, Dtype::kFloat32,
                   {static_cast<int64_t>(maps.channels), slices, volume.sides[1], volume.sides[2]});
  }
  const Activation before = view.activate_last ? Activation::kNone : spec.activation;
  const bool shown = spec.fractional || result.probabilities.has_value();
  if (!overlapping && !labels && !shown) {
    HighestOnSource(maps, volume.placement, before, stop, crew, mask);
    return mask;
  }
  std::optional<LastActivation> last;
  // The highest of several stays the highest, so that softmax counts only where its values do.
  if (view.activate_last &&
      (spec.activation == Activation::kSigmoid || (spec.activation == Activation::kSoftmax && shown))) {
    last.emplace(spec.activation, maps.channels, grid.plane);
  }
  const auto decide = [&](int slice, const float* const* resampled) {
    const float* const* channels = last ? (*last)(resampled) : resampled;
    const size_t at = static_cast<size_t>(slice) * grid.plane;
    uint8_t* out = mask.data() + at;
    for (size_t c = 0; result.probabilities && c < maps.channels; ++c) {
      std::copy_n(channels[c], grid.plane,
                  reinterpret_cast<float*>(result.probabilities->data) + c * grid.voxels + at);
    }
    if (spec.fractional) {
      for (size_t c = first; c < maps.channels; ++c) {
        ToSteps({channels[c], grid.plane}, fractions.data() + (c - first) * grid.voxels + at);
      }
    }
    if (labels) {
      ToLabels({channels[0], grid.plane}, spec.labels, spec.tensor, out);
    } else if (!overlapping) {
      // Rounding makes equal scores of some that are not: what is decided are the scores before it.
      Highest(view.activate_last ? resampled : channels, maps.channels, grid.plane, out);
    } else {
      for (size_t c = 0; c < maps.channels; ++c) {
        ToMask({channels[c], grid.plane}, thresholds[c], out + c * grid.voxels);
      }
    }
  };
  ForSourceSlices(maps, volume.placement, before, labels ? Interpolation::kNearest : Interpolation::kLinear,
                  stop, crew, decide);
  return mask;
}

/// For each source axis which indices lie within the tensor.
std::array<std::vector<bool>, 3> SeenIndices(const PreparedVolume& volume) {
  std::array<std::vector<bool>, 3> seen;
  for (const VolumeAxis& axis : volume.placement.axes) {
    std::vector<bool>& along = seen[static_cast<size_t>(axis.source_axis)];
    for (int i = 0; i < axis.source; ++i) {
      const double at = axis.ToTensor(i + 0.5);
      along.push_back(at >= 0 && at <= axis.tensor);
    }
  }
  return seen;
}

/// Voxels that the model did not see, and Pixel Padding, become background, which is `cleared`.
template <typename T>
void ClearHidden(const PreparedVolume& volume, std::span<T> values, T cleared = 0) {
  const auto seen = SeenIndices(volume);
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

void Segmentation(const OutputSpec& spec, const VolumeMaps& maps, const PreparedVolume& volume,
                  const VolumeView& view, std::span<const double> thresholds, const std::stop_token& stop,
                  Crew& crew, OutputResult& out) {
  out.slices = volume.sides[0];
  out.rows = volume.sides[1];
  out.columns = volume.sides[2];
  out.overlapping = MayOverlap(spec.activation);
  Grid grid;
  grid.plane = static_cast<size_t>(out.rows) * static_cast<size_t>(out.columns);
  grid.voxels = grid.plane * static_cast<size_t>(out.slices);
  out.mask = MaskOf(spec, maps, volume, view, thresholds, grid, stop, crew, out);
  const size_t parts = out.mask.size() / grid.voxels;
  const auto part = [&](size_t p) { return std::span(out.mask).subspan(p * grid.voxels, grid.voxels); };
  for (size_t p = 0; p < parts; ++p) ClearHidden(volume, part(p));
  for (size_t at = 0; at < out.fractions.size(); at += grid.voxels) {
    ClearHidden(volume, std::span(out.fractions).subspan(at, grid.voxels));
  }
  if (out.probabilities) {
    const std::span all(reinterpret_cast<float*>(out.probabilities->data), out.probabilities->Elements());
    for (size_t at = 0; at < all.size(); at += grid.voxels) {
      ClearHidden(volume, all.subspan(at, grid.voxels), at == 0 && !out.overlapping ? 1.0F : 0.0F);
    }
  }
  FinishMask(spec, volume.padding, stop, out);
}

}  // namespace

size_t ChannelsOf(const OutputSpec& spec) {
  if (spec.activation == Activation::kLabelMap) return 1;
  return static_cast<size_t>(spec.labels) + (MayOverlap(spec.activation) ? 0 : 1);
}

OutputResult PostprocessSlices(const OutputSpec& spec, TiledSlices& slices, const PreparedVolume& volume,
                               const VolumeView& view, std::span<const double> thresholds,
                               const std::stop_token& stop, Tensor& digests) {
  Crew alone;
  Crew& crew = view.crew == nullptr ? alone : *view.crew;
  OutputResult out;
  out.kind = spec.kind;
  out.tensor = spec.tensor;
  const TiledSlices::See check = [&](const Tensor& slice) { CheckValues(spec, slice, stop, crew); };
  const VolumeMaps maps = ReadSlices(slices, ChannelsOf(spec), view.channels_last, check);
  Segmentation(spec, maps, volume, view, thresholds, stop, crew, out);
  digests = slices.Finish(check);
  return out;
}

OutputResult PostprocessVolume(const OutputSpec& spec, const TensorByName& tensors,
                               const PreparedVolume& volume, const VolumeView& view,
                               std::span<const double> thresholds, const std::stop_token& stop) {
  switch (spec.kind) {
    case OutputSpec::Kind::kClassification:
    case OutputSpec::Kind::kRegression: {
      // These know no grid.
      const Geometry none;
      return Postprocess(spec, tensors, {none, {}, view.channels_last}, thresholds);
    }
    case OutputSpec::Kind::kSegmentation: {
      OutputResult out;
      out.kind = spec.kind;
      out.tensor = spec.tensor;
      const Tensor& tensor = tensors(spec.tensor);
      const VolumeMaps maps = ReadMaps(tensor, ChannelsOf(spec), view.channels_last);
      Crew alone;
      Crew& crew = view.crew == nullptr ? alone : *view.crew;
      CheckValues(spec, tensor, stop, crew);
      Segmentation(spec, maps, volume, view, thresholds, stop, crew, out);
      return out;
    }
    default:
      throw EngineError("model_unavailable",
                        "Volumes have classification, regression and segmentation outputs; the output \"" +
                            spec.tensor + "\" is of another kind.");
  }
}

}  // namespace radserve
