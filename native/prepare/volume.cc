#include "prepare/volume.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "prepare/channels.h"
#include "prepare/cut_values.h"
#include "prepare/ends.h"
#include "prepare/intensity.h"
#include "prepare/pixels.h"
#include "resample/resample.h"

namespace radserve {
namespace {

/// Rows of the tensor that are resampled at once: what a few slices of them take fits into a core's
/// cache, and few rows of the source are read for two of them.
constexpr size_t kBand = 64;

bool SameModality(const ModalityTransform& a, const ModalityTransform& b) {
  return a.kind == b.kind && a.slope == b.slope && a.intercept == b.intercept &&
         a.lut.entries == b.lut.entries && a.lut.first_mapped == b.lut.first_mapped;
}

/// Inverting takes a range, and one volume must have one.
void CheckInversion(std::span<const Plane> slices, const InputSpec& spec) {
  if (spec.monochrome1 != InputSpec::Monochrome1::kInvert ||
      spec.values.kind == ValuesSpec::Kind::kWindow || spec.values.kind == ValuesSpec::Kind::kVoi) {
    return;
  }
  for (const Plane& plane : slices) {
    if (plane.format.photometric != Photometric::kMonochrome1) continue;
    // Hounsfield units are never inverted
    if (spec.values.kind == ValuesSpec::Kind::kModality && plane.interpretation.hounsfield)
      continue;
    const Range first = StoredRange(slices.front());
    const Range own = StoredRange(plane);
    const bool same =
        own.low == first.low && own.high == first.high &&
        SameModality(plane.interpretation.modality, slices.front().interpretation.modality);
    if (plane.format.is_float || !same) {
      throw EngineError("no_model_accepts",
                        "A volume of MONOCHROME1 slices is inverted over one range: expected "
                        "integers with the same bits and "
                        "rescale in every slice; found others.");
    }
  }
}

std::array<int, 3> CheckSlices(std::span<const Plane> slices, const InputSpec& spec) {
  const PixelFormat& first = slices.front().format;
  for (const Plane& plane : slices) {
    const PixelFormat& f = plane.format;
    if (f.rows != first.rows || f.columns != first.columns || f.samples != first.samples ||
        f.bits_allocated != first.bits_allocated || f.is_float != first.is_float ||
        f.photometric != first.photometric) {
      throw EngineError("series_invalid",
                        "Expected all slices of a volume with the rows, columns, kind of colour "
                        "and Bits Allocated of "
                        "the first, " +
                            std::to_string(first.rows) + " x " + std::to_string(first.columns) +
                            "; found a slice of " + std::to_string(f.rows) + " x " +
                            std::to_string(f.columns) + ", or of another kind.");
    }
  }
  CheckInversion(slices, spec);
  return {static_cast<int>(slices.size()), first.rows, first.columns};
}

Statistics Measure(std::span<const Plane> slices, const InputSpec& spec, double low, double high,
                   const std::stop_token& stop) {
  const PixelFormat& f = slices.front().format;
  VolumeStatistics statistics(spec.normalisation.kind == NormalisationSpec::Kind::kPercentile,
                              f.Monochrome() && !f.is_float && f.bits_allocated <= 16);
  std::vector<std::pair<double, uint64_t>> values;
  for (const Plane& plane : slices) {
    CheckStop(stop);
    values.clear();
    ChannelSource(std::span(&plane, 1), 0, spec).AppendValues(values);
    statistics.Add(values);
  }
  return statistics.Get(low, high);
}

/// Statistics of the values in a box, as they are after `clip`.
struct BoxMeasure {
  Statistics all;
  /// One for each slice of the box.
  std::vector<Range> slices;
};

/// Which voxels of a volume are inside of its body; all, where nobody asks.
class Inside {
 public:
  Inside(std::span<const uint8_t> marks, const std::array<int, 3>& sides)
      : marks_(marks), sides_(sides) {}

  /// The marks of one row; empty where all voxels are inside.
  std::span<const uint8_t> Row(int slice, int row) const {
    if (marks_.empty()) return {};
    const auto width = static_cast<size_t>(sides_[2]);
    const size_t rows =
        static_cast<size_t>(slice) * static_cast<size_t>(sides_[1]) + static_cast<size_t>(row);
    return marks_.subspan(rows * width, width);
  }

