#include "prepare/intensity.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "prepare/input.h"
#include "prepare/statistics.h"

namespace radserve {
namespace {

IntensityChange ChangeBy(const IntensitySpec& step, const Statistics& s) {
  using Kind = IntensitySpec::Kind;
  IntensityChange change;
  change.nonzero = step.nonzero;
  if (step.clip || step.kind == Kind::kClipPercentiles) {
    change.low = s.low;
    change.high = s.high;
  }
  if (step.kind == Kind::kZScore) {
    change.subtract = s.mean;
    change.multiply = s.std > 0 ? 1 / s.std : 0;
  } else if (step.kind != Kind::kClipPercentiles) {
    const auto [low, high] =
        step.kind == Kind::kPercentile ? std::pair(s.low, s.high) : std::pair(s.min, s.max);
    change.subtract = low;
    change.multiply = high > low ? (step.to[1] - step.to[0]) / (high - low) : 0;
    change.add = step.to[0];
  }
  return change;
}

/// A change of each channel by the values that are shown.
std::vector<IntensityChange> ChangesBy(const IntensitySpec& step, size_t channels,
                                       const IntensityRows& rows) {
  std::vector<VolumeStatistics> groups(step.each_channel ? channels : 1,
                                       VolumeStatistics(step.NeedsCopy(), false));
  constexpr size_t kPortion = size_t{1} << 12;
  std::vector<std::pair<double, uint64_t>> values;
  rows([&](const IntensityRow& row) {
    for (size_t c = 0; c < channels; ++c) {
      VolumeStatistics& group = groups[c % groups.size()];
      const float* value = row.channels[c];
      for (size_t i = 0; i < row.count; ++i, value += row.step) {
        if (!step.nonzero || *value != 0) values.emplace_back(*value, 1);
        if (values.size() < kPortion && i + 1 < row.count) continue;
        group.Add(values);
        values.clear();
      }
    }
  });
  std::vector<IntensityChange> changes;
  for (size_t c = 0; c < channels; ++c)
    changes.push_back(ChangeBy(step, groups[c % groups.size()].Get(step.low, step.high)));
  return changes;
}

void ChangeRow(const std::vector<IntensityChange>& changes, const IntensityRow& row) {
  for (size_t c = 0; c < changes.size(); ++c) {
    float* value = row.channels[c];
    for (size_t i = 0; i < row.count; ++i, value += row.step) *value = changes[c](*value);
  }
}

}  // namespace

IntensitySpec ReadIntensity(const Description& o) {
  using Kind = IntensitySpec::Kind;
  IntensitySpec step;
  step.kind = o.OneOf<Kind>("kind", {{"min_max", Kind::kMinMax},
                                     {"z_score", Kind::kZScore},
                                     {"percentile", Kind::kPercentile},
                                     {"clip_percentiles", Kind::kClipPercentiles}});
  step.at_source = o.Text("at") == "source";
  step.nonzero = o.Text("of") == "nonzero";
  step.each_channel = o.Text("channels") == "each";
  if (o.Has("low")) o.Into("low", step.low, "high", step.high);
  if (o.Has("to")) step.to = o.Some<2>("to");
  if (o.Has("clip")) step.clip = o.Flag("clip");
  return step;
}

float IntensityChange::operator()(float value) const {
  if (nonzero && value == 0) return value;
  return static_cast<float>(
      (std::clamp(static_cast<double>(value), low, high) - subtract) * multiply + add);
}

SourceIntensity::SourceIntensity(const InputSpec& spec, const IntensityRows& rows) {
  for (const IntensitySpec& step : spec.intensity) {
    if (!step.at_source) continue;
    steps_.push_back(ChangesBy(step, static_cast<size_t>(spec.Channels()), [&](const auto& see) {
      rows([&](const IntensityRow& row) {
        Change(row);
        see(row);
      });
    }));
  }
}

void SourceIntensity::Change(const IntensityRow& row) const {
  for (const std::vector<IntensityChange>& changes : steps_) ChangeRow(changes, row);
}

void ChangeTensor(const InputSpec& spec, Tensor& tensor) {
  if (std::ranges::all_of(spec.intensity, &IntensitySpec::at_source)) return;
  if (tensor.dtype != Dtype::kFloat32)
    throw EngineError("internal", "Expected a tensor of float32.");
  const auto channels = static_cast<size_t>(spec.Channels());
  IntensityRow all{{}, tensor.Elements() / channels, spec.channels_last ? channels : 1};
  for (size_t c = 0; c < channels; ++c) {
    auto* const values = reinterpret_cast<float*>(tensor.data);
    all.channels.push_back(values + (spec.channels_last ? c : c * all.count));
  }
  for (const IntensitySpec& step : spec.intensity) {
    if (!step.at_source)
      ChangeRow(ChangesBy(step, channels, [&](const auto& see) { see(all); }), all);
  }
}

}  // namespace radserve
