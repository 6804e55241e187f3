#include "postprocess/segments.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/word.h"

namespace radserve {
namespace {

/// Indices of column, row and slice.
using Voxel = std::array<int32_t, 3>;

constexpr size_t kMostCountedBytes = 2;
/// Of longer words so many are kept, some 300 MB with what is made of them.
constexpr size_t kMostKeptWords = size_t{1} << 24;

/// Counts words of one or two bytes in a table, and keeps longer ones until they are sorted.
class Words {
 public:
  explicit Words(size_t bytes) : bytes_(bytes) {}

  void Add(const uint8_t* from, size_t count) {
    any_ = any_ || count > 0;
    if (bytes_ <= kMostCountedBytes && table_.empty()) table_.resize(size_t{1} << (8 * bytes_));
    switch (bytes_) {
      case 1:
        for (size_t i = 0; i < count; ++i) ++table_[from[i]];
        break;
      case 2:
        for (size_t i = 0; i < count; ++i) ++table_[from[2 * i] | from[2 * i + 1] << 8];
        break;
      case 4:
        Keep(short_, from, count);
        break;
      default:
        Keep(long_, from, count);
    }
  }

  /// What was added since the last time.
  void Take(double meaning, std::vector<WordCounts>& out) {
    if (!any_) return;
    any_ = false;
    WordCounts found{meaning, {}, {}};
    for (size_t word = 0; word < table_.size(); ++word) {
      if (table_[word] == 0) continue;
      found.words.push_back(word);
      found.counts.push_back(static_cast<double>(table_[word]));
      table_[word] = 0;
    }
    TakeKept(short_, found);
    TakeKept(long_, found);
    out.push_back(std::move(found));
  }

 private:
  template <typename Word>
  static void Keep(std::vector<Word>& words, const uint8_t* from, size_t count) {
    const size_t before = words.size();
    words.resize(before + count);
    std::memcpy(words.data() + before, from, count * sizeof(Word));
  }

  template <typename Word>
  static void TakeKept(std::vector<Word>& words, WordCounts& found) {
    std::sort(words.begin(), words.end());
    for (size_t i = 0; i < words.size();) {
      const auto end =
          std::upper_bound(words.begin() + static_cast<ptrdiff_t>(i), words.end(), words[i]);
      found.words.push_back(words[i]);
      found.counts.push_back(static_cast<double>(end - words.begin()) - static_cast<double>(i));
      i = static_cast<size_t>(end - words.begin());
    }
    words = {};
  }