 private:
  std::span<const uint8_t> marks_;
  std::array<int, 3> sides_;
};

/// Calls `see(slice, row, values)` with the whole rows of the slices and rows of a box.
template <typename See>
void ForRows(std::span<const Plane> slices, const InputSpec& spec, const VolumeBox& box,
             const std::stop_token& stop, const See& see) {
  std::vector<float> row(static_cast<size_t>(slices.front().format.columns));
  float* const rows[] = {row.data()};
  for (int z = box.first[0]; z < box.first[0] + box.count[0]; ++z) {
    CheckStop(stop);
    const ChannelSource source(slices.subspan(static_cast<size_t>(z), 1), 0, spec);
    for (int y = box.first[1]; y < box.first[1] + box.count[1]; ++y) {
      source.Row(y, rows);
      see(z, y, row);
    }
  }
}

/// Statistics of the inside. The ranges are of what is resampled: where a voxel is outside they
/// hold the mean too.
BoxMeasure MeasureBox(std::span<const Plane> slices, const InputSpec& spec, const VolumeBox& box,
                      const Inside& inside, const std::stop_token& stop) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto depth = static_cast<size_t>(box.count[0]);
  BoxMeasure measure{{}, std::vector<Range>(depth, {kInfinity, -kInfinity})};
  std::vector<bool> outside(depth);
  double sum = 0;
  double squares = 0;
  double count = 0;
  // The first value is taken off, so that squares of large values lose no digits.
  double origin = 0;
  ForRows(slices, spec, box, stop, [&](int z, int y, const std::vector<float>& row) {
    const auto slice = static_cast<size_t>(z - box.first[0]);
    Range& range = measure.slices[slice];
    const std::span<const uint8_t> marks = inside.Row(z, y);
    for (int x = 0; x < box.count[2]; ++x) {
      const auto at = static_cast<size_t>(box.first[2] + x);
      if (!marks.empty() && marks[at] == 0) {
        outside[slice] = true;
        continue;
      }
      const auto value = static_cast<double>(row[at]);
      if (count == 0) origin = value;
      count += 1;
      range.low = std::min(range.low, value);
      range.high = std::max(range.high, value);
      sum += value - origin;
      squares += (value - origin) * (value - origin);
    }
  });
  const double mean = count == 0 ? 0 : sum / count;
  for (size_t z = 0; z < outside.size(); ++z) {
    if (!outside[z]) continue;
    Range& range = measure.slices[z];
    range.low = std::min(range.low, origin + mean);
    range.high = std::max(range.high, origin + mean);
  }
  measure.all.min = std::ranges::min(measure.slices, {}, &Range::low).low;
  measure.all.max = std::ranges::max(measure.slices, {}, &Range::high).high;
  measure.all.mean = origin + mean;
  measure.all.std = count == 0 ? 0 : std::sqrt(std::max(0.0, squares / count - mean * mean));
  return measure;
}

std::vector<uint8_t> PaddingOf(std::span<const Plane> slices, const InputSpec& spec,
                               const std::stop_token& stop) {
  std::vector<uint8_t> padding;
  const PixelFormat& f = slices.front().format;
  const size_t plane_size = static_cast<size_t>(f.rows) * static_cast<size_t>(f.columns);
  for (size_t i = 0; i < slices.size(); ++i) {
    if (!slices[i].interpretation.padding && !f.is_float) continue;
    CheckStop(stop);
    const std::vector<uint8_t> mask = PixelSource(slices[i], spec).PaddingMask();
    if (mask.empty()) continue;
    padding.resize(plane_size * slices.size());
    std::copy(mask.begin(), mask.end(), padding.begin() + static_cast<ptrdiff_t>(i * plane_size));
  }
  return padding;
}

/// Throws no_model_accepts for a tensor of more than kMostTensorBytes.
void CheckSize(const VolumePlacement& placement, const InputSpec& spec) {
  const auto& axes = placement.axes;
  double bytes =
      (spec.Channels() + spec.label_channels) * static_cast<double>(DtypeSize(spec.dtype));
  for (const VolumeAxis& axis : axes) bytes *= axis.tensor;
  if (bytes <= kMostTensorBytes) return;
  throw EngineError("no_model_accepts",
                    "The volume needs a tensor of " + std::to_string(axes[0].tensor) + " x " +
                        std::to_string(axes[1].tensor) + " x " + std::to_string(axes[2].tensor) +
                        " voxels, which is more than 2 GiB.");
}

/// Writes resampled planes, which come along the source's axes, into the tensor along its own.
class VolumeWriter {
 public:
  VolumeWriter(const InputSpec& spec, const VolumePlacement& placement, Normaliser normaliser,
               float background, const TensorMaker& make)
      : spec_(spec), placement_(placement), normaliser_(std::move(normaliser)), cut_(spec) {
    const int64_t d = placement.axes[0].tensor;
    const int64_t h = placement.axes[1].tensor;
    const int64_t w = placement.axes[2].tensor;
    const int64_t c = spec.Channels() + spec.label_channels;
    CheckSize(placement, spec);
    tensor_ = spec.channels_last ? make(spec.tensor, spec.dtype, {1, d, h, w, c})
                                 : make(spec.tensor, spec.dtype, {1, c, d, h, w});
    const int64_t step = spec.channels_last ? c : 1;
    const std::array<int64_t, 3> strides = {h * w * step, w * step, step};
    for (int s = 0; s < 3; ++s) strides_[static_cast<size_t>(s)] = strides[placement.TensorAxis(s)];
    channel_stride_ = spec.channels_last ? 1 : d * h * w;
    FillBackground(background, d * h, static_cast<size_t>(w));
  }

