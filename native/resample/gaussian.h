#pragma once

#include "resample/resample.h"

namespace radserve {

/// A Gaussian of (scale - 1) / 2 inputs where an axis shrinks, cut off at four deviations, and
/// between what comes of it linear interpolation: skimage.transform.resize of order 1, which is
/// scipy.ndimage's gaussian_filter and zoom with grid_mode. Without the axis's `antialias` there is
/// no Gaussian (anti_aliasing=False). With `mirror` the input goes on mirrored about its outermost
/// centres; else nothing is there, and the weights of an output that sees it do not sum to 1.
Taps MakeGaussianTaps(const Axis& axis, bool mirror);

}  // namespace radserve
