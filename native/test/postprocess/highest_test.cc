#include "postprocess/highest.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "check.h"

namespace radserve::test {
namespace {

struct Grid {
  std::array<Axis, 3> axes;
  size_t Plane() const {
    return static_cast<size_t>(axes[1].input) * static_cast<size_t>(axes[2].input);
  }
  size_t Outputs() const {
    return static_cast<size_t>(axes[1].output) * static_cast<size_t>(axes[2].output);
  }
};

using Maps = std::vector<std::vector<float>>;

/// Of channels, several of which have the same.
std::vector<uint8_t> LabelsOf(size_t channels) {
  std::vector<uint8_t> labels;
  for (size_t c = 0; c < channels; ++c)
    labels.push_back(static_cast<uint8_t>(c % 4 == 3 ? 0 : c % 251));
  return labels;
}

/// What it is to be the same as: all channels resampled, and the first of the highest.
std::vector<uint8_t> Expected(const VolumeTaps& taps, const Grid& grid, const Maps& maps,
                              size_t channels) {
  const std::vector<uint8_t> of_channels = LabelsOf(channels);
  std::vector<uint8_t> labels;
  const auto width = static_cast<size_t>(grid.axes[2].input);
  ResampleVolume(
      taps, grid.axes[2].input, static_cast<int>(channels),
      [&](int slice) -> RowSource {
        return [&, slice](int row, float* const* rows) {
          for (size_t c = 0; c < channels; ++c) {
            const float* from = maps[static_cast<size_t>(slice)].data() + c * grid.Plane();
            std::copy_n(from + static_cast<size_t>(row) * width, width, rows[c]);
          }
        };
      },
      [&](int, const float* const* planes) {
        for (size_t i = 0; i < grid.Outputs(); ++i) {
          size_t best = 0;
          for (size_t c = 1; c < channels; ++c) best = planes[c][i] > planes[best][i] ? c : best;
          labels.push_back(of_channels[best]);
        }
      });
  return labels;
}

std::vector<uint8_t> Found(const VolumeTaps& taps, const Grid& grid, const Maps& maps,
                           size_t channels, ThreadTeam& team) {
  std::vector<uint8_t> labels;
  int next = 0;
  HighestResampled(taps, {grid.axes[1].input, grid.axes[2].input}, LabelsOf(channels), team)
      .Run(
          {},
          [&](int slice, float* values) {
            CHECK(slice >= next);
            next = slice + 1;
            std::ranges::copy(maps[static_cast<size_t>(slice)], values);
          },
          [&](int, std::span<const uint8_t> slice) {
            labels.insert(labels.end(), slice.begin(), slice.end());
          });
  return labels;
}

/// How the channels go over the volume: noise; smooth, so that few can win; equal, so that the
/// first must; large.
float Value(int kind, size_t c, int z, size_t i, size_t width) {
  const auto x = static_cast<float>(i % width);
  const auto y = static_cast<float>(i / width);
  const auto own = static_cast<float>(c);
  const size_t noise =
      (c * 2654435761U + static_cast<size_t>(z) * 40503U + i * 2246822519U) % 10007;
  switch (kind) {
    case 0:
      return static_cast<float>(noise) / 10007 - 0.5F;
    case 1: {
      const float at = std::sin(x * 0.07F) * 3 + std::cos(y * 0.05F + static_cast<float>(z)) * 3;
      return 2 * own * at - own * own;
    }
    case 2:
      return static_cast<float>((i / 3 + static_cast<size_t>(z)) % 2);
    default:
      return noise % 7 == 0 ? 3e38F : -6e37F * static_cast<float>(noise % 5);
  }
}

TEST("the highest of resampled channels is, to the bit, that of ResampleVolume") {
  const std::vector<Grid> grids = {
      {{Axis{5, 9, 0, 5.0 / 9}, Axis{21, 40, 0, 21.0 / 40}, Axis{19, 51, 0, 19.0 / 51}}},
      {{Axis{6, 6, 0, 1}, Axis{17, 17, 0, 1}, Axis{33, 33, 0, 1}}},
      {{Axis{9, 4, 0, 9.0 / 4}, Axis{40, 18, 0, 40.0 / 18}, Axis{35, 16, 0, 35.0 / 16}}},
      {{Axis{4, 7, -1, 0.8}, Axis{12, 30, -2.5, 0.5}, Axis{64, 32, 0, 2}}},
      {{Axis{1, 2, 0, 0.5}, Axis{1, 20, 0, 0.05}, Axis{2, 3, 0, 2.0 / 3}}},
  };
  ThreadTeam alone;
  ThreadTeam team(2, [] { return true; });
  for (size_t g = 0; g < grids.size(); ++g) {
    const Grid& grid = grids[g];
    for (const bool splines : {false, true}) {
      VolumeTaps taps;
      for (size_t a = 0; a < 3; ++a) {
        taps[a] = splines ? MakeSplineTaps(grid.axes[a], a == 0 ? 0 : 1)
                          : MakeTaps(grid.axes[a], Interpolation::kLinear);
      }
      for (const int kind : {0, 1, 2, 3}) {
        for (const size_t channels : {size_t{1}, size_t{2}, size_t{7}}) {
          Maps maps(static_cast<size_t>(grid.axes[0].input));
          for (size_t z = 0; z < maps.size(); ++z) {
            for (size_t c = 0; c < channels; ++c) {
              for (size_t i = 0; i < grid.Plane(); ++i) {
                maps[z].push_back(Value(kind, c, static_cast<int>(z), i,
                                        static_cast<size_t>(grid.axes[2].input)));
              }
            }
          }
          const std::string what = "grid " + std::to_string(g) + ", values " + std::to_string(kind);
          const std::vector<uint8_t> expected = Expected(taps, grid, maps, channels);
          Report(Found(taps, grid, maps, channels, alone) == expected, what + " alone", __LINE__);
          Report(Found(taps, grid, maps, channels, team) == expected, what + " by a team",
                 __LINE__);
        }
      }
    }
  }
}
END;

TEST("of more channels than labels have numbers the highest is told as well") {
  const Grid grid = {{Axis{3, 4, 0, 0.75}, Axis{21, 40, 0, 21.0 / 40}, Axis{19, 51, 0, 19.0 / 51}}};
  VolumeTaps taps;
  for (size_t a = 0; a < 3; ++a) taps[a] = MakeTaps(grid.axes[a], Interpolation::kLinear);
  ThreadTeam team;
  for (const int kind : {0, 1}) {
    Maps maps(3);
    for (size_t z = 0; z < maps.size(); ++z) {
      for (size_t c = 0; c < 300; ++c) {
        for (size_t i = 0; i < grid.Plane(); ++i) {
          // Those beyond 255 are higher by turns
          maps[z].push_back(Value(kind, c % 7, static_cast<int>(z), i, 19) +
                            (c / 50 == (i / 40) % 6 ? 100.0F : 0.0F));
        }
      }
    }
    CHECK(Found(taps, grid, maps, 300, team) == Expected(taps, grid, maps, 300));
  }
}
END;

TEST("weights below 0 leave no channel out") {
  const Grid grid = {{Axis{4, 4, 0, 1}, Axis{9, 20, 0, 0.45}, Axis{9, 20, 0, 0.45}}};
  const VolumeTaps taps = {MakeSplineTaps(grid.axes[0], 0), MakeSplineTaps(grid.axes[1], 3),
                           MakeSplineTaps(grid.axes[2], 3)};
  Maps maps(4);
  for (size_t z = 0; z < maps.size(); ++z) {
    for (size_t c = 0; c < 3; ++c) {
      // The second channel is never above the first but where the spline swings over an edge.
      for (size_t i = 0; i < grid.Plane(); ++i)
        maps[z].push_back(c == 0 ? 1 : (c == 1 && i % 9 > 4 ? 0.99F : -9));
    }
  }
  ThreadTeam team;
  const std::vector<uint8_t> expected = Expected(taps, grid, maps, 3);
  CHECK(std::ranges::count(expected, 1) > 0);
  CHECK(Found(taps, grid, maps, 3, team) == expected);
}
END;

TEST("a stop ends it") {
  const Grid grid = {{Axis{4, 4, 0, 1}, Axis{9, 9, 0, 1}, Axis{9, 9, 0, 1}}};
  VolumeTaps taps;
  for (size_t a = 0; a < 3; ++a) taps[a] = MakeTaps(grid.axes[a], Interpolation::kLinear);
  ThreadTeam team;
  std::stop_source stop;
  int loaded = 0;
  HighestResampled highest(taps, {9, 9}, LabelsOf(2), team);
  EQUAL(CodeOf([&] {
          highest.Run(
              stop.get_token(),
              [&](int, float*) {
                if (++loaded == 2) stop.request_stop();
              },
              [](int, std::span<const uint8_t>) {});
        }),
        "cancelled");
  EQUAL(loaded, 2);
}
END;

}  // namespace
}  // namespace radserve::test