  /// One range for each plane that is written, or one for all, which its values do not leave.
  void KeepWithin(std::vector<Range> ranges) { ranges_ = std::move(ranges); }

  /// A row of the values that are resampled, of all channels. Several threads may call it.
  void See(const float* const* channels, size_t width) {
    for (size_t c = 0; c < static_cast<size_t>(spec_.Channels()); ++c)
      cut_.Resamples(normaliser_, c, {channels[c], width});
  }

  /// Rows [begin, end) of plane number `slice`, one for each channel, of those that the slice axis
  /// gives; in the source's order. Rows may be written from several threads.
  void WriteRows(int slice, int begin, int end, const float* const* channels) {
    const VolumeAxis& columns = Along(2);
    const auto width = static_cast<size_t>(columns.count);
    const Limits limits = LimitsOf(slice);
    std::vector<float> row(width);
    for (int c = 0; c < spec_.Channels(); ++c) {
      for (int y = begin; y < end; ++y) {
        const float* in = channels[c] + static_cast<size_t>(y - begin) * width;
        normaliser_.Row(static_cast<size_t>(c), in, width, limits, row.data());
        if (columns.flipped) std::ranges::reverse(row);
        const int64_t first = c * channel_stride_ + Index(0, slice) * strides_[0] +
                              Index(1, y) * strides_[1] + columns.first * strides_[2];
        cut_.Stores(row);
        StoreRow(spec_.dtype, row.data(), width, Address(first), static_cast<size_t>(strides_[2]));
      }
    }
  }

  Tensor Take() { return std::move(tensor_); }
  bool cut() const { return cut_.found(); }

 private:
  const VolumeAxis& Along(int source_axis) const {
    return placement_.axes[placement_.TensorAxis(source_axis)];
  }

  /// The tensor's index of output `i`, counted in the source's direction.
  int64_t Index(int source_axis, int i) const {
    const VolumeAxis& axis = Along(source_axis);
    return axis.first + (axis.flipped ? axis.count - 1 - i : i);
  }

  std::byte* Address(int64_t element) {
    return tensor_.data + static_cast<size_t>(element) * DtypeSize(spec_.dtype);
  }

  /// The range to which the values of a plane are clipped after resampling.
  Limits LimitsOf(int slice) const {
    if (!ranges_.empty()) {
      const Range& range = ranges_[ranges_.size() == 1 ? 0 : static_cast<size_t>(slice)];
      return {static_cast<float>(range.low), static_cast<float>(range.high)};
    }
    if (!spec_.clip || (spec_.resampling && !spec_.resampling->clip_last)) return {};
    return {static_cast<float>(spec_.clip->first), static_cast<float>(spec_.clip->second)};
  }

  void FillBackground(float background, int64_t rows, size_t width) {
    const auto own = static_cast<size_t>(spec_.Channels());
    const size_t channels = own + static_cast<size_t>(spec_.label_channels);
    for (size_t c = 0; c < channels; ++c) {
      const std::vector<float> row(width, c < own ? normaliser_(c, background) : 0.0F);
      const int64_t step = spec_.channels_last ? static_cast<int64_t>(channels) : 1;
      for (int64_t y = 0; y < rows; ++y) {
        const int64_t first =
            static_cast<int64_t>(c) * channel_stride_ + y * static_cast<int64_t>(width) * step;
        StoreRow(spec_.dtype, row.data(), width, Address(first), static_cast<size_t>(step));
      }
    }
  }

