#include "prepare/image.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "prepare/channels.h"
#include "prepare/cut_values.h"
#include "prepare/intensity.h"
#include "resample/resample.h"

namespace radserve {
namespace {

/// Writes rows into the tensor at their place, and background around them.
class TensorWriter {
 public:
  TensorWriter(const InputSpec& spec, const Geometry& geometry, const ChannelSource& source,
               const TensorMaker& make)
      : spec_(spec),
        geometry_(geometry),
        channels_(static_cast<size_t>(source.channels())),
        normaliser_(
            MakeNormaliser(spec.normalisation, source.channels(),
                           [&](double low, double high) { return source.Measure(low, high); })),
        cut_(spec),
        row_(static_cast<size_t>(geometry.columns.tensor)) {
    const int64_t rows = geometry.rows.tensor;
    const int64_t columns = geometry.columns.tensor;
    const int64_t channels = source.channels();
    std::vector<int64_t> shape = {1, channels, rows, columns};
    if (spec.channels_last) shape = {1, rows, columns, channels};
    if (spec.transposed) shape = {1, channels, columns, rows};
    tensor_ = make(spec.tensor, spec.dtype, std::move(shape));
    if (spec.clip)
      limits_ = {static_cast<float>(spec.clip->first), static_cast<float>(spec.clip->second)};
    for (size_t c = 0; c < channels_; ++c)
      background_.push_back(normaliser_(c, source.background()));
  }

  /// The rows that follow are differences from `border`, and no value leaves `range`.
  void SetBorder(double border, const Range& range) {
    for (double& subtract : normaliser_.subtract) subtract -= border;
    limits_.low = std::max(limits_.low, static_cast<float>(range.low)) - static_cast<float>(border);
    limits_.high =
        std::min(limits_.high, static_cast<float>(range.high)) - static_cast<float>(border);
  }

  /// A row of the values that are resampled.
  void See(const IntensityRow& row) {
    for (size_t c = 0; c < channels_; ++c)
      cut_.Resamples(normaliser_, c, {row.channels[c], row.count});
  }

  /// `values` are `width` values for each channel; nullptr writes background.
  void Write(int row, const float* const* values) {
    const size_t columns = row_.size();
    const auto rows = static_cast<size_t>(geometry_.rows.tensor);
    const size_t stride = spec_.channels_last ? channels_ : spec_.transposed ? rows : 1;
    for (size_t c = 0; c < channels_; ++c) {
      const size_t y = static_cast<size_t>(row);
      const size_t first = spec_.channels_last ? y * columns * channels_ + c
                           : spec_.transposed  ? c * rows * columns + y
                                               : (c * rows + y) * columns;
      std::byte* const place = tensor_.data + first * DtypeSize(spec_.dtype);
      const bool direct = spec_.dtype == Dtype::kFloat32 && stride == 1;
      float* const out = direct ? reinterpret_cast<float*>(place) : row_.data();
      if (values == nullptr || geometry_.columns.count < geometry_.columns.tensor) {
        std::fill_n(out, columns, background_[c]);
      }
      if (values != nullptr) {
        normaliser_.Row(c, values[c], static_cast<size_t>(geometry_.columns.count), limits_,
                        out + geometry_.columns.first);
      }
      cut_.Stores({out, columns});
      if (!direct) StoreRow(spec_.dtype, out, columns, place, stride);
    }
  }

  Tensor Take() { return std::move(tensor_); }
  const std::optional<Statistics>& found() const { return normaliser_.found; }
  bool cut() const { return cut_.found(); }

