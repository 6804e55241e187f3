#include "runtime/session.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>

#include "check.h"
#include "onnx.h"
#include "runtime/independence.h"
#include "runtime/run_memory.h"
#include "runtime/session_device.h"
#include "runtime/session_state.h"

// The runtime itself leaks a few bytes for each process.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:libonnxruntime.so";
}

namespace {

using radserve::Bucket;
using radserve::Session;
using radserve::SessionSettings;
using radserve::Tensor;
using radserve::test::Bytes;
using radserve::test::BytesOf;
using radserve::test::CodeOf;
using radserve::test::Initializer;
using radserve::test::Number;
using radserve::test::OneNode;
using radserve::test::Value;
using radserve::test::WholeZero;
using radserve::test::Zeros;

const std::vector<std::string> kOutputs = {"y"};

/// A session for a model that is on disk only while it loads.
std::unique_ptr<Session> Load(const std::string& model, int threads = 2) {
  radserve::StartRuntime();
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("radserve-session-test-" + std::to_string(getpid()) + ".onnx");
  std::ofstream(path, std::ios::binary) << model;
  SessionSettings settings;
  settings.threads = threads;
  auto session = std::make_unique<Session>(path, settings, "model_unavailable");
  std::filesystem::remove(path);
  return session;
}

/// Several models as one, whose mean it gives.
std::unique_ptr<Session> LoadAll(const std::vector<std::string>& models,
                                 radserve::BeforeMean before = nullptr) {
  radserve::StartRuntime();
  std::vector<std::string> paths;
  for (const std::string& model : models) {
    const std::string name = "radserve-session-test-" + std::to_string(getpid()) + "-" +
                             std::to_string(paths.size()) + ".onnx";
    paths.push_back(std::filesystem::temp_directory_path() / name);
    std::ofstream(paths.back(), std::ios::binary) << model;
  }
  SessionSettings settings;
  settings.threads = 2;
  auto session = std::make_unique<Session>(paths, settings, "model_unavailable", std::move(before));
  for (const std::string& path : paths) std::filesystem::remove(path);
  return session;
}

/// The bucket of a GPU over a session of the CPU.
std::unique_ptr<Bucket> Bound(const std::string& model, int64_t capacity,
                              const std::vector<int64_t>& row) {
  auto state = std::make_shared<radserve::SessionState>();
  state->facts.graph = Load(model)->graph();
  state->narrow.emplace(radserve::Env(), model.data(), model.size(), Ort::SessionOptions());
  return MakeCudaBucket(state, capacity, {row}, kOutputs);
}

void Fill(std::span<std::byte> bytes, float first) {
  auto* values = reinterpret_cast<float*>(bytes.data());
  std::iota(values, values + bytes.size() / sizeof(float), first);
}

void Fill(Bucket& bucket, int64_t row, float first) { Fill(bucket.Row(0, row), first); }

/// Rows of one input, of so many numbers each.
std::vector<radserve::RowInputs> RowsOf(std::span<const float> values, size_t numbers) {
  std::vector<radserve::RowInputs> rows;
  for (size_t i = 0; i < values.size(); i += numbers)
    rows.push_back({std::as_bytes(values.subspan(i, numbers))});
  return rows;
}

std::vector<float> Row(Bucket& bucket, int64_t row) { return AsFloats(bucket.TakeRow(row).at(0)); }

TEST("a session that nobody wants any more is not made") {
  radserve::StartRuntime();
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("radserve-session-test-" + std::to_string(getpid()) + ".onnx");
  std::ofstream(path, std::ios::binary) << OneNode("Add", {"x", "x"}, {0, 2, 2}, {0, 2, 2});
  std::stop_source unwanted;
  SessionSettings settings;
  settings.stop = unwanted.get_token();
  CHECK(Session(path, settings, "model_unavailable").graph().inputs.size() == 1);
  unwanted.request_stop();
  EQUAL(CodeOf([&] { Session(path, settings, "model_unavailable"); }),
        std::string("model_unavailable"));
  std::filesystem::remove(path);
}
END;

/// A float32 initializer of one side.
std::string Numbers(const std::string& name, const std::vector<float>& values) {
  return Initializer(
      name, {static_cast<int64_t>(values.size())},
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}

/// The largest difference of y from InstanceNormalization of x, [n, 2, size], in float64.
double Difference(const Tensor& x, const Tensor& y, const std::array<double, 2>& scale,
                  const std::array<double, 2>& bias) {
  const std::vector<float> given = AsFloats(x);
  const std::vector<float> found = AsFloats(y);
  const auto size = static_cast<size_t>(x.shape[2]);
  double most = 0;
  for (size_t map = 0; map * size < given.size(); ++map) {
    const auto begin = given.begin() + static_cast<ptrdiff_t>(map * size);
    const double mean = std::accumulate(begin, begin + x.shape[2], 0.0) / static_cast<double>(size);
    double squares = 0;
    for (size_t i = 0; i < size; ++i) squares += std::pow(given[map * size + i] - mean, 2);
    const double deviation = std::sqrt(squares / static_cast<double>(size) + 1e-5);
    for (size_t i = map * size; i < (map + 1) * size; ++i) {
      const double expected = (given[i] - mean) / deviation * scale[map % 2] + bias[map % 2];
      most = std::max(most, std::fabs(found[i] - expected));
    }
  }
  return most;
}

TEST(
    "InstanceNormalization of large windows is as exact as PyTorch's, with the same bits on any "
    "number of "
    "threads") {
  const std::string parameters = Numbers("w", {2, -1}) + Numbers("b", {0.5, 3});
  const auto session = Load(
      OneNode("InstanceNormalization", {"x", "w", "b"}, {0, 2, -1}, {0, 2, -1}, "", 0, parameters));
  for (const int64_t size : {7, 16391, 2097152}) {
    const Tensor x =
        radserve::MakeTensor("x", radserve::Dtype::kFloat32, {size < 20000 ? 3 : 1, 2, size});
    auto* values = reinterpret_cast<float*>(x.data);
    for (size_t i = 0; i < x.Elements(); ++i)
      values[i] = static_cast<float>(i * 7919 % 1009) / 1009 + 1;
    const Tensor wide = session->Run(std::span(&x, 1), kOutputs, true, {}).at(0);
    const Tensor narrow = session->Run(std::span(&x, 1), kOutputs, false, {}).at(0);
    CHECK(std::memcmp(wide.data, narrow.data, wide.Bytes()) == 0);
    CHECK(Difference(x, wide, {2, -1}, {0.5, 3}) < 5e-6);
  }
}
END;

TEST(
    "InstanceNormalization over an infinite value gives no number anywhere, as the runtime's own") {
  const auto session = Load(OneNode("InstanceNormalization", {"x", "w", "b"}, {1, 1, 4}, {1, 1, 4},
                                    "", 0, Numbers("w", {1}) + Numbers("b", {0})));
  for (const float odd : {INFINITY, -INFINITY, NAN}) {
    const Tensor x = radserve::MakeTensor("x", radserve::Dtype::kFloat32, {1, 1, 4});
    Fill({x.data, x.Bytes()}, 1);
    std::memcpy(x.data + sizeof(odd), &odd, sizeof(odd));
    const std::vector<float> y = AsFloats(session->Run(std::span(&x, 1), kOutputs, true, {}).at(0));
    CHECK(std::ranges::all_of(y, [](float value) { return std::isnan(value); }));
  }
}
END;

TEST(
    "InstanceNormalization with a scale of other channels, and of float16, are the runtime's to "
    "refuse and "
    "to run") {
  const Tensor x = radserve::MakeTensor("x", radserve::Dtype::kFloat32, {1, 2, 4});
  Fill({x.data, x.Bytes()}, 0);
  const auto wrong = Load(OneNode("InstanceNormalization", {"x", "w", "b"}, {0, -1, 4}, {0, -1, 4},
                                  "", 0, Numbers("w", {1, 1, 1}) + Numbers("b", {0, 0, 0})));
  EQUAL(CodeOf([&] { wrong->Run(std::span(&x, 1), kOutputs, true, {}); }),
        std::string("output_invalid"));
  const auto cast = [](const std::string& from, const std::string& to, uint64_t type) {
    const std::string attribute = Bytes(5, Bytes(1, "to") + Number(3, type) + Number(20, 2));
    return Bytes(1, Bytes(1, from) + Bytes(2, to) + Bytes(4, "Cast") + attribute);
  };
  const auto half = [](const std::string& name, const std::string& content) {
    return Bytes(5, Number(1, 2) + Number(2, 10) + Bytes(8, name) + Bytes(9, content));
  };
  const std::string node = Bytes(1, "h") + Bytes(1, "w") + Bytes(1, "b") + Bytes(2, "n");
  const std::string halves = half("w", {0, 0x3C, 0, 0x3C}) + half("b", std::string(4, '\0'));
  // As mixed precision exports it: the weights are float32, and are cast beside the node
  const std::string casts = cast("v", "w", 10) + cast("c", "b", 10);
  const std::string singles = Numbers("v", {1, 1}) + Numbers("c", {0, 0});
  for (const auto& [before, weights] : {std::pair(std::string(), halves), {casts, singles}}) {
    const std::string graph = before + cast("x", "h", 10) +
                              Bytes(1, node + Bytes(4, "InstanceNormalization")) +
                              cast("n", "y", 1) + Bytes(2, "test") + weights +
                              Bytes(11, Value("x", {1, 2, 4})) + Bytes(12, Value("y", {1, 2, 4}));
    const auto session =
        Load(Number(1, 8) + Bytes(7, graph) + Bytes(8, Bytes(1, "") + Number(2, 17)));
    CHECK(Difference(x, session->Run(std::span(&x, 1), kOutputs, true, {}).at(0), {1, 1}, {0, 0}) <
          1e-3);
  }
}
END;

TEST("each row of a batch comes back as a tensor of its own") {
  const auto session = Load(OneNode("Add", {"x", "x"}, {0, 2, 2}, {0, 2, 2}));
  const auto bucket = session->MakeBucket(4, {{2, 2}}, kOutputs);
  EQUAL(bucket->capacity(), 4);
  EQUAL(bucket->Row(0, 3).size(), size_t{16});
  for (const int64_t rows : {4, 1, 3}) {
    for (int64_t row = 0; row < rows; ++row)
      Fill(*bucket, row, static_cast<float>(10 * row + rows));
    bucket->Run(rows, {});
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<Tensor> taken = bucket->TakeRow(row);
      EQUAL(taken.size(), size_t{1});
      EQUAL(taken[0].name, "y");
      CHECK(taken[0].shape == (std::vector<int64_t>{1, 2, 2}));
      const auto first = static_cast<float>(2 * (10 * row + rows));
      CHECK(AsFloats(taken[0]) == (std::vector<float>{first, first + 2, first + 4, first + 6}));
    }
  }
}
END;

TEST("several graphs give the mean of their outputs, alone and in batches, with the same bits") {
  const std::vector<std::string> models = {OneNode("Add", {"x", "x"}, {0, 2}, {0, 2}),
                                           OneNode("Mul", {"x", "x"}, {0, 2}, {0, 2}),
                                           OneNode("Sub", {"x", "x"}, {0, 2}, {0, 2})};
  const auto halved = [](Tensor& tensor) {
    auto* values = reinterpret_cast<float*>(tensor.data);
    for (size_t i = 0; i < tensor.Elements(); ++i) values[i] /= 2;
  };
  // (2x + x^2 + 0) / 3, or half of it if each graph's output is halved before.
  const auto mean = [](float x, float share) { return (2 * x * share + x * x * share) / 3; };
  for (const float share : {1.0F, 0.5F}) {
    const auto session = share == 1.0F ? LoadAll(models) : LoadAll(models, halved);
    const auto bucket = session->MakeBucket(4, {{2}}, kOutputs);
    for (const int64_t rows : {4, 1, 3}) {
      for (int64_t row = 0; row < rows; ++row) Fill(*bucket, row, static_cast<float>(row + rows));
      bucket->Run(rows, {});
      for (int64_t row = 0; row < rows; ++row) {
        const auto first = static_cast<float>(row + rows);
        const std::vector<float> expected = {mean(first, share), mean(first + 1, share)};
        CHECK(Row(*bucket, row) == expected);
        // A row may be asked for again.
        CHECK(Row(*bucket, row) == expected);
        Tensor feed = radserve::MakeTensor("x", radserve::Dtype::kFloat32, {1, 2});
        std::memcpy(feed.data, bucket->Row(0, row).data(), feed.Bytes());
        CHECK(AsFloats(session->Run({&feed, 1}, kOutputs, false, {}).at(0)) == expected);
      }
    }
    const std::array<float, 4> values = {5, 6, 7, 8};
    CHECK(!bucket->RunRows(RowsOf(values, 2), {}));
    CHECK(Row(*bucket, 1) == (std::vector<float>{mean(7, share), mean(8, share)}));
  }
}
END;

/// A float32 initializer of small values that repeat nowhere near each other.
std::string Weights(const std::string& name, const std::vector<int64_t>& shape) {
  std::string content(BytesOf(shape), '\0');
  constexpr size_t kPeriod = 8191;
  for (size_t i = 0; i < content.size() / sizeof(float); ++i) {
    const float value = static_cast<float>(i * i % kPeriod) / kPeriod - 0.5F;
    std::memcpy(content.data() + i * sizeof value, &value, sizeof value);
  }
  return Initializer(name, shape, content);
}

TEST(
    "two sessions hold the weights of convolutions once, those of products each, and all give the "
    "same "
    "bits") {
  constexpr size_t kMib = size_t{1} << 20;
  struct Case {
    std::string model;
    std::vector<int64_t> row;
    /// MiB of the wide session and of the narrow one, at least and at most.
    std::array<size_t, 4> bytes;
  };
  const std::vector<Case> cases = {
      {OneNode("Conv", {"x", "w"}, {0, 64, 8, 8}, {0, 8192, 6, 6}, "", 0,
               Weights("w", {8192, 64, 3, 3})),
       {64, 8, 8},
       {18, 20, 0, 1}},
      {OneNode("MatMul", {"x", "w"}, {0, 2048}, {0, 2048}, "", 0, Weights("w", {2048, 2048})),
       {2048},
       {16, 18, 16, 18}}};
  for (const Case& each : cases) {
    const auto both = Load(each.model);
    const auto alone = Load(each.model, 1);
    const std::vector<radserve::SessionMemory> memory = both->Memory();
    EQUAL(memory.size(), size_t{2});
    for (size_t i = 0; i < 2; ++i) {
      CHECK(memory[i].bytes >= each.bytes[2 * i] * kMib);
      CHECK(memory[i].bytes <= each.bytes[2 * i + 1] * kMib);
    }
    std::vector<int64_t> shape = each.row;
    shape.insert(shape.begin(), 1);
    Tensor feed = radserve::MakeTensor("x", radserve::Dtype::kFloat32, shape);
    Fill({feed.data, feed.Bytes()}, -2);
    const auto run = [&](const Session& session, bool wide) {
      return AsFloats(session.Run({&feed, 1}, kOutputs, wide, {}).at(0));
    };
    const std::vector<float> expected = run(*alone, false);
    CHECK(std::ranges::any_of(expected, [](float value) { return value != 0; }));
    CHECK(run(*both, false) == expected);
    CHECK(run(*both, true) == expected);
  }
}
END;

TEST("graphs that take or give other tensors are no ensemble") {
  const std::string one = OneNode("Add", {"x", "x"}, {0, 2}, {0, 2});
  EQUAL(CodeOf([&] {
          LoadAll({one, OneNode("Add", {"x", "x"}, {0, 3}, {0, 3})});
        }),
        "model_unavailable");
  EQUAL(CodeOf([&] { LoadAll({}); }), "model_unavailable");
}
END;

TEST("a taken row outlives the next run and the bucket") {
  const auto session = Load(OneNode("Add", {"x", "x"}, {0, 1}, {0, 1}));
  auto bucket = session->MakeBucket(2, {{1}}, kOutputs);
  Fill(*bucket, 0, 5);
  bucket->Run(1, {});
  const std::vector<Tensor> taken = bucket->TakeRow(0);
  Fill(*bucket, 0, 7);
  bucket->Run(1, {});
  bucket.reset();
  EQUAL(AsFloats(taken[0])[0], 10.0F);
}
END;

TEST(
    "a graph of fixed batch size runs whole, and what earlier batches left in the padding is "
    "gone") {
  const auto session = Load(OneNode("Softmax", {"x"}, {3, 1}, {3, 1}, "axis", 0));
  const auto bucket = session->MakeBucket(3, {{1}}, kOutputs);
  Fill(*bucket, 0, 1);
  bucket->Run(1, {});
  const std::vector<float> alone = Row(*bucket, 0);
  for (int64_t row = 0; row < 3; ++row) Fill(*bucket, row, 50);
  bucket->Run(3, {});
  Fill(*bucket, 0, 1);
  Fill(*bucket, 2, 90);
  bucket->Run(1, {});
  CHECK(Row(*bucket, 0) == alone);
}
END;

/// Whether the rows of a model over x [n, 2] are found independent in batches of so many.
bool Independent(const std::string& model, int64_t rows) {
  const auto session = Load(model);
  std::vector<Tensor> row = {radserve::MakeTensor("x", radserve::Dtype::kFloat32, {1, 2})};
  const auto fill = [](size_t pattern, std::span<Tensor> tensors) {
    Fill({tensors[0].data, tensors[0].Bytes()}, static_cast<float>(pattern % 7) / 7);
  };
  return RowsAreIndependent(*session, kOutputs, rows, row, fill, {});
}

TEST("rows that depend on their neighbours, their place or their number are told") {
  for (const int64_t rows : {2, 4, 7}) {
    CHECK(Independent(OneNode("Softmax", {"x"}, {0, 2}, {0, 2}, "axis", 1), rows));
    CHECK(Independent(OneNode("Add", {"x", "x"}, {0, 2}, {0, 2}), rows));
    // Each of what comes before it; of all; of its place alone.
    CHECK(!Independent(OneNode("CumSum", {"x", "axis"}, {0, 2}, {0, 2}, "", 0, WholeZero("axis")),
                       rows));
    CHECK(!Independent(OneNode("Softmax", {"x"}, {0, 2}, {0, 2}, "axis", 0), rows));
  }
  CHECK(!Independent(OneNode("Add", {"x", "w"}, {0, 2}, {0, 2}, "", 0,
                             Initializer("w", {2, 2},
                                         std::string(8, '\0') + std::string("\0\0\xc8\x42", 4) +
                                             std::string("\0\0\xc8\x42", 4))),
                     2));
}
END;

TEST("outputs that are no rows are refused in batches, and whole without") {
  const auto session = Load(OneNode("Flatten", {"x"}, {0, 2}, {0, 0}, "axis", 0));
  const auto several = session->MakeBucket(4, {{2}}, kOutputs);
  EQUAL(CodeOf([&] { several->Run(3, {}); }), "output_invalid");
  const auto one = session->MakeBucket(1, {{2}}, kOutputs);
  Fill(*one, 0, 3);
  one->Run(1, {});
  CHECK(Row(*one, 0) == (std::vector<float>{3, 4}));
}
END;

TEST("a bound bucket gives each row its own, batch after batch, and pads with zeros") {
  const auto bucket = Bound(OneNode("Softmax", {"x"}, {0, 1}, {0, 1}, "axis", 0), 4, {1});
  const auto run = [&](int64_t rows, float first) {
    for (int64_t row = 0; row < rows; ++row) Fill(*bucket, row, first + static_cast<float>(row));
    bucket->Run(rows, {});
    return Row(*bucket, rows - 1);
  };
  const std::vector<float> alone = run(1, 2);
  NEAR(alone.at(0), std::exp(2.0) / (std::exp(2.0) + 3), 1e-6);
  const std::vector<Tensor> taken = bucket->TakeRow(0);
  CHECK(run(4, 0) != alone);
  CHECK(run(1, 2) == alone);
  CHECK(taken.at(0).shape == (std::vector<int64_t>{1, 1}) && AsFloats(taken[0]) == alone);
}
END;

TEST("what a bound bucket finds may change in number from run to run") {
  // Without an axis the batch is not the first side, whether the graph gives that a name or not.
  for (const std::vector<int64_t>& y : {std::vector<int64_t>{-1}, {0, -1}}) {
    const std::string attribute = y.size() == 1 ? "" : "axis";
    const auto bucket = Bound(OneNode("Unique", {"x"}, {0, 4}, y, attribute, 1), 1, {4});
    for (const std::vector<float>& row :
         {std::vector<float>{1, 2, 2, 3}, {5, 5, 5, 5}, {1, 2, 3, 4}}) {
      std::memcpy(bucket->Row(0, 0).data(), row.data(), 4 * sizeof(float));
      bucket->Run(1, {});
      const std::set<float> different(row.begin(), row.end());
      CHECK(Row(*bucket, 0) == std::vector<float>(different.begin(), different.end()));
    }
  }
}
END;

TEST("a bound bucket that failed goes on") {
  const auto bucket = Bound(OneNode("Add", {"x", "x"}, {0, 1}, {0, 1}), 2, {1});
  std::stop_source source;
  source.request_stop();
  Fill(*bucket, 0, 3);
  EQUAL(CodeOf([&] { bucket->Run(1, source.get_token()); }), "cancelled");
  bucket->Run(1, {});
  EQUAL(Row(*bucket, 0).at(0), 6.0F);
}
END;

TEST("batches that the graph does not take are refused") {
  const auto session = Load(OneNode("Add", {"x", "x"}, {1, 2, 2}, {1, 2, 2}));
  EQUAL(CodeOf([&] { session->MakeBucket(2, {{2, 2}}, kOutputs); }), "bad_request");
  EQUAL(CodeOf([&] { session->MakeBucket(1, {{2, 3}}, kOutputs); }), "bad_request");
  EQUAL(CodeOf([&] { session->MakeBucket(1, {{2}}, kOutputs); }), "bad_request");
  EQUAL(CodeOf([&] { session->MakeBucket(1, {}, kOutputs); }), "internal");
  const auto bucket = session->MakeBucket(1, {{2, 2}}, kOutputs);
  EQUAL(CodeOf([&] { bucket->Run(2, {}); }), "internal");
  EQUAL(CodeOf([&] { bucket->Row(0, 1); }), "internal");
}
END;

TEST("a run that is asked to stop before it starts gives no result") {
  const auto session = Load(OneNode("Add", {"x", "x"}, {0, 1}, {0, 1}));
  const auto bucket = session->MakeBucket(1, {{1}}, kOutputs);
  std::stop_source source;
  source.request_stop();
  EQUAL(CodeOf([&] { bucket->Run(1, source.get_token()); }), "internal");
  bucket->Run(1, {});
}
END;

TEST("a device keeps no more places than their inputs may take, and gives those of a model back") {
  const auto session = Load(OneNode("Add", {"x", "x"}, {0, 0}, {0, 0}));
  radserve::SessionDevice device(1000);
  radserve::RunStats stats;
  for (const uint64_t model : {1, 2}) device.AddModel(model, {session.get(), kOutputs, &stats});
  const auto run = [&](uint64_t model, int64_t side, int64_t capacity) {
    // Two rows apart from each other, which have to be copied into the place.
    std::vector<std::shared_ptr<radserve::BatchRow>> rows;
    for (const uint8_t exponent : {0x40, 0x41}) {
      rows.push_back(std::make_shared<radserve::BatchRow>());
      rows.back()->key = {model, {{side}}};
      rows.back()->inputs = {radserve::MakeTensor("x", radserve::Dtype::kFloat32, {1, side})};
      rows.back()->inputs[0].data[3] = std::byte{exponent};
    }
    const auto result = device.Run(0, capacity, rows, {});
    CHECK(AsFloats(result.outputs.at(0).at(0)).at(0) == 4.0F);
    CHECK(AsFloats(result.outputs.at(1).at(0)).at(0) == 16.0F);
  };
  run(1, 10, 4);
  run(1, 20, 4);
  run(2, 30, 4);
  EQUAL(device.bytes(), size_t{960});
  run(1, 10, 4);
  EQUAL(device.bytes(), size_t{960});
  run(2, 25, 2);
  // The place of 20, which was not used for longest, made room.
  EQUAL(device.bytes(), size_t{840});
  run(2, 500, 2);
  EQUAL(device.bytes(), size_t{4000});
  run(1, 10, 2);
  EQUAL(device.bytes(), size_t{80});
  device.RemoveModel(1);
  EQUAL(device.bytes(), size_t{0});
}
END;

TEST(
    "rows that a device gave run in their place, whatever their order; others are copied "
    "together") {
  const auto session = Load(OneNode("Softmax", {"x"}, {0, 2}, {0, 2}, "axis", 0));
  radserve::SessionDevice device;
  radserve::RunStats stats;
  device.AddModel(1, {session.get(), kOutputs, &stats, 4});
  const radserve::BucketKey key = {1, {{2}}};
  const auto row = [&](float first) {
    auto made = std::make_shared<radserve::BatchRow>();
    made->key = key;
    made->inputs = {device.NewRow(key, "x", radserve::Dtype::kFloat32)};
    CHECK(made->inputs[0].shape == (std::vector<int64_t>{1, 2}));
    const std::array<float, 2> values = {first, -first};
    std::memcpy(made->inputs[0].data, values.data(), sizeof(values));
    return made;
  };
  using Rows = std::vector<std::shared_ptr<radserve::BatchRow>>;
  const auto run = [&](const Rows& rows) {
    std::vector<float> firsts;
    for (const auto& outputs : device.Run(0, 4, rows, {}).outputs)
      firsts.push_back(AsFloats(outputs.at(0)).at(0));
    return firsts;
  };
  const Rows rows = {row(1), row(2), row(3), row(4)};
  const std::vector<float> whole = run(rows);
  const std::vector<float> three = run({rows[2], rows[0], rows[1]});
  EQUAL(stats.Get().gathered, uint64_t{0});
  CHECK(whole[0] < whole[1] && whole[1] < whole[2] && whole[2] < whole[3]);
  CHECK(three[1] < three[2] && three[2] < three[0]);
  const std::vector<float> apart = run({rows[1], rows[3]});
  EQUAL(stats.Get().gathered, uint64_t{1});
  CHECK(apart[0] < apart[1]);
  // The same two numbers next to each other.
  CHECK(run({row(2), row(4)}) == apart);
  EQUAL(stats.Get().gathered, uint64_t{1});
}
END;

TEST("rows of several inputs are a batch, each input its own") {
  // y = x + z, with z one number for each row.
  std::string node =
      Bytes(1, "x") + Bytes(1, "z") + Bytes(2, "y") + Bytes(3, "node") + Bytes(4, "Add");
  const std::string graph = Bytes(1, node) + Bytes(2, "test") + Bytes(11, Value("x", {0, 2})) +
                            Bytes(11, Value("z", {0, 1})) + Bytes(12, Value("y", {0, 2}));
  const auto session =
      Load(Number(1, 8) + Bytes(7, graph) + Bytes(8, Bytes(1, "") + Number(2, 17)));
  radserve::SessionDevice device;
  radserve::RunStats stats;
  device.AddModel(1, {session.get(), kOutputs, &stats, 4});
  const radserve::BucketKey key = {1, {{2}, {1}}};
  const auto row = [&](float first, float second, float added) {
    auto made = std::make_shared<radserve::BatchRow>();
    made->key = key;
    made->inputs = {radserve::MakeTensor("x", radserve::Dtype::kFloat32, {1, 2}),
                    radserve::MakeTensor("z", radserve::Dtype::kFloat32, {1, 1})};
    const std::array<float, 2> values = {first, second};
    std::memcpy(made->inputs[0].data, values.data(), sizeof(values));
    std::memcpy(made->inputs[1].data, &added, sizeof(added));
    return made;
  };
  const std::vector<std::shared_ptr<radserve::BatchRow>> rows = {row(1, 2, 10), row(3, 4, 20),
                                                                 row(5, 6, 30)};
  const auto result = device.Run(0, 4, rows, {});
  CHECK(AsFloats(result.outputs.at(0).at(0)) == (std::vector<float>{11, 12}));
  CHECK(AsFloats(result.outputs.at(1).at(0)) == (std::vector<float>{23, 24}));
  CHECK(AsFloats(result.outputs.at(2).at(0)) == (std::vector<float>{35, 36}));
}
END;

TEST("a bucket reads rows where they lie as it reads its own") {
  const std::string model = OneNode("Softmax", {"x"}, {3, 1}, {3, 1}, "axis", 0);
  const auto session = Load(model);
  const auto bound = Bound(model, 3, {1});
  const auto fixed = session->MakeBucket(3, {{1}}, kOutputs);
  for (Bucket* bucket : {bound.get(), fixed.get()}) {
    Fill(*bucket, 0, 2);
    bucket->Run(1, {});
    const std::vector<float> expected = Row(*bucket, 0);
    const std::array<float, 5> values = {9, 2, 9, 9, 9};
    bucket->RunRows(RowsOf(std::span(values).subspan(1, 3), 1), {});
    bucket->RunRows(RowsOf(std::span(values).subspan(1, 1), 1), {});
    CHECK(Row(*bucket, 0) == expected);
    const auto reversed = [&] {
      auto rows = RowsOf(std::span(values).first(3), 1);
      std::ranges::reverse(rows);
      return rows;
    };
    CHECK(bucket->RunRows(reversed(), {}));
    CHECK(Row(*bucket, 0) == Row(*bucket, 2) && Row(*bucket, 1) != Row(*bucket, 0));
    EQUAL(CodeOf([&] { bucket->RunRows(RowsOf(std::span(values).first(4), 1), {}); }), "internal");
    EQUAL(CodeOf([&] { bucket->RunRows(RowsOf(std::span(values).first(4), 2), {}); }), "internal");
  }
}
END;

TEST("what large runs keep is given back") {
  const auto session = Load(OneNode("Add", {"x", "x"}, {0, 1024}, {0, 1024}));
  const auto run = [&](int64_t rows) {
    const Tensor feed = radserve::MakeTensor("x", radserve::Dtype::kFloat32, {rows, 1024});
    session->Run(std::span(&feed, 1), kOutputs, true, {});
    return radserve::KeptRunMemory();
  };
  constexpr size_t kLarge = size_t{32} << 20;
  radserve::ReturnMemory();
  CHECK(run(1) < kLarge);
  CHECK(run(8192) >= kLarge);
  CHECK(run(1) >= kLarge);
  radserve::ReturnMemory();
  CHECK(run(1) < kLarge / 4);
}
END;

// AddressSanitizer ends the process where there is no memory.
#if !defined(__SANITIZE_ADDRESS__)
TEST("a run that finds too little memory has what others keep given back first") {
  // x times itself: as many sides as rows.
  const auto session = Load(OneNode("Gemm", {"x", "x"}, {0, 1}, {0, 0}, "transB", 1));
  const auto run = [&](int64_t rows) {
    const auto bucket = session->MakeBucket(rows, {{1}}, kOutputs);
    bucket->Run(rows, {});
  };
  constexpr size_t kLarge = size_t{64} << 20;
  run(4096);
  CHECK(radserve::KeptRunMemory() >= kLarge);
  constexpr int64_t kTooMany = int64_t{1} << 24;
  EQUAL(CodeOf([&] { run(kTooMany); }), "memory_exceeded");
  CHECK(radserve::KeptRunMemory() < kLarge / 4);
  run(4096);
  CHECK(radserve::KeptRunMemory() >= kLarge);
  radserve::ReturnMemory();
}
END;
#endif

TEST("a run has no more memory than all runs may have, and the next that needs less goes well") {
  for (const int threads : {1, 2}) {
    const auto session = Load(OneNode("Gemm", {"x", "x"}, {0, 1}, {0, 0}, "transB", 1), threads);
    const auto run = [&](int64_t rows) {
      const Tensor feed = radserve::MakeTensor("x", radserve::Dtype::kFloat32, {rows, 1});
      return session->Run(std::span(&feed, 1), kOutputs, true, {});
    };
    radserve::ReturnMemory();
    radserve::LimitRunMemory(size_t{32} << 20);
    EQUAL(CodeOf([&] { run(4096); }), "memory_exceeded");
    CHECK(!run(1024).empty());
    // Of two that fit one after the other each waits for its turn.
    std::jthread other([&] {
      for (int i = 0; i < 8; ++i) CHECK(!run(2500).empty());
    });
    for (int i = 0; i < 8; ++i) CHECK(!run(2500).empty());
    other.join();
    radserve::LimitRunMemory(0);
    CHECK(!run(4096).empty());
  }
}
END;

TEST("one session with one thread, two with more; both say what they hold") {
  const std::string model = OneNode("Add", {"x", "x"}, {0, 1}, {0, 1});
  EQUAL(Load(model, 1)->Memory().size(), size_t{1});
  const std::string heavy =
      OneNode("MatMul", {"x", "w"}, {0, 1024}, {0, 1024}, "", 0, Zeros("w", {1024, 1024}));
  const auto memory = Load(heavy, 2)->Memory();
  EQUAL(memory.size(), size_t{2});
  CHECK(memory[0].wide && !memory[1].wide);
  constexpr size_t kWeights = size_t{4} << 20;
  for (const auto& session : memory) {
    CHECK(session.bytes >= kWeights);
    CHECK(session.bytes < kWeights + kWeights / 2);
  }
}
END;

// AddressSanitizer ends the process if the runtime's own allocator is refused so much.
#if !defined(__SANITIZE_ADDRESS__)
/// x [1] -> Expand to 2^50 floats -> ReduceMax -> y.
std::string Greedy() {
  std::string huge(8, '\0');
  huge[6] = 4;
  const std::string shape =
      Bytes(5, Number(1, 1) + Number(2, 7) + Bytes(8, "shape") + Bytes(9, huge));
  const std::string expand = Bytes(1, Bytes(1, "x") + Bytes(1, "shape") + Bytes(2, "e") +
                                          Bytes(3, "expand") + Bytes(4, "Expand"));
  const std::string reduce =
      Bytes(1, Bytes(1, "e") + Bytes(2, "y") + Bytes(3, "max") + Bytes(4, "ReduceMax"));
  return Number(1, 8) +
         Bytes(7, expand + reduce + Bytes(2, "test") + shape + Bytes(11, Value("x", {1})) +
                      Bytes(12, Value("y", {1}))) +
         Bytes(8, Bytes(1, "") + Number(2, 17));
}

/// A tensor of 64 x 64 numbers in a file of its own; `from` is the first byte there. Named ones do
/// not say their length.
std::string Outside(const std::string& name, const std::string& location, uint64_t from) {
  const auto entry = [](const std::string& key, const std::string& value) {
    return Bytes(13, Bytes(1, key) + Bytes(2, value));
  };
  return Number(1, 64) + Number(1, 64) + Number(2, 1) + (name.empty() ? "" : Bytes(8, name)) +
         entry("location", location) + entry("offset", std::to_string(from)) +
         (name.empty() ? entry("length", "16384") : "") + Number(14, 1);
}

TEST(
    "weights in files of their own are the session's: what is done to the files later changes "
    "nothing") {
  // y = x + a + (k ? x + b : x + c) + d, with a an initializer of the graph, b and c of a subgraph,
  // and d a constant.
  const auto node = [](const std::string& op, const std::vector<std::string>& in,
                       const std::string& out, const std::string& attributes = "") {
    std::string bytes;
    for (const std::string& name : in) bytes += Bytes(1, name);
    return Bytes(1, bytes + Bytes(2, out) + Bytes(3, out) + Bytes(4, op) + attributes);
  };
  const std::string file = "radserve-session-test-" + std::to_string(getpid()) + ".data";
  const auto branch = [&](const std::string& name, const std::string& weights, uint64_t from) {
    const std::string graph = node("Add", {"x", weights}, name) + Bytes(2, name) +
                              Bytes(5, Outside(weights, file, from)) +
                              Bytes(12, Value(name, {1, 64, 64}));
    return Bytes(5, Bytes(1, name) + Bytes(6, graph) + Number(20, 5));
  };
  const std::string sides = Bytes(1, Number(1, 1));
  const std::string condition = Bytes(1, "k") + Bytes(2, Bytes(1, Number(1, 9) + Bytes(2, sides)));
  const std::string model =
      Number(1, 8) +
      Bytes(7, node("Add", {"x", "a"}, "xa") +
                   node("If", {"k"}, "chosen",
                        branch("then_branch", "b", 16384) + branch("else_branch", "c", 32768)) +
                   node("Constant", {}, "d",
                        Bytes(5, Bytes(1, "value") + Bytes(5, Outside("", "./" + file, 49152)) +
                                     Number(20, 4))) +
                   node("Add", {"xa", "chosen"}, "sum") + node("Add", {"sum", "d"}, "y") +
                   Bytes(2, "test") + Bytes(5, Outside("a", "././" + file, 0)) +
                   Bytes(11, Value("x", {1, 64, 64})) + Bytes(11, condition) +
                   Bytes(12, Value("y", {1, 64, 64}))) +
      Bytes(8, Bytes(1, "") + Number(2, 17));
  const std::filesystem::path weights = std::filesystem::temp_directory_path() / file;
  const auto write = [&](const std::array<float, 4>& values) {
    std::fstream out(weights, std::ios::binary | std::ios::in | std::ios::out);
    for (const float value : values) {
      const std::vector<float> tensor(4096, value);
      out.write(reinterpret_cast<const char*>(tensor.data()), 16384);
    }
  };
  std::ofstream(weights, std::ios::binary).close();
  write({1, 20, 300, 4000});
  const auto session = Load(model);
  const auto first = [&](bool k, bool wide) {
    std::vector<Tensor> feeds = {radserve::MakeTensor("x", radserve::Dtype::kFloat32, {1, 64, 64}),
                                 radserve::MakeTensor("k", radserve::Dtype::kBool, {1})};
    *feeds[1].data = static_cast<std::byte>(k);
    return AsFloats(session->Run(feeds, kOutputs, wide, {}).at(0)).at(0);
  };
  const auto all = [&] {
    return std::array{first(true, true), first(false, true), first(true, false),
                      first(false, false)};
  };
  const std::array<float, 4> before = {4021, 4301, 4021, 4301};
  CHECK(all() == before);
  write({5, 6, 7, 8});
  CHECK(all() == before);
  std::filesystem::resize_file(weights, 0);
  CHECK(all() == before);
  std::filesystem::remove(weights);
}
END;

TEST("a run that the machine has no memory for says so, and the session goes on") {
  for (const int threads : {1, 2}) {
    const auto session = Load(Greedy(), threads);
    const Tensor x = radserve::MakeTensor("x", radserve::Dtype::kFloat32, {1});
    for (const bool wide : {false, true, false}) {
      EQUAL(CodeOf([&] { session->Run(std::span(&x, 1), kOutputs, wide, {}); }),
            std::string("memory_exceeded"));
    }
  }
}
END;
#endif

}  // namespace
