#pragma once

#include <vector>

namespace radserve {

/// Resampling with ends aligned: the first and the last voxel of both grids lie at the same places,
/// so that output i of `output` is at input i * (input - 1) / (output - 1). To the bit what
/// scipy.ndimage.zoom computes in float64 with mode "nearest" and without grid_mode: where the last
/// output rounds to a place beyond the last input, that input counts.

/// An output of order 1 is low * low_weight + high * high_weight.
struct EndsTap {
  int low = 0;
  int high = 0;
  double low_weight = 1;
  double high_weight = 0;
};

/// One for each output. `input` is at least 1.
std::vector<EndsTap> MakeEndsTaps(int input, int output);

/// How many inputs lie between two neighbouring outputs; 1 where there is one output alone.
double EndsStep(int input, int output);

/// The input that an output of order 0 is.
int NearestByEnds(int i, int input, int output);

}  // namespace radserve
