#include "prepare/volume_geometry.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "prepare/input.h"
#include "resample/ends.h"

namespace radserve {
namespace {

using Sides = std::array<int, 3>;

/// The positive sides of the axes of DICOM's coordinates, and then the negative ones.
constexpr std::string_view kSidesOfPatient = "LPSRAI";

/// Cosine of the angle by which directions may miss a right angle: about one degree.
constexpr double kSkew = 0.02;
/// Grids that differ by less than this part of a voxel over a whole axis are the same.
constexpr double kSameGrid = 0.01;
/// How far a spacing may be from the manifest's if nothing is resampled.
constexpr double kSpacingTolerance = 1e-3;

void CheckDirections(const VolumeGeometry& g) {
  for (size_t i = 0; i < 3; ++i) {
    const bool skew = std::fabs(Dot(g.direction[i], g.direction[(i + 1) % 3])) > kSkew;
    const bool unit = std::fabs(Dot(g.direction[i], g.direction[i]) - 1) <= kSkew;
    if (skew || !unit) {
      throw EngineError(
          "series_invalid",
          "Expected slices, rows and columns of the volume at right angles; found others (a tilted "
          "gantry, for example).");
    }
  }
}

/// The patient's axis of a letter, numbered as in DICOM's coordinates (0: left, 1: back, 2: head).
size_t PatientAxisOf(char letter) {
  const size_t at = kSidesOfPatient.find(letter);
  if (at == std::string_view::npos)
    throw EngineError("internal", "An orientation has the letter " + std::string(1, letter) + ".");
  return at % 3;
}

/// The patient's axis that each source axis runs along, by the rule of nibabel's io_orientation,
/// because networks were trained on volumes that it turned: the source axis that lies closest to
/// some axis of the patient is named first, and each gets the closest one that is left. In doubly
/// oblique volumes another rule gives other axes.
std::array<size_t, 3> PatientAxes(const VolumeGeometry& g) {
  const auto cosine = [&](size_t s, size_t p) { return std::fabs(g.direction[s][p]); };
  const auto closest = [&](size_t s) {
    return std::max({cosine(s, 0), cosine(s, 1), cosine(s, 2)});
  };
  // NIfTI numbers columns, rows, slices; of equal axes the first goes first.
  std::array<size_t, 3> order = {2, 1, 0};
  std::ranges::stable_sort(order, std::ranges::greater(), closest);
  std::vector<size_t> left = {0, 1, 2};
  std::array<size_t, 3> axes{};
  for (const size_t s : order) {
    const auto found = std::ranges::max_element(left, {}, [&](size_t p) { return cosine(s, p); });
    axes[s] = *found;
    left.erase(found);
  }
  return axes;
}

void Turn(const VolumeGeometry& g, const std::string& orientation, VolumePlacement& placement) {
  for (size_t a = 0; a < 3; ++a) placement.axes[a].source_axis = static_cast<int>(a);
  if (orientation.empty()) return;
  const std::array<size_t, 3> patient = PatientAxes(g);
  for (size_t a = 0; a < 3; ++a) {
    const size_t axis = PatientAxisOf(orientation[a]);
    const auto s = static_cast<size_t>(std::ranges::find(patient, axis) - patient.begin());
    const bool to_positive = kSidesOfPatient.find(orientation[a]) < 3;
    placement.axes[a].source_axis = static_cast<int>(s);
    placement.axes[a].flipped = (g.direction[s][axis] > 0) != to_positive;
  }
}

std::string SidesText(const Sides& sides) {
  return std::to_string(sides[0]) + " x " + std::to_string(sides[1]) + " x " +
         std::to_string(sides[2]);
}

Sides SourceSides(const VolumePlacement& p) {
  return {p.axes[0].source, p.axes[1].source, p.axes[2].source};
}

[[noreturn]] void DoesNotFit(const VolumePlacement& p, const std::string& expected) {
  throw EngineError("no_model_accepts", "Expected a volume " + expected + "; found " +
                                            SidesText(SourceSides(p)) +
                                            " voxels in the order of the model's axes.");
}

int FloorHalf(int value) { return value >= 0 ? value / 2 : -((1 - value) / 2); }

int RoundUp(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

/// `content` tensor voxels from `begin` on hold the source from `source_begin` for `seen` voxels;
/// begin may lie outside.
void Lay(VolumeAxis& axis, int begin, int content, double scale, double source_begin) {
  axis.scale = scale;
  axis.offset = source_begin - begin * scale;
  axis.first = std::max(0, begin);
  axis.count = std::min(axis.tensor, begin + content) - axis.first;
}

/// The tensor's sides if they follow the volume's: `content` is the volume's extent in tensor
/// voxels.
Sides OwnSides(const SizeSpec& size, const Sides& content) {
  Sides sides = content;
  for (int& side : sides) {
    if (size.kind == SizeSpec::Kind::kMultipleOf) side = RoundUp(side, size.multiple);
  }
  return sides;
}

/// Voxels of the tensor have the manifest's spacing.
void PlaceBySpacing(const std::array<double, 3>& source_spacing, const InputSpec& spec,
                    VolumePlacement& p) {
  std::array<double, 3> scale{};
  Sides content{};
  for (size_t a = 0; a < 3; ++a) {
    VolumeAxis& axis = p.axes[a];
    const double wanted = (*spec.spacing_mm)[a];
    scale[a] = wanted / source_spacing[a];
    const bool same = std::fabs(1 / scale[a] - 1) * std::max(axis.source, axis.tensor) < kSameGrid;
    if (spec.fit == Fit::kNone && std::fabs(scale[a] - 1) > kSpacingTolerance) {
      DoesNotFit(p, "with a spacing of " + std::to_string(wanted) + " mm along axis " +
                        std::to_string(a + 1) + ", because the model takes it without resampling");
    }
    if (same || spec.fit == Fit::kNone) scale[a] = 1;
    content[a] = std::max(1, static_cast<int>(std::ceil(axis.source / scale[a] - kSameGrid)));
  }
  const bool fixed = spec.size.kind == SizeSpec::Kind::kFixed;
  const Sides own = OwnSides(spec.size, content);
  for (size_t a = 0; a < 3; ++a) {
    VolumeAxis& axis = p.axes[a];
    if (!fixed) axis.tensor = own[a];
    const bool too_long =
        spec.size.kind == SizeSpec::Kind::kMultipleOf && content[a] > spec.size.max_side;
    const bool cut = content[a] > axis.tensor && spec.fit != Fit::kCrop;
    const bool differs = spec.fit == Fit::kNone && fixed && content[a] != axis.tensor;
    if (too_long || cut || differs) {
      const int most = too_long ? spec.size.max_side : axis.tensor;
      DoesNotFit(p, std::string("of ") + (differs ? "" : "at most ") + std::to_string(most) +
                        " voxels of " + std::to_string((*spec.spacing_mm)[a]) + " mm along axis " +
                        std::to_string(a + 1) +
                        (differs ? "" : " (fit \"crop\" would cut the rest off)"));
    }
    const int begin = spec.fit == Fit::kNone ? 0 : FloorHalf(axis.tensor - content[a]);
    Lay(axis, begin, content[a], scale[a], (axis.source - content[a] * scale[a]) / 2);
  }
}

/// How much multiple_of shrinks the volume: 1 unless a side exceeds max_side.
double OwnScale(const SizeSpec& size, const Sides& source) {
  if (size.kind != SizeSpec::Kind::kMultipleOf) return 1;
  return std::min(
      1.0, static_cast<double>(size.max_side) / *std::max_element(source.begin(), source.end()));
}

int Rounded(double value) { return std::max(1, static_cast<int>(std::lround(value))); }

void KeepVoxels(const SizeSpec& size, double own_scale, VolumePlacement& p) {
  for (VolumeAxis& axis : p.axes) {
    const bool fixed = size.kind == SizeSpec::Kind::kFixed;
    if (own_scale < 1 || axis.tensor < axis.source || (fixed && axis.tensor != axis.source)) {
      const Sides most = {size.max_side, size.max_side, size.max_side};
      const Sides exactly = {size.depth, size.height, size.width};
      DoesNotFit(p, (fixed ? "of exactly " + SidesText(exactly) : "of at most " + SidesText(most)) +
                        " voxels, because the model takes it without resampling");
    }
    Lay(axis, 0, axis.source, 1, 0);
  }
}

/// Letterbox and crop by physical size: one number of mm, `pitch`, for a tensor voxel along every
/// axis.
void PlaceByAspect(const std::array<double, 3>& spacing, Fit fit, double pitch,
                   VolumePlacement& p) {
  for (size_t a = 0; a < 3; ++a) {
    VolumeAxis& axis = p.axes[a];
    if (fit == Fit::kLetterbox) {
      const int content = std::min(axis.tensor, Rounded(axis.source * spacing[a] / pitch));
      Lay(axis, FloorHalf(axis.tensor - content), content,
          static_cast<double>(axis.source) / content, 0);
    } else {
      const double whole = std::round(axis.tensor * pitch / spacing[a]);
      double seen = std::min<double>(axis.source, axis.tensor * pitch / spacing[a]);
      // Rounding must not make interpolation out of a copy.
      if (std::fabs(seen - whole) < 1e-6) seen = whole;
      const bool same = seen == axis.tensor;
      Lay(axis, 0, axis.tensor, seen / axis.tensor,
          same ? FloorHalf(axis.source - axis.tensor) : (axis.source - seen) / 2);
    }
  }
}

void PlaceBySize(const std::array<double, 3>& spacing, const InputSpec& spec, VolumePlacement& p) {
  const bool fixed = spec.size.kind == SizeSpec::Kind::kFixed;
  const double own_scale = OwnScale(spec.size, SourceSides(p));
  Sides content{};
  for (size_t a = 0; a < 3; ++a) content[a] = Rounded(p.axes[a].source * own_scale);
  const Sides own = OwnSides(spec.size, content);
  std::array<double, 3> pitches{};
  for (size_t a = 0; a < 3; ++a) {
    VolumeAxis& axis = p.axes[a];
    if (!fixed) axis.tensor = own[a];
    pitches[a] = axis.source * (fixed ? spacing[a] : 1) / axis.tensor;
  }
  // A tensor of the source's own size holds the source's own voxels, whatever the fit.
  if (spec.size.kind == SizeSpec::Kind::kSource || spec.fit == Fit::kNone) {
    return KeepVoxels(spec.size, own_scale, p);
  }
  const auto [least, most] = std::minmax_element(pitches.begin(), pitches.end());
  const std::array<double, 3> unit = {1, 1, 1};
  switch (spec.fit) {
    case Fit::kStretch:
      for (VolumeAxis& axis : p.axes) {
        const double scale = spec.ScaleToFill(axis.source, axis.tensor);
        Lay(axis, 0, axis.tensor, scale, (axis.source - axis.tensor * scale) / 2);
      }
      return;
    case Fit::kLetterbox:
      return PlaceByAspect(fixed ? spacing : unit, spec.fit, fixed ? *most : 1 / own_scale, p);
    default:
      return PlaceByAspect(fixed ? spacing : unit, spec.fit, *least, p);
  }
}

/// Which axis of a grid is resampled by itself, if any: the one with the largest spacing, if that
/// is more than `above` times the smallest and no other axis has it too.
std::optional<size_t> CoarseAxis(const std::array<double, 3>& spacing, double above) {
  const auto [least, most] = std::ranges::minmax(spacing);
  if (above <= 0 || most / least <= above || std::ranges::count(spacing, most) > 1)
    return std::nullopt;
  return static_cast<size_t>(std::ranges::find(spacing, most) - spacing.begin());
}

bool IsCoarse(const std::array<double, 3>& spacing, double above) {
  const auto [least, most] = std::ranges::minmax(spacing);
  return above > 0 && most / least > above;
}

/// The axis for the way from one spacing to another: the first of the two that is coarse decides.
std::optional<size_t> SeparateAxis(const std::array<double, 3>& from,
                                   const std::array<double, 3>& to, double above) {
  return CoarseAxis(IsCoarse(from, above) ? from : to, above);
}

/// Voxels of a side at another spacing. Halves go to the even number, as Python rounds.
int SideAt(double spacing, double wanted, int voxels, ResamplingSpec::Grid grid) {
  const double side = grid == ResamplingSpec::Grid::kEdges ? spacing / wanted * voxels
                                                           : (voxels - 1) * spacing / wanted + 1;
  return std::max(1, static_cast<int>(std::nearbyint(side)));
}

/// The tensor covers the volume end to end.
void PlaceByEnds(const std::array<double, 3>& source_spacing, const ResamplingSpec& spec,
                 VolumePlacement& p) {
  for (size_t a = 0; a < 3; ++a) {
    VolumeAxis& axis = p.axes[a];
    // NIfTI keeps spacings as floats, and TotalSegmentator computes with what it reads there.
    const double own = static_cast<float>(source_spacing[a]);
    const double wanted = spec.spacing_mm[a] > 0 ? spec.spacing_mm[a] : own;
    const double side = std::nearbyint(axis.source * (own / wanted));
    if (side < 1 || (axis.source == 1 && side > 1)) {
      throw EngineError("no_model_accepts",
                        "Expected a volume of at least two voxels, and of at least half of " +
                            std::to_string(wanted) + " mm, along each axis; found " +
                            std::to_string(axis.source) + " of " + std::to_string(own) +
                            " mm along axis " + std::to_string(a + 1) + " of the model.");
    }
    if (own != wanted) p.whole_numbers = true;
    axis.tensor = axis.count = static_cast<int>(side);
    axis.ends = VolumeAxis::Ends{axis.tensor, 0};
    axis.scale = EndsStep(axis.source, axis.tensor);
    axis.offset = 0.5 - 0.5 * axis.scale;
  }
}

void PlaceBySplines(const std::array<double, 3>& source_spacing, const ResamplingSpec& spec,
                    const VolumeBox& box, VolumePlacement& p) {
  std::array<double, 3> wanted{};
  for (size_t a = 0; a < 3; ++a) {
    VolumeAxis& axis = p.axes[a];
    const auto s = static_cast<size_t>(axis.source_axis);
    wanted[a] = spec.spacing_mm[a] > 0 ? spec.spacing_mm[a] : source_spacing[a];
    VolumeAxis::Splines splines{spec.order, spec.order_back, box.first[s], box.count[s]};
    if (axis.flipped) splines.first = axis.source - splines.first - splines.count;
    axis.tensor = SideAt(source_spacing[a], wanted[a], splines.count, spec.grid);
    axis.first = 0;
    axis.count = axis.tensor;
    if (spec.grid == ResamplingSpec::Grid::kEdges) {
      axis.scale = static_cast<double>(splines.count) / axis.tensor;
      axis.offset = splines.first;
    } else {
      axis.scale = wanted[a] / source_spacing[a];
      axis.offset = splines.first + 0.5 - 0.5 * axis.scale;
    }
    axis.tensor = RoundUp(axis.count, spec.multiple_of[a]);
    axis.splines = splines;
  }
  const auto forward = SeparateAxis(source_spacing, wanted, spec.separate_above);
  const auto back = SeparateAxis(wanted, source_spacing, spec.separate_above);
  for (const auto& coarse : {forward, back}) {
    if (coarse && p.axes[*coarse].source_axis != 0) {
      throw EngineError("no_model_accepts",
                        "Expected a volume whose slices lie furthest apart; found pixels of " +
                            std::to_string(source_spacing[*coarse]) +
                            " mm within its slices, which the model resamples apart.");
    }
  }
  p.separate = forward.has_value();
  if (forward) p.axes[*forward].splines->forward = 0;
  if (back) p.axes[*back].splines->back = 0;
}

/// The same taps for an axis that is numbered from its other end, on both sides.
Taps Mirrored(const Taps& taps, int input) {
  Taps mirrored;
  for (size_t i = taps.size(); i-- > 0;) {
    mirrored.Add(input - taps.first[i] - taps.count[i], taps.WeightsOf(i) | std::views::reverse);
  }
  return mirrored;
}

ResamplingSpec ReadResampling(const Description& o) {
  using Grid = ResamplingSpec::Grid;
  ResamplingSpec resampling;
  resampling.grid = o.OneOf<Grid>(
      "grid", {{"edges", Grid::kEdges}, {"first_voxel", Grid::kFirstVoxel}, {"ends", Grid::kEnds}});
  o.Into("order", resampling.order, "order_back", resampling.order_back, "keep_range",
         resampling.keep_range);
  resampling.spacing_mm = o.Some<3>("spacing_mm", std::optional(0.0));
  if (o.Has("multiple_of")) resampling.multiple_of = o.Some<3, int>("multiple_of");
  if (o.Has("separate_above")) resampling.separate_above = o.Number("separate_above");
  resampling.clip_last = o.Text("clip") == "after";
  resampling.crop_nonzero = o.Text("crop") == "nonzero";
  resampling.crop_foreground = o.Text("crop") == "foreground";
  resampling.activate_last = o.Text("activation") == "after";
  return resampling;
}

}  // namespace

void VolumeFields::ReadVolume(const Description& input) {
  if (input.Has("spacing_mm")) spacing_mm = input.Some<3>("spacing_mm");
  if (input.Has("orientation")) orientation = input.Text("orientation");
  if (input.Has("resampling")) resampling = ReadResampling(input.Child("resampling"));
}

void VolumeAxis::CutTo(int begin, int voxels) {
  if (ends) {
    ends->first += begin;
  } else {
    // A voxel's width lies between two centres, of which half a voxel is within the tensor.
    if (begin > 0) beyond[0] = 0.5;
    if (begin + voxels < tensor) beyond[1] = 0.5;
  }
  offset += begin * scale;
  tensor = count = voxels;
}

bool VolumeAxis::Aligned() const { return scale == 1 && offset == std::floor(offset); }

int VolumeAxis::NearestOf(int i) const {
  const int along = NearestByEnds(flipped ? source - 1 - i : i, ends->count, source);
  if (along < ends->first || along >= ends->first + tensor) return -1;
  return flipped ? tensor - 1 - (along - ends->first) : along - ends->first;
}

Taps VolumeAxis::Forward(Interpolation interpolation) const {
  if (splines) {
    Taps taps =
        MakeSplineTaps({splines->count, count, offset - splines->first, scale}, splines->forward);
    for (int& tap : taps.first) tap += splines->first;
    return flipped ? Mirrored(taps, source) : taps;
  }
  const Axis axis = {source, count, offset + first * scale, scale, antialias};
  const Taps taps = MakeTaps(axis, Aligned() ? Interpolation::kNearest : interpolation);
  return flipped ? Mirrored(taps, source) : taps;
}

Taps VolumeAxis::Back(int map, Interpolation interpolation) const {
  if (ends) {
    // Outside of the tensor the source gets some neighbour, which ClearHidden makes background.
    Taps taps;
    int last = 0;
    for (int i = 0; i < source; ++i) {
      const int nearest = NearestOf(i);
      if (nearest >= 0) last = nearest;
      taps.Add(last, std::array<float, 1>{1});
    }
    return taps;
  }
  const double ratio = static_cast<double>(map) / tensor;
  if (splines) {
    // Where edges meet, the quotient of whole numbers is exact in the middle between two voxels.
    const bool edges =
        offset == splines->first && scale == static_cast<double>(splines->count) / tensor;
    const double step = edges ? static_cast<double>(map) / splines->count : ratio / scale;
    const Axis axis = {map, source, -(offset - splines->first) / scale * ratio, step};
    // Between two labels lies no third one.
    const int order = interpolation == Interpolation::kNearest ? 0 : splines->back;
    const Taps taps = MakeSplineTaps(axis, order, splines->first);
    return flipped ? Mirrored(taps, map) : taps;
  }
  const Axis axis = {map, source, -offset / scale * ratio, ratio / scale, antialias};
  const Taps taps =
      MakeTaps(axis, Aligned() && map == tensor ? Interpolation::kNearest : interpolation);
  return flipped ? Mirrored(taps, map) : taps;
}

MapSpan VolumeAxis::Within(int map) const {
  // Rounding must not lose a sample that lies on the edge.
  constexpr double kEdge = 1e-9;
  const double ratio = static_cast<double>(tensor) / map;
  const auto centre = [&](int i) { return ToSource((flipped ? map - i - 0.5 : i + 0.5) * ratio); };
  const auto inside = [&](int i) { return centre(i) >= -kEdge && centre(i) <= source + kEdge; };
  MapSpan span;
  while (span.begin < map && !inside(span.begin)) ++span.begin;
  while (span.begin + span.count < map && inside(span.begin + span.count)) ++span.count;
  span.first = centre(span.begin);
  span.step = scale * ratio;
  return span;
}

VolumeGeometry GeometryOf(const std::array<MapSpan, 3>& spans, const VolumeGeometry& source) {
  VolumeGeometry own = source;
  for (size_t s = 0; s < 3; ++s) {
    // The source's first voxel has its centre at 0.5, counted from edges.
    const double along = (spans[s].first - 0.5) * source.spacing[s];
    for (size_t i = 0; i < 3; ++i) own.origin[i] += along * source.direction[s][i];
    own.spacing[s] = spans[s].step * source.spacing[s];
  }
  return own;
}

size_t VolumePlacement::TensorAxis(int source_axis) const {
  size_t a = 0;
  while (axes[a].source_axis != source_axis) ++a;
  return a;
}

VolumePlacement PlaceVolume(const Sides& sides, const VolumeGeometry& geometry,
                            const InputSpec& spec, const std::optional<VolumeBox>& box) {
  CheckDirections(geometry);
  VolumePlacement placement;
  Turn(geometry, spec.orientation, placement);
  const Sides fixed = {spec.size.depth, spec.size.height, spec.size.width};
  std::array<double, 3> spacing{};
  for (size_t a = 0; a < 3; ++a) {
    VolumeAxis& axis = placement.axes[a];
    axis.source = sides[static_cast<size_t>(axis.source_axis)];
    axis.tensor = fixed[a];
    axis.antialias = spec.antialias;
    spacing[a] = geometry.spacing[static_cast<size_t>(axis.source_axis)];
  }
  if (spec.resampling && spec.resampling->ByEnds()) {
    PlaceByEnds(spacing, *spec.resampling, placement);
  } else if (spec.resampling) {
    PlaceBySplines(spacing, *spec.resampling, box.value_or(VolumeBox{{0, 0, 0}, sides}), placement);
  } else if (spec.spacing_mm) {
    PlaceBySpacing(spacing, spec, placement);
  } else {
    PlaceBySize(spacing, spec, placement);
  }
  return placement;
}

}  // namespace radserve