  size_t bytes_;
  bool any_ = false;
  std::vector<uint32_t> table_, short_;
  std::vector<uint64_t> long_;
};

/// Those of the points, all in one plane, that are corners of their convex hull (Andrew's monotone
/// chain), in whole numbers: the hull of a grid does not depend on its spacing.
void KeepHull(std::vector<Voxel>& points, size_t u, size_t v) {
  const auto before = [u, v](const Voxel& a, const Voxel& b) {
    return a[u] != b[u] ? a[u] < b[u] : a[v] < b[v];
  };
  std::sort(points.begin(), points.end(), before);
  points.erase(std::unique(points.begin(), points.end()), points.end());
  if (points.size() < 3) return;
  const auto turn = [u, v](const Voxel& a, const Voxel& b, const Voxel& c) {
    return int64_t{b[u] - a[u]} * (c[v] - a[v]) - int64_t{b[v] - a[v]} * (c[u] - a[u]);
  };
  std::vector<Voxel> hull;
  const auto chain = [&](auto begin, auto end) {
    const size_t least = hull.size() + 2;
    for (auto p = begin; p != end; ++p) {
      while (hull.size() >= least && turn(hull[hull.size() - 2], hull.back(), *p) <= 0)
        hull.pop_back();
      hull.push_back(*p);
    }
    hull.pop_back();
  };
  chain(points.begin(), points.end());
  chain(points.rbegin(), points.rend());
  points = std::move(hull);
}

/// Keeps the corners of the hulls in all planes across one axis; a corner of the whole hull is one
/// of each.
void KeepHulls(std::vector<Voxel>& points, size_t axis) {
  std::sort(points.begin(), points.end(),
            [axis](const Voxel& a, const Voxel& b) { return a[axis] < b[axis]; });
  std::vector<Voxel> kept;
  for (auto begin = points.begin(); begin != points.end();) {
    const auto end = std::find_if(begin, points.end(),
                                  [&](const Voxel& p) { return p[axis] != (*begin)[axis]; });
    std::vector<Voxel> plane(begin, end);
    KeepHull(plane, axis == 0 ? 1 : 0, axis == 2 ? 1 : 2);
    kept.insert(kept.end(), plane.begin(), plane.end());
    begin = end;
  }
  points = std::move(kept);
}

/// The longest distance between points of the surfaces round two of the voxels. The surface lies
/// half a step from the centre of an outer voxel, along an axis: of two voxels the farthest such
/// points lie along the same one.
/// @param axes 2 for points of one slice, 3
double Longest(const std::vector<Voxel>& voxels, const std::array<double, 3>& step, size_t axes) {
  struct Point {
    std::array<double, 3> at;
    double from_middle;
  };
  std::array<double, 3> middle{};
  for (const Voxel& voxel : voxels) {
    for (size_t i = 0; i < 3; ++i)
      middle[i] += voxel[i] * step[i] / static_cast<double>(voxels.size());
  }
  std::vector<Point> points;
  for (const Voxel& voxel : voxels) {
    Point p{{voxel[0] * step[0], voxel[1] * step[1], voxel[2] * step[2]}, 0};
    p.from_middle = std::hypot(p.at[0] - middle[0], p.at[1] - middle[1], p.at[2] - middle[2]);
    points.push_back(p);
  }
  std::sort(points.begin(), points.end(),
            [](const Point& a, const Point& b) { return a.from_middle > b.from_middle; });
  const double most_step =
      *std::max_element(step.begin(), step.begin() + static_cast<ptrdiff_t>(axes));
  double longest = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    const double enough = std::sqrt(longest) - most_step;
    for (size_t j = i; j < points.size(); ++j) {
      if (points[i].from_middle + points[j].from_middle < enough) break;
      double square = 0;
      double ends = 0;
      for (size_t k = 0; k < axes; ++k) {
        const double d = std::abs(points[i].at[k] - points[j].at[k]);
        square += d * d;
        ends = std::max(ends, (2 * d + step[k]) * step[k]);
      }
      longest = std::max(longest, square + ends);
    }
  }
  return std::sqrt(longest);
}

class Counter {
 public:
  Counter(const SegmentedImage& image, size_t labels, bool shape)
      : image_(image),
        labels_(labels, Label{Words(image.word_bytes), {}, {}, {}}),
        shape_(shape),
        mixed_(image.columns + 1) {
    for (std::vector<uint8_t>& row : rows_) row.assign(image.columns + 2, 0);
  }

  /// @param mask of all slices, of numbers from 1 to as many as there are labels
  std::vector<SegmentCounts> Count(std::span<const uint8_t> mask) {
    const size_t slices = image_.slices.size();
    for (size_t z = 0; z < slices; ++z) {
      for (size_t y = 0; y < image_.rows; ++y) CountRow(mask, z, y);
      if (shape_) EndSlice();
      if (z + 1 == slices || image_.meanings[z] != image_.meanings[z + 1])
        TakeWords(image_.meanings[z]);
    }
    for (size_t z = 0; shape_ && z <= slices; ++z) {
      for (size_t y = 0; y <= image_.rows; ++y) CountCells(mask, z, y);
    }
    std::vector<SegmentCounts> all;
    for (Label& label : labels_) {
      if (shape_) {
        KeepHulls(label.corners, 0);
        KeepHulls(label.corners, 1);
        label.counts.anywhere = Longest(label.corners, image_.spacing, 3);
      }
      if (kept_ > kMostKeptWords) label.counts.words.clear();
      all.push_back(std::move(label.counts));
    }
    return all;
  }

 private:
  struct Label {
    Words words;
    SegmentCounts counts;
    /// Ends of its runs in the slice, and corners of its hulls in the slices before.
    std::vector<Voxel> ends, corners;
  };

  /// Visits runs of equal pixels.
  void CountRow(std::span<const uint8_t> mask, size_t z, size_t y) {
    const size_t columns = image_.columns;
    const uint8_t* const row = mask.data() + (z * image_.rows + y) * columns;
    const std::span<const uint8_t> pixels = image_.slices[z];
    for (size_t x = 0; x < columns;) {
      const uint8_t value = row[x];
      const size_t begin = x;
      const uint64_t eight = value * 0x0101010101010101u;
      while (x + 8 <= columns && WordAt(row + x) == eight) x += 8;
      while (x < columns && row[x] == value) ++x;
      if (value == 0 || value > labels_.size()) continue;
      Label& label = labels_[value - 1];
      if (!pixels.empty() && Kept(x - begin)) {
        const size_t bytes = image_.word_bytes;
        label.words.Add(pixels.data() + (y * columns + begin) * bytes, x - begin);
      }
      if (!shape_) continue;
      // Of a row only its ends count
      const Voxel last{static_cast<int32_t>(x - 1), static_cast<int32_t>(y),
                       static_cast<int32_t>(z)};
      if (!label.ends.empty() && label.ends.back()[1] == last[1]) {
        label.ends.back() = last;
      } else {
        label.ends.push_back({static_cast<int32_t>(begin), last[1], last[2]});
        label.ends.push_back(last);
      }
    }
  }

