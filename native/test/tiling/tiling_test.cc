#include "tiling/tiling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "check.h"
#include "windows_reference.h"

namespace radserve::test {
namespace {

Tensor Floats(const std::string& name, std::vector<int64_t> shape,
              const std::vector<float>& values) {
  Tensor tensor = MakeTensor(name, Dtype::kFloat32, std::move(shape));
  StoreRow(Dtype::kFloat32, values.data(), values.size(), tensor.data, 1);
  return tensor;
}

std::vector<int64_t> Wide(const std::vector<int>& sides) { return {sides.begin(), sides.end()}; }

/// As in windows_reference.py: the input weighted by the place in the window, and that place.
std::vector<Tensor> ByPlace(const Tensor& windows, size_t spatial) {
  std::vector<int64_t> shape = windows.shape;
  shape[1] = 2;
  Tensor out = MakeTensor("out", Dtype::kFloat32, shape);
  const auto* in = reinterpret_cast<const float*>(windows.data);
  auto* values = reinterpret_cast<float*>(out.data);
  const std::vector<int64_t> sides(shape.begin() + 2, shape.end());
  const int64_t voxels =
      std::accumulate(sides.begin(), sides.end(), int64_t{1}, std::multiplies<>());
  for (int64_t row = 0; row < shape[0]; ++row) {
    for (int64_t i = 0; i < voxels; ++i) {
      float place = 0;
      int64_t rest = i;
      for (size_t axis = spatial; axis-- > 0;) {
        place += static_cast<float>(axis + 1) * 0.01F * static_cast<float>(rest % sides[axis]);
        rest /= sides[axis];
      }
      values[row * 2 * voxels + i] = in[row * voxels + i] * (1 + place);
      values[(row * 2 + 1) * voxels + i] = place;
    }
  }
  return {out};
}

TilingSpec SpecOf(const WindowsCase& c) {
  TilingSpec spec;
  spec.window = c.window;
  spec.overlap = c.overlap;
  spec.mirrored = c.mirrored;
  const bool nnunet = c.how == "nnunet";
  spec.steps = nnunet ? TilingSpec::Steps::kEven : TilingSpec::Steps::kStride;
  if (nnunet) spec.gaussian = {0.125, false, 1e-12};
  if (c.how == "gaussian") spec.gaussian = {0.125, true, 1e-3};
  return spec;
}

TEST("what MONAI and nnU-Net make of the same windows") {
  for (const WindowsCase& c : kWindowsCases) {
    std::vector<int64_t> shape = Wide(c.sides);
    shape.insert(shape.begin(), {1, 1});
    const Tensor input = Floats("in", shape, c.input);
    for (const int64_t batch : {1, 3}) {
      const std::vector<Tensor> outputs =
          RunTiled(input, SpecOf(c), {false, batch, {}, {}}, {},
                   [&](const Tensor& windows) { return ByPlace(windows, c.sides.size()); });
      EQUAL(outputs.size(), size_t{1});
      const std::vector<float> found = AsFloats(outputs[0]);
      EQUAL(found.size(), c.output.size());
      for (size_t i = 0; i < found.size(); ++i) Near(found[i], c.output[i], 1e-5, c.name, __LINE__);
    }
  }
}
END;

TEST("windows begin where nnU-Net's do") {
  for (const StartsCase& c : kEvenStarts) {
    CHECK(WindowStarts(c.side, c.window, c.overlap, TilingSpec::Steps::kEven) == c.starts);
  }
}
END;

TEST("weights are nnU-Net's") {
  TilingSpec spec;
  spec.window = {6, 8, 5};
  spec.gaussian = {0.125, false, 1e-12};
  const std::vector<float> weights = WindowWeights(spec);
  EQUAL(weights.size(), kGaussian.size());
  for (size_t i = 0; i < weights.size(); ++i) NEAR(weights[i], kGaussian[i], 1e-6);
}
END;

/// Gives back what it gets.
std::vector<Tensor> Same(const Tensor& windows) { return {windows}; }

TEST("what a model leaves as it is comes back, in any layout and type") {
  for (const bool channels_last : {false, true}) {
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kUint8, Dtype::kFloat16}) {
      const std::vector<int64_t> shape =
          channels_last ? std::vector<int64_t>{1, 7, 9, 3} : std::vector<int64_t>{1, 3, 7, 9};
      Tensor input = MakeTensor("in", dtype, shape);
      std::vector<float> values(input.Elements());
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 37 % 200);
      StoreRow(dtype, values.data(), values.size(), input.data, 1);
      TilingSpec spec;
      spec.window = {4, 10};
      spec.overlap = 0.5;
      spec.mirrored = {0, 1};
      spec.gaussian = {0.125, true, 1e-3};
      const std::vector<Tensor> outputs =
          RunTiled(input, spec, {channels_last, 2, {}, {}}, {}, Same);
      CHECK(outputs.at(0).shape == shape);
      const std::vector<float> found = AsFloats(outputs[0]);
      for (size_t i = 0; i < values.size(); ++i) NEAR(found[i], values[i], 1e-3);
    }
  }
}
END;