  const InputSpec& spec_;
  const VolumePlacement& placement_;
  Normaliser normaliser_;
  CutValues cut_;
  /// In elements, by source axis.
  std::array<int64_t, 3> strides_{};
  int64_t channel_stride_ = 0;
  std::vector<Range> ranges_;
  Tensor tensor_;
};

/// Widens a box, of which `high` belongs to it, to hold the values of a row that count. False if
/// none does.
template <typename Counts>
bool HoldRow(int z, int y, std::span<const float> row, const Counts& counts,
             std::array<int, 3>& low, std::array<int, 3>& high) {
  const auto first = std::ranges::find_if(row, counts);
  if (first == row.end()) return false;
  const auto last = std::find_if(row.rbegin(), row.rend(), counts);
  const std::array<int, 3> from = {z, y, static_cast<int>(first - row.begin())};
  const std::array<int, 3> to = {z, y, static_cast<int>(row.rend() - last) - 1};
  for (size_t axis = 0; axis < 3; ++axis) {
    low[axis] = std::min(low[axis], from[axis]);
    high[axis] = std::max(high[axis], to[axis]);
  }
  return true;
}

/// Keeps the box around all values of a float32 tensor of one channel that count. False, and all
/// is kept, if none does.
template <typename Counts>
bool CropTo(const Counts& counts, VolumePlacement& placement, Tensor& tensor,
            const TensorMaker& make) {
  auto& axes = placement.axes;
  const auto* values = reinterpret_cast<const float*>(tensor.data);
  const std::array<int, 3> sides = {axes[0].tensor, axes[1].tensor, axes[2].tensor};
  std::array<int, 3> low = sides;
  std::array<int, 3> high = {-1, -1, -1};
  for (int z = 0; z < sides[0]; ++z) {
    for (int y = 0; y < sides[1]; ++y) {
      const std::span row(values + (static_cast<ptrdiff_t>(z) * sides[1] + y) * sides[2],
                          static_cast<size_t>(sides[2]));
      HoldRow(z, y, row, counts, low, high);
    }
  }
  if (high[0] < 0) return false;
  if (low == std::array{0, 0, 0} && high == std::array{sides[0] - 1, sides[1] - 1, sides[2] - 1})
    return true;
  for (size_t a = 0; a < 3; ++a) axes[a].CutTo(low[a], high[a] - low[a] + 1);
  Tensor cut =
      make(tensor.name, tensor.dtype, {1, 1, axes[0].tensor, axes[1].tensor, axes[2].tensor});
  auto* out = reinterpret_cast<float*>(cut.data);
  for (int z = low[0]; z <= high[0]; ++z) {
    for (int y = low[1]; y <= high[1]; ++y) {
      const ptrdiff_t row = (static_cast<ptrdiff_t>(z) * sides[1] + y) * sides[2];
      out = std::copy(values + row + low[2], values + row + high[2] + 1, out);
    }
  }
  tensor = std::move(cut);
  return true;
}

void CropToForeground(VolumePlacement& placement, Tensor& tensor, const TensorMaker& make) {
  if (CropTo([](float value) { return !(value <= 0); }, placement, tensor, make)) return;
  throw EngineError("no_model_accepts",
                    "Expected values above 0 after normalisation, to whose box the model's volume "
                    "is cut; found none.");
}

/// The statistics of all values of a float32 tensor; percentiles are not asked for.
Statistics Measure(std::span<const float> values) {
  Statistics found;
  if (values.empty()) return found;
  const auto [least, most] = std::ranges::minmax(values);
  double sum = 0;
  double squares = 0;
  // The first value is taken off, so that squares of large values lose no digits.
  const auto origin = static_cast<double>(values.front());
  for (const float value : values) {
    const double apart = value - origin;
    sum += apart;
    squares += apart * apart;
  }
  const double mean = sum / static_cast<double>(values.size());
  found.min = least;
  found.max = most;
  found.mean = origin + mean;
  found.std = std::sqrt(std::max(0.0, squares / static_cast<double>(values.size()) - mean * mean));
  return found;
}

/// The way of ResamplingSpec::Grid::kEnds: what is cropped, measured, clipped and normalised are
/// the values of the tensor, as nnU-Net is given them by TotalSegmentator.
PreparedVolume PrepareByEnds(std::span<const Plane> slices, const VolumeGeometry& geometry,
                             const InputSpec& spec, const std::stop_token& stop,
                             const TensorMaker& make, ThreadTeam& team) {
  PreparedVolume prepared;
  prepared.sides = CheckSlices(slices, spec);
  prepared.placement = PlaceVolume(prepared.sides, geometry, spec);
  CheckSize(prepared.placement, spec);
  const auto& axes = prepared.placement.axes;
  Tensor& tensor = prepared.tensor;
  tensor =
      make(spec.tensor, Dtype::kFloat32, {1, 1, axes[0].tensor, axes[1].tensor, axes[2].tensor});
  InputSpec read = spec;
  read.clip.reset();
  ResampleByEnds(slices, read, prepared.placement, stop, team,
                 reinterpret_cast<float*>(tensor.data));
  CheckStop(stop);
  if (spec.resampling->crop_nonzero)
    CropTo([](float value) { return value != 0; }, prepared.placement, tensor, make);
  const std::span values(reinterpret_cast<float*>(tensor.data), tensor.Elements());
  Limits limits;
  if (spec.clip)
    limits = {static_cast<float>(spec.clip->first), static_cast<float>(spec.clip->second)};
  const Normaliser normaliser = MakeNormaliser(spec.normalisation, 1, [&](double, double) {
    // Statistics are of what the network is given.
    if (spec.clip) {
      for (float& value : values) value = std::clamp(value, limits.low, limits.high);
    }
    return Measure(values);
  });
  prepared.found = normaliser.found;
  constexpr size_t kPortion = size_t{1} << 16;
  team.For((values.size() + kPortion - 1) / kPortion, [&](size_t portion) {
    CheckStop(stop);
    const size_t at = portion * kPortion;
    const size_t count = std::min(kPortion, values.size() - at);
    const std::vector<float> given(values.begin() + static_cast<ptrdiff_t>(at),
                                   values.begin() + static_cast<ptrdiff_t>(at + count));
    normaliser.Row(0, given.data(), count, limits, values.data() + at);
  });
  prepared.padding = PaddingOf(slices, spec, stop);
  return prepared;
}

}  // namespace

