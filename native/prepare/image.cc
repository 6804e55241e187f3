#include "prepare/image.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "prepare/channels.h"
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
      if (!direct) StoreRow(spec_.dtype, out, columns, place, stride);
    }
  }

  Tensor Take() { return std::move(tensor_); }
  const std::optional<Statistics>& found() const { return normaliser_.found; }

 private:
  const InputSpec& spec_;
  const Geometry& geometry_;
  size_t channels_;
  Normaliser normaliser_;
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

}  // namespace

PreparedImage PrepareImage(std::span<const Plane> frames, size_t centre, const InputSpec& spec,
                           const TensorMaker& make) {
  const ChannelSource source(frames, centre, spec);
  const Plane& plane = frames[centre];
  PreparedImage prepared;
  prepared.geometry =
      PlaceImage(plane.format.rows, plane.format.columns, plane.pixel_aspect, spec.size, spec.fit);
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
  TensorWriter writer(spec, g, source, make);
  for (int y = 0; y < g.rows.first; ++y) writer.Write(y, nullptr);
  Resample(
      MakeTaps(g.rows.Forward(spec.antialias), spec.interpolation),
      MakeTaps(g.columns.Forward(spec.antialias), spec.interpolation), g.columns.source,
      source.channels(),
      [&](int row, float* const* channels) {
        source.Row(row, channels);
        if (!changed.empty()) changed.Change({{channels, channels + source.channels()}, width, 1});
      },
      [&](int row, const float* const* values) { writer.Write(g.rows.first + row, values); });
  for (int y = g.rows.first + g.rows.count; y < g.rows.tensor; ++y) writer.Write(y, nullptr);
  prepared.tensor = writer.Take();
  ChangeTensor(spec, prepared.tensor);
  prepared.found = writer.found();
  prepared.observed = source.observed();
  prepared.padding = source.PaddingMask();
  return prepared;
}

}  // namespace radserve