TEST("outputs of other sides are refused, and a stop ends it") {
  const Tensor input = Floats("in", {1, 1, 8, 8}, std::vector<float>(64));
  TilingSpec spec;
  spec.window = {4, 4};
  const auto run = [&](const RunWindows& model, const std::stop_token& stop = {}) {
    return CodeOf([&] { RunTiled(input, spec, {false, 1, {}, {}}, stop, model); });
  };
  EQUAL(run([](const Tensor&) {
          return std::vector<Tensor>{MakeTensor("y", Dtype::kFloat32, {1, 2, 2, 2})};
        }),
        "output_invalid");
  EQUAL(run([](const Tensor&) {
          return std::vector<Tensor>{MakeTensor("y", Dtype::kFloat32, {1, 2})};
        }),
        "output_invalid");
  int calls = 0;
  EQUAL(run([&](const Tensor&) {
          return std::vector<Tensor>{MakeTensor("y", Dtype::kFloat32, {1, ++calls, 4, 4})};
        }),
        "output_invalid");
  std::stop_source stop;
  int ran = 0;
  EQUAL(run(
            [&](const Tensor& windows) {
              if (++ran == 2) stop.request_stop();
              return Same(windows);
            },
            stop.get_token()),
        "cancelled");
  EQUAL(ran, 2);
}
END;

/// Gives each window back a bit larger, and its place, in as many channels as there are and one
/// more.
std::vector<Tensor> Mixed(const Tensor& windows, bool channels_last) {
  std::vector<int64_t> shape = windows.shape;
  int64_t& channels = channels_last ? shape.back() : shape[1];
  const int64_t given = channels++;
  Tensor out = MakeTensor("out", Dtype::kFloat32, shape);
  const std::vector<float> in = AsFloats(windows);
  auto* values = reinterpret_cast<float*>(out.data);
  const size_t count = out.Elements();
  for (size_t i = 0; i < count; ++i) {
    const size_t from = i * static_cast<size_t>(given) / static_cast<size_t>(given + 1);
    values[i] = in[from] * 0.37F + static_cast<float>(i % 13) * 0.11F;
  }
  return {out};
}

/// The values of one slice of a tensor across an axis of its sides.
std::vector<float> SliceOf(const Tensor& tensor, size_t axis, int64_t slice) {
  const std::vector<float> all = AsFloats(tensor);
  int64_t inner = 1;
  for (size_t a = axis + 1; a < tensor.shape.size(); ++a) inner *= tensor.shape[a];
  std::vector<float> values;
  for (size_t i = 0; i < all.size(); ++i) {
    if (static_cast<int64_t>(i) / inner % tensor.shape[axis] == slice) values.push_back(all[i]);
  }
  return values;
}

TEST("slices are, to the bit, those of the whole, along each axis and from both ends") {
  for (const bool channels_last : {false, true}) {
    const std::vector<int64_t> shape = channels_last ? std::vector<int64_t>{1, 19, 14, 17, 2}
                                                     : std::vector<int64_t>{1, 2, 19, 14, 17};
    std::vector<float> values(size_t{2} * 19 * 14 * 17);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = std::sin(static_cast<float>(i * i % 1013));
    const Tensor input = Floats("in", shape, values);
    for (const auto& window : {std::vector<int>{6, 20, 5}, std::vector<int>{7, 5}}) {
      TilingSpec spec;
      spec.window = window;
      spec.overlap = 0.6;
      spec.mirrored = {0};
      spec.gaussian = {0.125, false, 1e-12};
      for (const int64_t batch : {1, 3}) {
        for (const size_t axis : {size_t{0}, size_t{1}, size_t{2}}) {
          for (const bool reversed : {false, true}) {
            const TiledView view = {channels_last, batch, {axis, reversed}, {}};
            const auto model = [&](const Tensor& windows) { return Mixed(windows, channels_last); };
            const Tensor whole = RunTiled(input, spec, view, {}, model).at(0);
            TiledSlices slices(input, spec, view, {}, model);
            const size_t shape_axis = axis + (channels_last ? 1 : 2);
            const auto side = static_cast<int>(shape[shape_axis]);
            int seen = 0;
            const auto see = [&](const Tensor& slice) {
              const int at = reversed ? side - 1 - seen : seen;
              CHECK(AsFloats(slice) == SliceOf(whole, shape_axis, at));
              ++seen;
            };
            // Some slices are left out, and the last are never asked for.
            for (int slice = 0; slice < side - 2; slice += 3) slices.Take(slice, see);
            const Tensor all = slices.Finish(see);
            EQUAL(seen, side);
            CHECK((all.shape == std::vector<int64_t>{side, channels_last ? 1 : 3, 32}));
          }
        }
      }
    }
  }
}
END;