PreparedVolume PrepareVolume(std::span<const Plane> slices, const VolumeGeometry& geometry,
                             const InputSpec& spec, const std::stop_token& stop,
                             const TensorMaker& make, const VolumeBody* body, ThreadTeam* threads) {
  ThreadTeam alone;
  ThreadTeam& team = threads == nullptr ? alone : *threads;
  if (spec.resampling && spec.resampling->ByEnds())
    return PrepareByEnds(slices, geometry, spec, stop, make, team);
  PreparedVolume prepared;
  InputSpec read = spec;
  if (spec.resampling && spec.resampling->clip_last) read.clip.reset();
  prepared.sides = CheckSlices(slices, spec);
  const ResamplingSpec* const resampling = spec.resampling ? &*spec.resampling : nullptr;
  VolumeBody own{{{0, 0, 0}, prepared.sides}, {}};
  const bool masked = spec.normalisation.nonzero;
  if (body == nullptr && resampling != nullptr && resampling->crop_nonzero) {
    BodyFinder finder(prepared.sides, masked);
    finder.Add(slices, read, stop);
    own = finder.Take();
  }
  const VolumeBox& box = body == nullptr ? own.box : body->box;
  const std::span<const uint8_t> marks = body == nullptr ? own.inside : body->inside;
  const Inside inside(masked ? marks : std::span<const uint8_t>(), prepared.sides);
  prepared.placement = PlaceVolume(prepared.sides, geometry, spec, box);
  const VolumePlacement& placement = prepared.placement;
  std::optional<BoxMeasure> in_box;
  const auto measured_box = [&]() -> const BoxMeasure& {
    // What is clipped after resampling is measured as it will be.
    if (!in_box) in_box = MeasureBox(slices, spec, box, inside, stop);
    return *in_box;
  };
  const auto measure = [&](double low, double high) {
    return resampling == nullptr ? Measure(slices, spec, low, high, stop) : measured_box().all;
  };
  Normaliser normaliser = MakeNormaliser(spec.normalisation, spec.Channels(), measure);
  prepared.found = normaliser.found;
  const auto mean = static_cast<float>(prepared.found ? prepared.found->mean : 0);
  const float background = ChannelSource(slices.first(1), 0, spec).background();
  VolumeWriter writer(spec, placement, std::move(normaliser), background, make);
  VolumeTaps taps;
  for (int s = 0; s < 3; ++s) {
    taps[static_cast<size_t>(s)] =
        placement.axes[placement.TensorAxis(s)].Forward(spec.interpolation);
  }
  if (resampling != nullptr && resampling->keep_range) {
    const BoxMeasure& found = measured_box();
    std::vector<Range> ranges = {{found.all.min, found.all.max}};
    if (placement.separate) {
      ranges.clear();
      for (const int slice : taps[0].first)
        ranges.push_back(found.slices.at(static_cast<size_t>(slice - box.first[0])));
    }
    writer.KeepWithin(std::move(ranges));
  }
  const auto width = static_cast<size_t>(prepared.sides[2]);
  const SourceIntensity changed(read, [&](const auto& see) {
    ForRows(slices, read, {{0, 0, 0}, prepared.sides}, stop,
            [&](int, int, std::vector<float>& row) {
              see(IntensityRow{{row.data()}, width, 1});
            });
  });
  const size_t rows = taps[1].size();
  team.For((rows + kBand - 1) / kBand, [&](size_t band) {
    const size_t begin = band * kBand;
    const size_t end = std::min(rows, begin + kBand);
    ResampleVolume(
        {taps[0], taps[1].Part(begin, end), taps[2]}, prepared.sides[2], spec.Channels(),
        [&](int slice) -> RowSource {
          CheckStop(stop);
          const auto source = std::make_shared<ChannelSource>(
              slices.subspan(static_cast<size_t>(slice), 1), 0, read);
          return [source, slice, width, &inside, &changed, &writer, mean](int row,
                                                                          float* const* channels) {
            source->Row(row, channels);
            if (!changed.empty()) changed.Change({{channels[0]}, width, 1});
            // The mean is 0 after normalisation.
            const std::span<const uint8_t> counted = inside.Row(slice, row);
            for (size_t x = 0; x < counted.size(); ++x) {
              if (counted[x] == 0) channels[0][x] = mean;
            }
            writer.See(channels, width);
          };
        },
        [&](int slice, const float* const* planes) {
          writer.WriteRows(slice, static_cast<int>(begin), static_cast<int>(end), planes);
        });
  });
  prepared.tensor = writer.Take();
  prepared.cut = writer.cut();
  ChangeTensor(spec, prepared.tensor);
  if (resampling != nullptr && resampling->crop_foreground)
    CropToForeground(prepared.placement, prepared.tensor, make);
  prepared.padding = PaddingOf(slices, spec, stop);
  return prepared;
}

