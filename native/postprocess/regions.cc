#include "postprocess/regions.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/simd.h"
#include "base/word.h"

namespace radserve {
namespace {

/// 1 where membership differs from that of the pixel to the left; before the line there is no
/// member.
RADSERVE_HOT_LOOP void MarkEdges(const uint8_t* __restrict line, size_t count, uint8_t value,
                                 uint8_t others, uint8_t* __restrict edges) {
  edges[0] = static_cast<uint8_t>(line[0] == value) ^ others;
  for (size_t x = 1; x < count; ++x) {
    edges[x] = static_cast<uint8_t>(line[x] == value) ^ static_cast<uint8_t>(line[x - 1] == value);
  }
}

/// Finds the runs of one line after another.
class RunFinder {
 public:
  RunFinder(size_t columns, uint8_t value, Members members)
      : columns_(columns),
        value_(value),
        others_(members == Members::kOthers ? 1 : 0),
        edges_((columns + kWord - 1) / kWord * kWord) {}

  void Append(const uint8_t* line, std::vector<Run>& runs) {
    if (others_ == 0 && std::memchr(line, value_, columns_) == nullptr) return;
    MarkEdges(line, columns_, value_, others_, edges_.data());
    bool inside = false;
    for (size_t at = 0; at < columns_; at += kWord) {
      for (uint64_t word = WordAt(edges_.data() + at); word != 0; word &= word - 1) {
        const auto x = static_cast<int>(at) + std::countr_zero(word) / 8;
        if (inside) {
          runs.back().end = x;
        } else {
          runs.push_back({x, static_cast<int>(columns_)});
        }
        inside = !inside;
      }
    }
  }

 private:
  static constexpr size_t kWord = sizeof(uint64_t);

  size_t columns_;
  uint8_t value_;
  uint8_t others_;
  /// Zeros behind the line's end.
  std::vector<uint8_t> edges_;
};

/// Until all are joined `region` holds for each run an earlier one of its region, or itself.
uint32_t RootOf(std::vector<uint32_t>& region, uint32_t run) {
  while (region[run] != run) {
    region[run] = region[region[run]];
    run = region[run];
  }
  return run;
}

/// Joins the runs of two lines that touch; `reach` is 1 where corners count.
void JoinLines(Regions& found, size_t above, size_t line, int reach) {
  size_t i = found.first_of_line[above];
  size_t j = found.first_of_line[line];
  while (i < found.first_of_line[above + 1] && j < found.first_of_line[line + 1]) {
    const Run& a = found.runs[i];
    const Run& b = found.runs[j];
    if (a.begin < b.end + reach && b.begin < a.end + reach) {
      const uint32_t p = RootOf(found.region, static_cast<uint32_t>(i));
      const uint32_t q = RootOf(found.region, static_cast<uint32_t>(j));
      found.region[std::max(p, q)] = std::min(p, q);
    }
    // The run that ends first touches nothing further on
    ++(a.end < b.end ? i : j);
  }
}

/// From the earliest run of each region to numbers without gaps.
void Number(Regions& found) {
  uint32_t next = 0;
  for (uint32_t run = 0; run < found.region.size(); ++run) {
    // The run that a run leads to is earlier, and so has its number already
    const uint32_t earlier = found.region[run];
    found.region[run] = earlier == run ? next++ : found.region[earlier];
  }
  found.count = next;
}

}  // namespace

Regions FindRegions(std::span<const uint8_t> pixels, int rows, int columns, uint8_t value,
                    Members members, Neighbours neighbours) {
  const auto width = static_cast<size_t>(columns);
  const auto height = static_cast<size_t>(rows);
  const size_t lines = pixels.size() / width;
  Regions found;
  found.first_of_line.reserve(lines + 1);
  RunFinder finder(width, value, members);
  for (size_t line = 0; line < lines; ++line) {
    found.first_of_line.push_back(found.runs.size());
    finder.Append(pixels.data() + line * width, found.runs);
  }
  found.first_of_line.push_back(found.runs.size());
  found.region.resize(found.runs.size());
  std::iota(found.region.begin(), found.region.end(), uint32_t{0});
  const int reach = neighbours == Neighbours::kCorners ? 1 : 0;
  for (size_t line = 0; line < lines; ++line) {
    if (line % height != 0) JoinLines(found, line - 1, line, reach);
    if (line < height) continue;
    JoinLines(found, line - height, line, reach);
    if (reach == 0) continue;
    if (line % height != 0) JoinLines(found, line - height - 1, line, reach);
    if ((line + 1) % height != 0) JoinLines(found, line - height + 1, line, reach);
  }
  Number(found);
  return found;
}

}  // namespace radserve
