#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "postprocess/maps.h"

namespace radserve {

/// Labels on the source grid, decided from maps on the model's: each source pixel by the values
/// that linear interpolation (antialiased where it shrinks) gives there.
///
/// Most of a source is far from any edge between labels, and is larger than the map. Where all
/// samples that a pixel is interpolated from are on one side of the decision by more than rounding
/// can move them, the pixel is too, and no value is computed. All others are computed; the labels
/// are the same.
///
/// The planes are appended to what they go to. With `fractions` each label's probabilities are
/// appended to it, in steps of 1/255. `last` is the activation of values that are logits still:
/// they are interpolated, and activated on the source grid.

/// 1 where the plane of a channel is at or above the channel's threshold: a plane for each channel.
void ProjectOverThresholds(const Maps& maps, const Axis& rows, const Axis& columns, Activation last,
                           std::span<const double> thresholds, std::vector<uint8_t>& mask,
                           std::vector<uint8_t>* fractions);

/// Of `labels` that of the channel that is highest, the first of equal ones: one plane. Channel 0
/// is background and has no fractions.
void ProjectHighest(const Maps& maps, const Axis& rows, const Axis& columns, Activation last,
                    std::span<const uint8_t> labels, std::vector<uint8_t>& mask,
                    std::vector<uint8_t>* fractions);

/// Labels of a map at each source pixel: the nearest.
std::vector<uint8_t> ProjectNearest(std::vector<uint8_t> labels, const Axis& rows,
                                    const Axis& columns);

}  // namespace radserve
