#pragma once

#include <array>
#include <optional>
#include <string>

#include "base/description.h"
#include "resample/resample.h"

namespace radserve {

struct InputSpec;

/// How a volume gets the spacing of the model, and its maps go back, if it is by splines and
/// without antialiasing.
struct ResamplingSpec {
  /// kEdges: the tensor covers the volume, and its spacing is rounded so that voxels are whole
  /// (nnU-Net). kFirstVoxel: the first voxels of both lie at the same place, and the spacing is
  /// exact (MONAI). kEnds: the first and the last voxels of both lie at the same places, values are
  /// cut to whole numbers, and maps go back by the nearest (TotalSegmentator); resample/ends.h.
  enum class Grid { kEdges, kFirstVoxel, kEnds } grid = Grid::kEdges;
  /// Order of the splines: 0 nearest, 1 linear, 3 cubic.
  int order = 3;
  int order_back = 1;
  /// mm along the tensor's axes; 0: the volume's own.
  std::array<double, 3> spacing_mm = {0, 0, 0};
  /// If the largest spacing of the volume, or else of the tensor, is more than so many times the
  /// smallest, each slice is resampled by itself, and the nearest slice counts between them. 0:
  /// never.
  double separate_above = 0;
  /// The tensor's sides are rounded up to multiples of these; what is more lies behind the volume
  /// and is background.
  std::array<int, 3> multiple_of = {1, 1, 1};
  /// No value leaves the range of those that it is made of: of the volume, or of the slice if
  /// slices are separate.
  bool keep_range = false;
  /// Only the box around all values that are not 0 counts; the rest is as if the volume did not
  /// have it. With kEnds these are the values of the tensor.
  bool crop_nonzero = false;
  /// Only the box around all values of the tensor above 0 counts, as they are in the end; what the
  /// model says of the rest is 0 (MONAI's CropForeground).
  bool crop_foreground = false;
  /// The input's clip comes after resampling.
  bool clip_last = false;
  /// Maps are activated after they have gone back, instead of before.
  bool activate_last = false;

  bool ByEnds() const { return grid == Grid::kEnds; }
  /// The box is found in the source, before it is resampled.
  bool CropsSource() const { return crop_nonzero && !ByEnds(); }
  /// The box is found in the tensor, of which the rest is cut off afterwards.
  bool CropsTensor() const { return crop_foreground || (crop_nonzero && ByEnds()); }
};

/// The fields of an input that volumes alone have.
struct VolumeFields {
  /// In the order of the tensor's axes: depth, height, width.
  std::optional<std::array<double, 3>> spacing_mm;
  /// Three letters, or empty.
  std::string orientation;
  /// Then `size`, `fit` and `spacing_mm` do not count.
  std::optional<ResamplingSpec> resampling;

