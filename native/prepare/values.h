#pragma once

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/description.h"
#include "base/image.h"

namespace radserve {

enum class ChannelOrder { kGrayscale, kRgb, kBgr };

struct ValuesSpec {
  enum class Kind { kStored, kModality, kVoi, kWindow } kind = Kind::kStored;
  /// kVoi: which of the file's, if any.
  int index = 0;
  static constexpr int kNoWindow = -1;
  enum class IfAbsent { kFullRange, kMinMax, kRefuse } if_absent = IfAbsent::kRefuse;
  Window window;
  /// kWindow: if there are any, each gives a channel of its own, and `window` is not used.
  std::vector<Window> windows;
};

/// The fields of an input by which stored values become those that are resampled.
struct ValueFields {
  ValuesSpec values;
  enum class Monochrome1 { kInvert, kAsStored, kRefuse } monochrome1 = Monochrome1::kInvert;
  ChannelOrder channels = ChannelOrder::kGrayscale;
  bool accept_colour = false;
  std::optional<std::pair<double, double>> clip;
  double background = 0;

  void ReadValues(const Description& input);
  /// Channels that one frame and one window give.
  int PixelChannels() const { return channels == ChannelOrder::kGrayscale ? 1 : 3; }
  /// Windows, if there are several; each frame has so many layers of PixelChannels.
  int Windows() const {
    return values.windows.empty() ? 1 : static_cast<int>(values.windows.size());
  }
};

/// A window of a manifest, or of an image.
template <typename Object>
Window ReadWindow(const Object& o) {
  return {
      o.Number("center"), o.Number("width"),
      o.template OneOf<WindowFunction>("function", {{"LINEAR", WindowFunction::kLinear},
                                                    {"LINEAR_EXACT", WindowFunction::kLinearExact},
                                                    {"SIGMOID", WindowFunction::kSigmoid}})};
}

struct Range {
  double low = 0;
  double high = 0;
};

/// Least and greatest stored value that the format allows (integers only).
Range StoredRange(const PixelFormat& format);
/// The same of a frame by the bits of its own file, whatever format it is kept in beside others.
Range StoredRange(const Plane& plane);

/// Stored value to modality value (PS3.3 C.11.1): rescale, or the lookup table, never both.
double ModalityValue(const ModalityTransform& modality, double stored);

/// Modality value to 0..1 by a window (PS3.3 C.11.2.1.2, C.11.2.1.3).
double WindowValue(const Window& window, double value);

/// Transforms one stored value of a grayscale image before it is resampled: modality transform,
/// then window or VOI LUT to 0..1, then inversion of MONOCHROME1, then the manifest's clip, as the
/// manifest asks.
class ValueMap {
 public:
  /// Throws corrupt_image for transforms that PS3.3 forbids, no_model_accepts if the manifest
  /// refuses the image. `observed` is the range of modality values (of stored values for `stored`)
  /// in this image outside its padding; needed if NeedsObserved says so.
  ValueMap(const Plane& plane, const ValueFields& spec, const std::optional<Range>& observed);
  static bool NeedsObserved(const Plane& plane, const ValueFields& spec);

  double operator()(double stored) const;
  /// The value of pixels that hold no image: the manifest's background, neither windowed nor
  /// inverted.
  float background() const { return background_; }

  /// value = clamp(stored * a + b, low, high), if the whole map is that.
  struct Affine {
    double a = 1;
    double b = 0;
    float low = -std::numeric_limits<float>::infinity();
    float high = std::numeric_limits<float>::infinity();
    /// Float arithmetic gives the same as double arithmetic rounded once, for stored values up to
    /// `most`.
    bool IsExactInFloat(double most) const;
  };
  std::optional<Affine> AsAffine() const;

 private:
  void SetVoi(const Plane& plane, const ValuesSpec& values, const std::optional<Range>& observed);
  void SetInversion(const Plane& plane, const ValueFields& spec,
                    const std::optional<Range>& observed);

  const ModalityTransform* modality_ = nullptr;
  /// At most one of the three: a linear ramp to 0..1, a window, a lookup table.
  std::optional<Range> ramp_;
  std::optional<Window> window_;
  const LookupTable* voi_lut_ = nullptr;
  /// MONOCHROME1: value becomes this sum less the value.
  std::optional<double> inversion_sum_;
  Range clip_;
  float background_ = 0;
};

}  // namespace radserve