BodyFinder::BodyFinder(const std::array<int, 3>& sides, bool marks) : sides_(sides), low_(sides) {
  const auto& [slices, rows, columns] = sides;
  if (marks)
    inside_.resize(static_cast<size_t>(slices) * static_cast<size_t>(rows) *
                   static_cast<size_t>(columns));
}

void BodyFinder::Add(std::span<const Plane> slices, const InputSpec& spec,
                     const std::stop_token& stop) {
  if (CheckSlices(slices, spec) != sides_)
    throw EngineError("series_invalid", "Expected the channels of a volume on one grid.");
  const auto width = static_cast<size_t>(sides_[2]);
  InputSpec unclipped = spec;
  unclipped.clip.reset();
  ForRows(slices, unclipped, {{0, 0, 0}, sides_}, stop,
          [&](int z, int y, const std::vector<float>& row) {
            const auto filled = [](float value) { return value != 0; };
            if (!HoldRow(z, y, row, filled, low_, high_) || inside_.empty()) return;
            uint8_t* const marks =
                inside_.data() +
                (static_cast<size_t>(z) * static_cast<size_t>(sides_[1]) + static_cast<size_t>(y)) *
                    width;
            for (size_t x = 0; x < width; ++x) {
              if (row[x] != 0) marks[x] = 1;
            }
          });
}

VolumeBody BodyFinder::Take() {
  VolumeBody body{{{0, 0, 0}, sides_}, std::move(inside_)};
  if (high_[0] < 0) return body;
  body.box.first = low_;
  for (size_t axis = 0; axis < 3; ++axis) body.box.count[axis] = high_[axis] - low_[axis] + 1;
  return body;
}

}  // namespace radserve
