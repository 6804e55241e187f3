#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace radserve {

/// A final mask over the pixels that it was made of: one plane of label numbers for each slice, or
/// planes of 0 and 1 for each slice, one label after the other.
struct SegmentedImage {
  std::span<const uint8_t> mask;
  bool overlapping = false;
  size_t labels = 0, rows = 0, columns = 0;
  /// Stored values of each slice, in words of 1, 2, 4 or 8 bytes; words of one byte are all that a
  /// slice without them has.
  std::vector<std::span<const uint8_t>> slices;
  size_t word_bytes = 1;
  /// For each slice the number of what its words mean: neighbours with the same one are counted
  /// together.
  std::vector<double> meanings;
  /// mm between the centres of columns, rows and slices.
  std::array<double, 3> spacing{};
};

/// The distinct words of a label in slices of one meaning, ascending as whole numbers, and how
/// often each is there.
struct WordCounts {
  double meaning = 0;
  std::vector<uint64_t> words;
  std::vector<double> counts;
};

/// All of a label that its measurements are computed of.
struct SegmentCounts {
  /// None of any label if they are longer than two bytes, and there are more than 2^24 of all.
  std::vector<WordCounts> words;
  /// How many cells of eight neighbouring voxels have each pattern of corners in the label; bit 0
  /// is along columns, bit 1 along rows, bit 2 along slices. Cells all in or all out are not
  /// counted.
  std::array<double, 256> cells{};
  /// The longest distance in mm between two points of its surface by marching cubes, that lie in
  /// one slice, and that lie anywhere; 0 if it is empty.
  double in_plane = 0, anywhere = 0;
};

/// One pass over the pixels. The mask and the slices are read and not kept.
/// @param shape also counts cells and measures distances
std::vector<SegmentCounts> CountSegments(const SegmentedImage& image, bool shape);

}  // namespace radserve
