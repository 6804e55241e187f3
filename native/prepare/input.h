#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/description.h"
#include "base/tensor.h"
#include "prepare/channels.h"
#include "prepare/geometry.h"
#include "prepare/intensity.h"
#include "prepare/labels.h"
#include "prepare/statistics.h"
#include "prepare/values.h"
#include "prepare/volume_geometry.h"

namespace radserve {

/// An input of a manifest (src/manifest/image-input.ts says what its fields mean). Each step of the
/// preparation has the fields that it uses, and reads them, in a file of its own.
struct InputSpec : ValueFields, PlacementFields, VolumeFields {
  std::string tensor;
  Dtype dtype = Dtype::kFloat32;
  bool channels_last = false;
  /// NCWH: columns of the image are rows of the tensor.
  bool transposed = false;
  /// NCDHW and NDHWC.
  bool volume = false;
  /// Not 0: the input holds so many numbers, which come with each request, and nothing else but
  /// `flat` counts.
  int numbers = 0;
  /// Numbers as [1] instead of [1, numbers].
  bool flat = false;
  NormalisationSpec normalisation;
  /// One after the other, behind `normalisation`; those at the source come first.
  std::vector<IntensitySpec> intensity;
  std::optional<NeighboursSpec> neighbours;
  /// Which source of a case it is made of; 0 where there is only one.
  size_t source = 0;
  /// Not empty: the tensor's channels are those of several sources of a case, one after the other,
  /// each prepared by a specification of its own, which differs in source, values, clip,
  /// normalisation and background alone.
  std::vector<InputSpec> parts;
  /// Channels behind those of the pixels: one for each label of another model, 1 where that label
  /// is (nnU-Net's cascade).
  int label_channels = 0;

  /// Whether it takes a part of a case other than the first source.
  bool OfCase() const {
    if (source > 0) return true;
    for (const InputSpec& part : parts) {
      if (part.source > 0) return true;
    }
    return false;
  }
  int Channels() const {
    if (parts.empty()) return PixelChannels() * Windows() * (neighbours ? neighbours->Slices() : 1);
    int channels = 0;
    for (const InputSpec& part : parts) channels += part.Channels();
    return channels;
  }
  /// The parts of which it is made, one after the other: itself, where it has no parts.
  std::span<const InputSpec> Parts() const {
    return parts.empty() ? std::span<const InputSpec>(this, 1) : std::span<const InputSpec>(parts);
  }
  /// Whether the preparation has the tensor's values twice for a while.
  bool NeedsCopy() const {
    return (resampling && resampling->CropsTensor()) ||
           std::ranges::any_of(intensity, &IntensitySpec::NeedsCopy);
  }
  /// Whether the preparation has to know which voxels are not 0, beside the box around them.
  bool AsksForInside() const {
    return label_channels > 0 || std::ranges::any_of(Parts(), [](const InputSpec& part) {
             return part.normalisation.nonzero;
           });
  }
};

/// Reads an input as the manifest has it. `roles` are those of the model, in their order. Throws
/// `internal` for what src/manifest does not let through.
InputSpec ReadInputSpec(const Description& input, std::span<const std::string> roles);

}  // namespace radserve
