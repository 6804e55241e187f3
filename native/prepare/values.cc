#include "prepare/values.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"

namespace radserve {
namespace {

using IfAbsent = ValuesSpec::IfAbsent;
using ValuesKind = ValuesSpec::Kind;

const VoiTransform* Voi(const Plane& plane, const ValuesSpec& values) {
  const auto& all = plane.interpretation.voi;
  const auto index = static_cast<size_t>(values.index);
  return values.kind == ValuesKind::kVoi && index < all.size() ? &all[index] : nullptr;
}

bool Inverts(const Plane& plane, const ValueFields& spec) {
  return plane.format.photometric == Photometric::kMonochrome1 &&
         spec.monochrome1 == ValueFields::Monochrome1::kInvert;
}

double TableEntry(const LookupTable& table, double value) {
  const double last = static_cast<double>(table.entries.size()) - 1;
  const double index = std::clamp(std::floor(value + 0.5) - table.first_mapped, 0.0, last);
  return table.entries[static_cast<size_t>(index)];
}

double FullScale(const LookupTable& table) { return std::ldexp(1.0, table.bits) - 1; }

void CheckTable(const LookupTable& table, const char* name) {
  if (table.entries.empty() || table.bits < 1 || table.bits > 16) {
    throw EngineError("corrupt_image", std::string("Expected a ") + name +
                                           " with entries of 1 to 16 bits, found one with " +
                                           std::to_string(table.entries.size()) + " entries of " +
                                           std::to_string(table.bits) + " bits.");
  }
}

void CheckWindow(const Window& window) {
  const double least = window.function == WindowFunction::kLinear ? 1 : 0;
  const bool good = std::isfinite(window.center) && std::isfinite(window.width) &&
                    (least == 1 ? window.width >= 1 : window.width > 0);
  if (!good) {
    throw EngineError("corrupt_image",
                      least == 1 ? "Expected a Window Width of at least 1 (PS3.3 C.11.2.1.2.1)."
                                 : "Expected a Window Width greater than 0 (PS3.3 C.11.2.1.3).");
  }
}

void CheckModality(const ModalityTransform& modality) {
  if (modality.kind == ModalityTransform::Kind::kLut) CheckTable(modality.lut, "Modality LUT");
  if (modality.kind == ModalityTransform::Kind::kRescale &&
      (modality.slope == 0 || !std::isfinite(modality.slope) ||
       !std::isfinite(modality.intercept))) {
    throw EngineError("corrupt_image",
                      "Expected a finite Rescale Slope other than 0 and a finite Rescale Intercept "
                      "(PS3.3 C.11.1.1.2).");
  }
}

Range ModalityRange(const Plane& plane) {
  const ModalityTransform& modality = plane.interpretation.modality;
  if (modality.kind == ModalityTransform::Kind::kLut) return {0, FullScale(modality.lut)};
  const Range stored = StoredRange(plane);
  const double a = ModalityValue(modality, stored.low);
  const double b = ModalityValue(modality, stored.high);
  return {std::min(a, b), std::max(a, b)};
}

/// A linear window as the modality values that become 0 and 1; nullopt for the others, and for a
/// width of one (LINEAR), which is a step.
std::optional<Range> LinearRamp(const Window& w) {
  if (w.function == WindowFunction::kLinearExact)
    return Range{w.center - w.width / 2, w.center + w.width / 2};
  if (w.function != WindowFunction::kLinear || w.width <= 1) return std::nullopt;
  return Range{w.center - 0.5 - (w.width - 1) / 2, w.center - 0.5 + (w.width - 1) / 2};
}

ValuesSpec ReadValuesSpec(const Description& o) {
  ValuesSpec values;
  // SUV and real-world values come as modality values: src/models/input-values.ts maps them so.
  values.kind = o.OneOf<ValuesKind>("kind", {{"stored", ValuesKind::kStored},
                                             {"modality", ValuesKind::kModality},
                                             {"real_world", ValuesKind::kModality},
                                             {"suv_bw", ValuesKind::kModality},
                                             {"voi", ValuesKind::kVoi},
                                             {"full_range", ValuesKind::kVoi},
                                             {"window", ValuesKind::kWindow},
                                             {"windows", ValuesKind::kWindow}});
  if (o.Text("kind") == "full_range") {
    values.index = ValuesSpec::kNoWindow;
    values.if_absent = IfAbsent::kFullRange;
  } else if (values.kind == ValuesKind::kVoi) {
    values.index = o.Int("index");
    values.if_absent = o.OneOf<IfAbsent>("if_absent", {{"full_range", IfAbsent::kFullRange},
                                                       {"min_max", IfAbsent::kMinMax},
                                                       {"refuse", IfAbsent::kRefuse}});
  }
  if (o.Has("windows")) {
    values.windows = o.List("windows", ReadWindow<Description>);
  } else if (values.kind == ValuesKind::kWindow) {
    values.window = ReadWindow(o);
  }
  return values;
}

}  // namespace

void ValueFields::ReadValues(const Description& input) {
  values = ReadValuesSpec(input.Child("values"));
  monochrome1 = input.OneOf<Monochrome1>("monochrome1", {{"invert", Monochrome1::kInvert},
                                                         {"as_stored", Monochrome1::kAsStored},
                                                         {"refuse", Monochrome1::kRefuse}});
  channels = input.OneOf<ChannelOrder>("channels", {{"grayscale", ChannelOrder::kGrayscale},
                                                    {"windows", ChannelOrder::kGrayscale},
                                                    {"rgb", ChannelOrder::kRgb},
                                                    {"bgr", ChannelOrder::kBgr}});
  accept_colour = input.Text("colour_source") == "accept";
  if (input.Has("clip")) {
    const auto [low, high] = input.Some<2>("clip");
    clip = {low, high};
  }
  background = input.Number("background");
}

Range StoredRange(const PixelFormat& format) {
  const double span = std::ldexp(1.0, format.bits_stored);
  return format.is_signed ? Range{-span / 2, span / 2 - 1} : Range{0, span - 1};
}

Range StoredRange(const Plane& plane) {
  PixelFormat format = plane.format;
  if (const auto& own = plane.interpretation.own_bits) {
    format.bits_stored = own->bits_stored;
    format.is_signed = own->is_signed;
  }
  return StoredRange(format);
}

double ModalityValue(const ModalityTransform& modality, double stored) {
  switch (modality.kind) {
    case ModalityTransform::Kind::kIdentity:
      return stored;
    case ModalityTransform::Kind::kRescale:
      return stored * modality.slope + modality.intercept;
    case ModalityTransform::Kind::kLut:
      return TableEntry(modality.lut, stored);
  }
  return stored;
}

double WindowValue(const Window& w, double x) {
  double y = 0;
  switch (w.function) {
    case WindowFunction::kLinear:
      if (x <= w.center - 0.5 - (w.width - 1) / 2) return 0;
      if (x > w.center - 0.5 + (w.width - 1) / 2) return 1;
      y = (x - (w.center - 0.5)) / (w.width - 1) + 0.5;
      break;
    case WindowFunction::kLinearExact:
      y = (x - w.center) / w.width + 0.5;
      break;
    case WindowFunction::kSigmoid:
      y = 1 / (1 + std::exp(-4 * (x - w.center) / w.width));
      break;
  }
  return std::clamp(y, 0.0, 1.0);
}

bool ValueMap::NeedsObserved(const Plane& plane, const ValueFields& spec) {
  if (spec.values.kind == ValuesKind::kVoi) {
    return Voi(plane, spec.values) == nullptr && spec.values.if_absent == IfAbsent::kMinMax;
  }
  return Inverts(plane, spec) && plane.format.is_float && spec.values.kind != ValuesKind::kWindow;
}

ValueMap::ValueMap(const Plane& plane, const ValueFields& spec,
                   const std::optional<Range>& observed) {
  if (plane.format.photometric == Photometric::kMonochrome1 &&
      spec.monochrome1 == ValueFields::Monochrome1::kRefuse) {
    throw EngineError("no_model_accepts", "The model refuses MONOCHROME1 images.");
  }
  CheckModality(plane.interpretation.modality);
  if (spec.values.kind != ValuesKind::kStored) modality_ = &plane.interpretation.modality;
  SetVoi(plane, spec.values, observed);
  if (Inverts(plane, spec)) SetInversion(plane, spec, observed);
  const double infinity = std::numeric_limits<double>::infinity();
  clip_ = spec.clip ? Range{spec.clip->first, spec.clip->second} : Range{-infinity, infinity};
  background_ = static_cast<float>(std::clamp(spec.background, clip_.low, clip_.high));
}

void ValueMap::SetVoi(const Plane& plane, const ValuesSpec& values,
                      const std::optional<Range>& observed) {
  if (values.kind == ValuesKind::kWindow) window_ = values.window;
  if (values.kind == ValuesKind::kVoi) {
    if (const VoiTransform* voi = Voi(plane, values)) {
      if (voi->lut) {
        CheckTable(*voi->lut, "VOI LUT");
        voi_lut_ = &*voi->lut;
      } else {
        window_ = voi->window;
      }
    } else if (values.if_absent == IfAbsent::kRefuse ||
               (values.if_absent == IfAbsent::kFullRange && plane.format.is_float)) {
      if (values.index == ValuesSpec::kNoWindow) {
        throw EngineError("no_model_accepts",
                          "The model needs values over the range of their bits, expected whole "
                          "numbers; found Float Pixel Data.");
      }
      throw EngineError("no_model_accepts",
                        "The model needs the file's window or VOI LUT number " +
                            std::to_string(values.index + 1) + "; the file has " +
                            std::to_string(plane.interpretation.voi.size()) + ".");
    } else if (values.if_absent == IfAbsent::kFullRange) {
      ramp_ = ModalityRange(plane);
    } else {
      ramp_ = observed.value();
    }
  }
  if (!window_) return;
  CheckWindow(*window_);
  ramp_ = LinearRamp(*window_);
  if (ramp_) window_.reset();
}

void ValueMap::SetInversion(const Plane& plane, const ValueFields& spec,
                            const std::optional<Range>& observed) {
  if (spec.values.kind == ValuesKind::kVoi || spec.values.kind == ValuesKind::kWindow) {
    inversion_sum_ = 1;
    return;
  }
  if (spec.values.kind == ValuesKind::kModality && plane.interpretation.hounsfield) return;
  const Range range = plane.format.is_float                     ? observed.value()
                      : spec.values.kind == ValuesKind::kStored ? StoredRange(plane)
                                                                : ModalityRange(plane);
  inversion_sum_ = range.low + range.high;
}

double ValueMap::operator()(double stored) const {
  double value = modality_ == nullptr ? stored : ModalityValue(*modality_, stored);
  if (ramp_) {
    const double span = ramp_->high - ramp_->low;
    value = span > 0 ? std::clamp((value - ramp_->low) / span, 0.0, 1.0) : 0;
  } else if (window_) {
    value = WindowValue(*window_, value);
  } else if (voi_lut_ != nullptr) {
    value = std::min(1.0, TableEntry(*voi_lut_, value) / FullScale(*voi_lut_));
  }
  if (inversion_sum_) value = *inversion_sum_ - value;
  return std::clamp(value, clip_.low, clip_.high);
}

std::optional<ValueMap::Affine> ValueMap::AsAffine() const {
  if (window_ || voi_lut_ != nullptr || (ramp_ && ramp_->high <= ramp_->low)) return std::nullopt;
  if (modality_ != nullptr && modality_->kind == ModalityTransform::Kind::kLut) return std::nullopt;
  const bool rescale = modality_ != nullptr && modality_->kind == ModalityTransform::Kind::kRescale;
  double a = rescale ? modality_->slope : 1;
  double b = rescale ? modality_->intercept : 0;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  if (ramp_) {
    const double span = ramp_->high - ramp_->low;
    a /= span;
    b = (b - ramp_->low) / span;
    low = 0;
    high = 1;
  }
  if (inversion_sum_) {
    a = -a;
    b = *inversion_sum_ - b;
    std::swap(low, high);
    low = *inversion_sum_ - low;
    high = *inversion_sum_ - high;
  }
  low = std::clamp(low, clip_.low, clip_.high);
  high = std::clamp(high, clip_.low, clip_.high);
  return Affine{a, b, static_cast<float>(low), static_cast<float>(high)};
}

bool ValueMap::Affine::IsExactInFloat(double most) const {
  // Where a and b are whole multiples of one power of two, so are product and sum: exact within 24
  // bits.
  const double limit = std::ldexp(1.0, std::numeric_limits<float>::digits);
  double scaled_a = a;
  double scaled_b = b;
  for (int bits = 0; bits < std::numeric_limits<float>::digits;
       ++bits, scaled_a *= 2, scaled_b *= 2) {
    if (std::fabs(scaled_a) * most + std::fabs(scaled_b) > limit) return false;
    if (scaled_a == std::trunc(scaled_a) && scaled_b == std::trunc(scaled_b)) return true;
  }
  return false;
}

}  // namespace radserve