  void ReadVolume(const Description& input);
};

/// Mirrors VolumeGeometry of src/images/image.ts: patient coordinates of DICOM (PS3.3 C.7.6.2.1.1:
/// x to the left, y to the back, z to the head). Arrays are in the order slice, row, column: unit
/// vectors along which the index grows, and mm between voxel centres. Where one volume lies does
/// not matter for its own tensor, because it is placed by its centre; it matters for volumes of a
/// case (RegridSlices).
struct VolumeGeometry {
  std::array<std::array<double, 3>, 3> direction = {{{0, 0, 1}, {0, 1, 0}, {1, 0, 0}}};
  std::array<double, 3> spacing = {1, 1, 1};
  /// Centre of the first voxel.
  std::array<double, 3> origin = {0, 0, 0};
};

inline double Dot(const std::array<double, 3>& a, const std::array<double, 3>& b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

/// Samples of a map along an axis of the source, numbered as the source's index grows.
struct MapSpan {
  /// The first that counts.
  int begin = 0;
  int count = 0;
  /// Where the centre of that one lies and how far the next one is, in voxels of the source,
  /// counted from edges.
  double first = 0;
  double step = 1;
};

/// One axis of the tensor and the source axis that it runs along. Coordinates are continuous and
/// count from edges, as in Geometry: voxel i covers [i, i+1). The map is affine, so it inverts
/// exactly.
struct VolumeAxis {
  /// 0: slices, 1: rows, 2: columns.
  int source_axis = 0;
  /// The tensor's index grows against the source's.
  bool flipped = false;
  /// Voxels along the axis.
  int source = 0;
  int tensor = 0;
  /// The tensor's voxels that image content fills; the rest is background.
  int first = 0;
  int count = 0;
  /// Source coordinate, counted in the tensor's direction, of the tensor coordinate t: offset + t *
  /// scale.
  double offset = 0;
  double scale = 1;
  /// PlacementFields::antialias, to the tensor and back.
  bool antialias = true;
  /// Orders of the splines to the tensor and back; without them the interpolation counts.
  struct Splines {
    int forward = 3;
    int back = 1;
    /// The source's voxels that count, in the tensor's direction.
    int first = 0;
    int count = 0;
  };
  std::optional<Splines> splines;
  /// The tensor is a part of a grid whose ends are the source's.
  struct Ends {
    /// Voxels of that grid, and the number of the tensor's first among them.
    int count = 0;
    int first = 0;
  };
  std::optional<Ends> ends;
  /// How far beyond the tensor's first and last voxel maps count, in voxels of the tensor; from
  /// there on they are 0.
  std::array<double, 2> beyond = {0, 0};

  /// Leaves only the tensor's voxels [begin, begin + voxels). Between the last one that is left and
  /// the next one, maps fall to 0.
  void CutTo(int begin, int voxels);
  /// The tensor's voxel nearest to the source's voxel i, both numbered in the source's direction;
  /// -1 for none. Of an axis with `ends`.
  int NearestOf(int i) const;
  double ToSource(double tensor_coordinate) const {
    const double along = offset + tensor_coordinate * scale;
    return flipped ? source - along : along;
  }
  double ToTensor(double source_coordinate) const {
    return ((flipped ? source - source_coordinate : source_coordinate) - offset) / scale;
  }
  /// Voxels of tensor and source are the same ones: nothing is interpolated.
  bool Aligned() const;
  /// The samples of a map that covers the tensor with `map` of them whose centres lie within the
  /// source.
  MapSpan Within(int map) const;
  /// From the source to the voxels [first, first + count), in the order in which the source's index
  /// grows.
  Taps Forward(Interpolation interpolation) const;
  /// From a map that covers the tensor with `map` samples back to the source. Where the axis is
  /// flipped, samples are numbered from the tensor's end.
  Taps Back(int map, Interpolation interpolation) const;
};

/// Where a volume lies in the tensor.
struct VolumePlacement {
  /// In the tensor's order: depth, height, width.
  std::array<VolumeAxis, 3> axes;
  /// Each slice of the source is resampled by itself on the way to the tensor (ResamplingSpec).
  bool separate = false;
  /// Values are cut to whole numbers on the way to the tensor (kEnds, where anything is resampled).
  bool whole_numbers = false;

  /// The tensor axis, from 0, that runs along a source axis.
  size_t TensorAxis(int source_axis) const;
};

/// Where voxels lie that follow each other so along the slices, rows and columns of a volume: its
/// directions are theirs.
VolumeGeometry GeometryOf(const std::array<MapSpan, 3>& spans, const VolumeGeometry& source);

/// A part of the source, by its axes.
struct VolumeBox {
  std::array<int, 3> first{};
  std::array<int, 3> count{};
};

/// Places a volume of `sides` (slices, rows, columns) into the tensor.
///
/// Turning: with `orientation` each tensor axis runs along another source axis, the one that
/// nibabel gives the letter to; letters name the patient's side (L R A P S I) to which the index
/// grows, in the order depth, height, width. An oblique volume is turned by quarters only and
/// stays oblique.
///
/// Size and spacing:
/// - with `spacing_mm` the tensor's voxels have that spacing and the volume is centred. letterbox:
///   the whole volume must fit; crop: what does not fit is cut off on both sides; none: the spacing
///   must be that already.
/// - without it, stretch, letterbox, crop and none do what PlaceImage does, by physical size.
/// - source and multiple_of take the volume's own size (after resampling to `spacing_mm`). Spacings
/// that differ by less than a hundredth of a voxel over the axis count as equal, so that grids that
/// are the same are copied voxel by voxel. Throws no_model_accepts if the volume does not fit what
/// the manifest says, series_invalid for directions that are not at right angles.
///
/// With `resampling` none of this counts but the turning: the tensor has the part of the volume in
/// `box` at the spacing of `resampling`, edge to edge or from the first voxel on. Throws
/// no_model_accepts if slices would have to be resampled each by itself along another axis than the
/// source's. With kEnds spacings are compared as floats of 32 bits, as NIfTI has them, and the
/// box is the whole volume.
VolumePlacement PlaceVolume(const std::array<int, 3>& sides, const VolumeGeometry& geometry,
                            const InputSpec& spec,
                            const std::optional<VolumeBox>& box = std::nullopt);

}  // namespace radserve