 private:
  const InputSpec& spec_;
  const Geometry& geometry_;
  size_t channels_;
  Normaliser normaliser_;
  CutValues cut_;
  std::vector<float> row_;
  std::vector<float> background_;
  Limits limits_;
  Tensor tensor_;
};

void CheckSize(const Geometry& g, const InputSpec& spec) {
  const double bytes = static_cast<double>(g.rows.tensor) * g.columns.tensor * spec.Channels() *
                       static_cast<double>(DtypeSize(spec.dtype));
  if (bytes > kMostTensorBytes) {
    throw EngineError("no_model_accepts", "The image of " + std::to_string(g.rows.source) + " x " +
                                              std::to_string(g.columns.source) +
                                              " pixels needs a tensor of more than 2 GiB.");
  }
}

/// The range of the values that are resampled, of all channels, in rows that `read` gives.
Range RangeOf(const Geometry& g, const IntensityRow& row, const std::function<void(int)>& read) {
  const auto begin = [](const ImageAxis& axis) { return axis.apart ? axis.seen_from : 0.0; };
  const auto count = [](const ImageAxis& axis) { return axis.apart ? axis.seen : axis.source; };
  Range range = {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (int y = 0; y < static_cast<int>(count(g.rows)); ++y) {
    read(static_cast<int>(begin(g.rows)) + y);
    for (const float* const values : row.channels) {
      const std::span seen(values + static_cast<size_t>(begin(g.columns)),
                           static_cast<size_t>(count(g.columns)));
      const auto [low, high] = std::ranges::minmax(seen);
      range.low = std::min(range.low, static_cast<double>(low));
      range.high = std::max(range.high, static_cast<double>(high));
    }
  }
  return range;
}

}  // namespace

PreparedImage PrepareImage(std::span<const Plane> frames, size_t centre, const InputSpec& spec,
                           const TensorMaker& make) {
  const ChannelSource source(frames, centre, spec);
  const Plane& plane = frames[centre];
  PreparedImage prepared;
  prepared.geometry = PlaceImage(plane.format.rows, plane.format.columns, plane.pixel_aspect, spec);
  prepared.geometry.antialias = spec.antialias;
  const Geometry& g = prepared.geometry;
  CheckSize(g, spec);
  const auto width = static_cast<size_t>(g.columns.source);
  std::vector<float> values(width * static_cast<size_t>(source.channels()));
  IntensityRow row_values{{}, width, 1};
  for (int c = 0; c < source.channels(); ++c)
    row_values.channels.push_back(values.data() + static_cast<size_t>(c) * width);
  const SourceIntensity changed(spec, [&](const auto& see) {
    for (int y = 0; y < g.rows.source; ++y) {
      source.Row(y, row_values.channels.data());
      see(row_values);
    }
  });
  const auto read = [&](int row, const IntensityRow& to) {
    source.Row(row, to.channels.data());
    if (!changed.empty()) changed.Change(to);
  };
  TensorWriter writer(spec, g, source, make);
  // What lies beyond the image is 0 where its values are differences from the border
  const auto border = static_cast<float>(spec.border.value_or(0));
  if (spec.border)
    writer.SetBorder(*spec.border, RangeOf(g, row_values, [&](int y) { read(y, row_values); }));
  for (int y = 0; y < g.rows.first; ++y) writer.Write(y, nullptr);
  Resample(
      g.rows.Forward(spec), g.columns.Forward(spec), g.columns.source, source.channels(),
      [&](int row, float* const* channels) {
        const IntensityRow to{{channels, channels + source.channels()}, width, 1};
        read(row, to);
        for (float* const values : to.channels) {
          for (size_t x = 0; border != 0 && x < width; ++x) values[x] -= border;
        }
        writer.See(to);
      },
      [&](int row, const float* const* values) { writer.Write(g.rows.first + row, values); });
  for (int y = g.rows.first + g.rows.count; y < g.rows.tensor; ++y) writer.Write(y, nullptr);
  prepared.tensor = writer.Take();
  ChangeTensor(spec, prepared.tensor);
  prepared.found = writer.found();
  prepared.cut = writer.cut();
  prepared.observed = source.observed();
  prepared.padding = source.PaddingMask();
  return prepared;
}

}  // namespace radserve