TEST(
    "windows that a device runs are blended to the same bits, and it has the next two batches "
    "meanwhile") {
  const std::vector<int64_t> shape = {1, 2, 19, 14, 17};
  std::vector<float> values(size_t{2} * 19 * 14 * 17);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i * i % 1013));
  const Tensor input = Floats("in", shape, values);
  TilingSpec spec;
  spec.window = {6, 20, 5};
  spec.overlap = 0.6;
  spec.mirrored = {0};
  TiledView view = {false, 4, {}, {}};
  const std::vector<float> expected =
      AsFloats(RunTiled(input, spec, view, {}, [](const Tensor& windows) {
                 return Mixed(windows, false);
               }).at(0));
  int begun = 0;
  int taken = 0;
  size_t all = 0;
  view.tell = [&](size_t, size_t windows) { all = windows; };
  view.begin = [&](const Tensor& windows) -> TakeOutputs {
    ++begun;
    const Tensor given = Mixed(windows, false).at(0);
    std::vector<std::vector<Tensor>> rows;
    for (int64_t row = 0; row < given.shape[0]; ++row) {
      Tensor one = given;
      one.shape[0] = 1;
      one.data += static_cast<size_t>(row) * one.Bytes();
      rows.push_back({one});
    }
    return [&, rows] {
      ++taken;
      EQUAL(begun, std::min(taken + 2, static_cast<int>((all + 3) / 4)));
      return rows;
    };
  };
  CHECK(AsFloats(RunTiled(input, spec, view, {}, nullptr).at(0)) == expected);
  CHECK(taken > 2 && taken == begun);
}
END;

TEST("sums of slices take what is open, and the plan says it") {
  TilingSpec spec;
  spec.window = {8, 8, 8};
  spec.overlap = 0.5;
  const std::array<int, 3> sides = {80, 16, 16};
  const double plane = 16.0 * 16 * 4 * (3 + 1);
  EQUAL(BytesOfSums(sides, spec, {false, 1, {}, {}}, 3, true), 80 * plane);
  EQUAL(BytesOfSums(sides, spec, {false, 1, {}, {}}, 3, false), 8 * plane);
  // Nine windows begin at one slice: a batch of ten has some that begin four slices on.
  EQUAL(BytesOfSums(sides, spec, {false, 10, {}, {}}, 3, false), 12 * plane);
}
END;

TEST("what would take too much is refused before it is made") {
  TilingSpec spec;
  spec.window = {1, 4, 4};
  spec.overlap = 0;
  const Tensor input =
      Floats("in", {1, 1, 64, 512, 512}, std::vector<float>(size_t{64} * 512 * 512));
  const auto many = [](const Tensor& windows) {
    std::vector<int64_t> shape = windows.shape;
    shape[1] = 70;
    return std::vector<Tensor>{MakeTensor("y", Dtype::kFloat32, shape)};
  };
  EQUAL(CodeOf([&] { RunTiled(input, spec, {}, {}, many); }), "no_model_accepts");
  size_t told = 0;
  TiledView view;
  view.tell = [&](size_t done, size_t windows) {
    told += done;
    EQUAL(windows, size_t{64} * 128 * 128);
  };
  std::stop_source stop;
  TiledSlices slices(input, spec, view, stop.get_token(), many);
  EQUAL(slices.Take(0, [](const Tensor&) {}).Elements(), size_t{70} * 512 * 512);
  CHECK(told > 0);
  stop.request_stop();
  EQUAL(CodeOf([&] { slices.Take(1, [](const Tensor&) {}); }), "cancelled");
}
END;

}  // namespace
}  // namespace radserve::test