  bool Kept(size_t words) {
    if (image_.word_bytes > kMostCountedBytes) kept_ += words;
    return kept_ <= kMostKeptWords;
  }

  void EndSlice() {
    for (Label& label : labels_) {
      if (label.ends.empty()) continue;
      KeepHull(label.ends, 0, 1);
      label.counts.in_plane =
          std::max(label.counts.in_plane, Longest(label.ends, image_.spacing, 2));
      label.corners.insert(label.corners.end(), label.ends.begin(), label.ends.end());
      label.ends.clear();
    }
  }

  void TakeWords(double meaning) {
    for (Label& label : labels_) label.words.Take(meaning, label.counts.words);
  }

  /// Counts the cells between slices z - 1 and z, and rows y - 1 and y. Outside the image nothing
  /// is marked.
  void CountCells(std::span<const uint8_t> mask, size_t z, size_t y) {
    const size_t columns = image_.columns;
    for (size_t i = 0; i < 4; ++i) {
      const size_t slice = z + (i >> 1);
      const size_t row = y + (i & 1);
      const bool inside =
          slice >= 1 && slice <= image_.slices.size() && row >= 1 && row <= image_.rows;
      if (inside)
        std::memcpy(rows_[i].data() + 1,
                    mask.data() + ((slice - 1) * image_.rows + row - 1) * columns, columns);
      else
        std::memset(rows_[i].data() + 1, 0, columns);
    }
    const uint8_t* const a = rows_[0].data();
    const uint8_t* const b = rows_[1].data();
    const uint8_t* const c = rows_[2].data();
    const uint8_t* const d = rows_[3].data();
    uint8_t* const mixed = mixed_.data();
    // A cell is all of one label unless two of its corners along an axis differ; the loop
    // vectorises
    uint8_t any = 0;
    for (size_t x = 0; x <= columns; ++x) {
      const uint8_t across = static_cast<uint8_t>((a[x] ^ b[x]) | (a[x] ^ c[x]) | (a[x] ^ d[x]));
      const uint8_t next = static_cast<uint8_t>((a[x + 1] ^ b[x + 1]) | (a[x + 1] ^ c[x + 1]) |
                                                (a[x + 1] ^ d[x + 1]));
      mixed[x] = static_cast<uint8_t>(across | next | (a[x] ^ a[x + 1]));
      any |= mixed[x];
    }
    if (any == 0) return;
    for (size_t x = 0; x <= columns; ++x) {
      if (mixed[x] != 0)
        CountCell({a[x], a[x + 1], b[x], b[x + 1], c[x], c[x + 1], d[x], d[x + 1]});
    }
  }

  void CountCell(const std::array<uint8_t, 8>& corners) {
    size_t done = 0;
    for (size_t i = 0; i < 8; ++i) {
      const uint8_t value = corners[i];
      if (value == 0 || value > labels_.size() || (done >> i & 1) != 0) continue;
      size_t pattern = 0;
      for (size_t j = i; j < 8; ++j) pattern |= static_cast<size_t>(corners[j] == value) << j;
      done |= pattern;
      ++labels_[value - 1].counts.cells[pattern];
    }
  }

  const SegmentedImage& image_;
  std::vector<Label> labels_;
  const bool shape_;
  size_t kept_ = 0;
  /// Two rows of two slices, with an empty pixel on each side.
  std::array<std::vector<uint8_t>, 4> rows_;
  std::vector<uint8_t> mixed_;
};

}  // namespace

std::vector<SegmentCounts> CountSegments(const SegmentedImage& image, bool shape) {
  if (!image.overlapping) return Counter(image, image.labels, shape).Count(image.mask);
  const size_t part = image.slices.size() * image.rows * image.columns;
  std::vector<SegmentCounts> all;
  for (size_t label = 0; label < image.labels; ++label) {
    std::vector<SegmentCounts> one =
        Counter(image, 1, shape).Count(image.mask.subspan(label * part, part));
    all.push_back(std::move(one.front()));
  }
  return all;
}

}  // namespace radserve
