#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace radserve {

/// As the manifest names them (src/manifest/image-input.ts).
enum class Interpolation {
  kArea,
  /// Each pixel that is touched counts whole.
  kAdaptiveArea,
  kLinear,
  kCubic,
  kNearest,
  kNearestFloor,
  /// By MakeGaussianTaps of gaussian.h.
  kGaussian,
  /// For pictures: area where an axis shrinks, linear where it grows.
  kDisplay,
  /// Volumes: by ResamplingSpec of prepare/volume_geometry.h.
  kSpline,
};

/// One axis: the centre of output i lies at offset + (i + 0.5) * scale, in input pixels counted
/// from edges.
struct Axis {
  int input = 0;
  int output = 0;
  double offset = 0;
  double scale = 1;
  /// Without it linear and cubic weigh two and four inputs, however much an axis shrinks.
  bool antialias = true;
};

/// For each output the weights of a run of inputs; they sum to 1. Inputs outside the image are left
/// out and the others share their weight (gaussian.h does otherwise).
struct Taps {
  std::vector<int> first;
  std::vector<int> count;
  std::vector<size_t> start;
  std::vector<float> weights;

  size_t size() const { return first.size(); }
  std::span<const float> WeightsOf(size_t output) const {
    return std::span(weights).subspan(start[output], static_cast<size_t>(count[output]));
  }
  /// One more output, of inputs from `first_input` on.
  template <typename Weights>
  void Add(int first_input, const Weights& its_weights) {
    first.push_back(first_input);
    start.push_back(weights.size());
    for (const float weight : its_weights) weights.push_back(weight);
    count.push_back(static_cast<int>(weights.size() - start.back()));
  }
  /// The outputs [begin, end) alone.
  Taps Part(size_t begin, size_t end) const;
};

/// area: mean of the pixels covered. linear: triangle, cubic: Catmull-Rom (Keys 1981, a = -0.5);
/// both widened by the scale where it shrinks, against aliasing. nearest: the pixel under the
/// centre. nearest floor: the pixel under the output's first edge (OpenCV's INTER_NEAREST).
/// adaptive area: the mean of the pixels that are touched, each of which counts whole
/// (torch.nn.AdaptiveAvgPool2d).
///
/// Without `antialias` the border is repeated beyond the image, and cubic has a = -0.75, as OpenCV
/// and PyTorch have it.
Taps MakeTaps(const Axis& axis, Interpolation interpolation);

/// Splines of order 0 (nearest), 1 (linear) or 3 (cubic B-splines that go through the inputs; Unser
/// et al. 1993) without antialiasing; beyond the edges the outermost input goes on. It is what
/// scipy.ndimage.zoom computes with grid_mode and mode "nearest", and with it
/// skimage.transform.resize with mode "edge". Output i is at the place of number i - `before`. The
/// weights of the cubic ones, which never end, are cut off where they are less than 1e-8.
Taps MakeSplineTaps(const Axis& axis, int order, int before = 0);

/// The input that the first output is, where every output is one input and they follow each other:
/// nothing to resample. Else -1.
int CopiesFrom(const Taps& taps);

/// Gives input row `row`: fills `channels` arrays of the input's width.
using RowSource = std::function<void(int row, float* const* channels)>;
/// Takes output row `row`: `channels` arrays of the output's width.
using RowSink = std::function<void(int row, const float* const* channels)>;

/// Separable resampling. Every input row that counts is asked for once, in order; output rows come
/// in order. `input_columns` is the width of the rows that `source` fills.
void Resample(const Taps& rows, const Taps& columns, int input_columns, int channels,
              const RowSource& source, const RowSink& sink);

/// In the order slices, rows, columns.
using VolumeTaps = std::array<Taps, 3>;
/// Opens input slice `slice`; its rows are read before the next one is opened.
using SliceSource = std::function<RowSource(int slice)>;

/// Separable resampling of a volume whose rows have `input_columns` voxels: within each slice, then
/// along the slices. Slices are opened in order, each at most once; `sink` takes output slice by
/// slice, a whole plane for each channel.
void ResampleVolume(const VolumeTaps& taps, int input_columns, int channels,
                    const SliceSource& source, const RowSink& sink);

/// A whole plane, for maps that go back to the source grid.
std::vector<float> ResamplePlane(const float* plane, const Axis& rows, const Axis& columns,
                                 Interpolation interpolation);

class ColumnFilter;

/// Rows of planes that are resampled linearly, and parts of rows: the same values, to the bit, that
/// ResamplePlane gives for planes of finite numbers.
class PlaneSampler {
 public:
  PlaneSampler(const Axis& rows, const Axis& columns);
  ~PlaneSampler();

  const Taps& rows() const { return rows_; }
  const ColumnFilter& columns() const { return *filter_; }
  /// Output row `y` of `plane` where the cells [begin, end) of columns() are, each output at its
  /// place. Until the next call.
  const float* Row(const float* plane, int y, size_t begin, size_t end);

 private:
  Taps rows_;
  std::unique_ptr<ColumnFilter> filter_;
  size_t input_columns_;
  /// Where nothing is resampled, the input that the first output is; else -1.
  int copied_row_ = -1;
  int copied_column_ = -1;
  std::vector<float> mixed_;
  std::vector<float> row_;
};

}  // namespace radserve
