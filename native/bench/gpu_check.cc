// Whether a GPU gives the numbers that the CPU gives, through the engine's own sessions, buckets
// and batches, and what a change of shape costs it. Needs no Node: bench/gpu.sh runs it on a
// machine that has little more than CUDA, under compute-sanitizer too.
//
//   gpu_check LIST cpu|cuda [RUNS]
//
// Each line of LIST names a graph, relative to the list, the precision (float32, tf32, float16),
// the tolerance, and the shapes of one row, without the batch: small_cnn.onnx float32 1e-3
// 1x192x192 1x256x256 Prints a line for every graph, precision and batch. Ends with 1 where numbers
// differ by more than the tolerance (relative to the largest number of the row), 2 where it could
// not be found out.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <latch>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/atomic_most.h"
#include "base/error.h"
#include "runtime/session.h"
#include "runtime/session_device.h"
#include "scheduling/batcher.h"

namespace {

using namespace radserve;

struct Entry {
  std::filesystem::path graph;
  std::string precision;
  double tolerance = 0;
  std::vector<std::vector<int64_t>> shapes;
};

/// Inputs of one shape and what the CPU makes of each.
struct Expected {
  std::vector<int64_t> shape;
  std::vector<Tensor> inputs;
  std::vector<std::vector<Tensor>> outputs;
};

constexpr std::array<int64_t, 6> kBatches = {1, 2, 4, 8, 16, 32};
constexpr size_t kInputs = 13;
constexpr int kThreads = 16;

double MillisecondsSince(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

std::vector<int64_t> ShapeOf(const std::string& text) {
  std::vector<int64_t> shape;
  std::istringstream sides(text);
  for (std::string side; std::getline(sides, side, 'x');) shape.push_back(std::stoll(side));
  return shape;
}

std::vector<Entry> ReadList(const std::filesystem::path& list) {
  std::ifstream file(list);
  if (!file) throw std::runtime_error("cannot read " + list.string());
  std::vector<Entry> entries;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string graph;
    Entry entry;
    if (!(words >> graph >> entry.precision >> entry.tolerance)) continue;
    entry.graph = list.parent_path() / graph;
    for (std::string shape; words >> shape;) entry.shapes.push_back(ShapeOf(shape));
    entries.push_back(std::move(entry));
  }
  return entries;
}

Precision PrecisionOf(const std::string& name) {
  if (name == "tf32") return Precision::kTf32;
  return name == "float16" ? Precision::kFloat16 : Precision::kFloat32;
}

Tensor RandomInput(const TensorInfo& input, const std::vector<int64_t>& row, uint64_t seed) {
  std::vector<int64_t> shape = {1};
  shape.insert(shape.end(), row.begin(), row.end());
  Tensor tensor = MakeTensor(input.name, input.dtype, shape);
  std::mt19937_64 random(seed);
  const bool real = input.dtype == Dtype::kFloat32 || input.dtype == Dtype::kFloat16 ||
                    input.dtype == Dtype::kFloat64;
  std::vector<float> values(tensor.Elements());
  for (float& value : values) {
    value =
        real ? static_cast<float>(random() % 2001) / 1000 - 1 : static_cast<float>(random() % 100);
  }
  StoreRow(tensor.dtype, values.data(), values.size(), tensor.data, 1);
  return tensor;
}

std::vector<std::string> OutputsOf(const Session& session) {
  std::vector<std::string> names;
  for (const TensorInfo& output : session.graph().outputs) names.push_back(output.name);
  return names;
}

std::vector<Expected> OnCpu(const Entry& entry) {
  const Session session(entry.graph, {}, "model_unavailable");
  const std::vector<std::string> outputs = OutputsOf(session);
  std::vector<Expected> all;
  for (const auto& shape : entry.shapes) {
    Expected expected{shape, {}, {}};
    for (uint64_t seed = 0; seed < kInputs; ++seed) {
      expected.inputs.push_back(RandomInput(session.graph().inputs.at(0), shape, seed));
      expected.outputs.push_back(session.Run({&expected.inputs.back(), 1}, outputs, false, {}));
    }
    all.push_back(std::move(expected));
  }
  return all;
}

/// The largest difference of a row, relative to its largest number; infinity where shapes differ or
/// a number is none.
double Difference(const std::vector<Tensor>& found, const std::vector<Tensor>& expected) {
  double worst = 0;
  if (found.size() != expected.size()) return INFINITY;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].shape != expected[i].shape) return INFINITY;
    const std::vector<float> a = AsFloats(found[i]);
    const std::vector<float> b = AsFloats(expected[i]);
    float largest = 1e-6F;
    for (const float value : b) largest = std::max(largest, std::fabs(value));
    for (size_t j = 0; j < a.size(); ++j) {
      const double difference = std::fabs(static_cast<double>(a[j]) - b[j]) / largest;
      worst = std::isfinite(difference) ? std::max(worst, difference) : INFINITY;
    }
  }
  return worst;
}

std::unique_ptr<Session> LoadOn(const Entry& entry, Provider provider) {
  SessionSettings settings;
  settings.provider = provider;
  settings.precision = PrecisionOf(entry.precision);
  return std::make_unique<Session>(entry.graph, settings, "model_unavailable");
}

std::ostream& Line(const Entry& entry, const std::string& what) {
  return std::cout << std::left << std::setw(24) << entry.graph.filename().string() << std::setw(9)
                   << entry.precision << std::setw(28) << what;
}

/// Every batch of every shape, `runs` times; the shapes by turns last. @returns the largest
/// difference
double Buckets(const Entry& entry, Session& session, const std::vector<Expected>& all, int runs) {
  const std::vector<std::string> outputs = OutputsOf(session);
  double worst = 0;
  for (const int64_t capacity : kBatches) {
    double first = 0;
    double later = 0;
    double difference = 0;
    for (const Expected& expected : all) {
      const auto bucket = session.MakeBucket(capacity, {expected.shape}, outputs, true);
      for (int run = 0; run < runs; ++run) {
        const int64_t rows = capacity - run % capacity;
        const auto input = [&](int64_t row) { return static_cast<size_t>(run + row) % kInputs; };
        for (int64_t row = 0; row < rows; ++row) {
          const Tensor& given = expected.inputs[input(row)];
          std::copy_n(given.data, given.Bytes(), bucket->Row(0, row).data());
        }
        const auto began = Clock::now();
        bucket->Run(rows, {});
        (run == 0 ? first : later) += MillisecondsSince(began);
        for (int64_t row = 0; row < rows; ++row) {
          difference =
              std::max(difference, Difference(bucket->TakeRow(row), expected.outputs[input(row)]));
        }
      }
    }
    const auto shapes = static_cast<double>(all.size());
    Line(entry, "batch " + std::to_string(capacity))
        << "difference " << difference << ", first run of a shape " << first / shapes
        << " ms, later " << later / (shapes * std::max(1, runs - 1)) << " ms" << std::endl;
    worst = std::max(worst, difference);
  }
  return worst;
}

/// A batcher over one session, as the engine has it.
struct Served {
  Served(Session& session, int64_t largest, size_t lanes = 1) {
    auto made = std::make_unique<SessionDevice>();
    device = made.get();
    device->AddModel(1, {&session, OutputsOf(session), &stats, largest});
    batcher = std::make_unique<Batcher>(std::move(made), lanes);
    batcher->AddModel(1, largest, true);
  }

  std::shared_ptr<BatchRow> Row(const std::vector<int64_t>& shape, const Tensor& input) const {
    auto row = std::make_shared<BatchRow>();
    row->key = {1, {shape}};
    row->inputs = {device->NewRow(row->key, input.name, input.dtype)};
    std::copy_n(input.data, input.Bytes(), row->inputs[0].data);
    return row;
  }

  RunStats stats;
  SessionDevice* device = nullptr;
  std::unique_ptr<Batcher> batcher;
};

/// Sixteen threads send rows of all shapes. @returns the largest difference
double Threads(const Entry& entry, Session& session, const std::vector<Expected>& all, int runs) {
  const Served served(session, kBatches.back());
  std::atomic<double> worst = 0;
  const auto began = Clock::now();
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        std::mt19937_64 random(static_cast<uint64_t>(thread));
        for (int run = 0; run < runs; ++run) {
          const Expected& expected = all[random() % all.size()];
          const size_t i = random() % kInputs;
          const auto row = served.Row(expected.shape, expected.inputs[i]);
          std::latch done(1);
          row->done = [&done] { done.count_down(); };
          served.batcher->Submit(row);
          done.wait();
          Raise(worst, row->failure ? INFINITY : Difference(row->outputs, expected.outputs[i]));
        }
      });
    }
  }
  const double seconds = MillisecondsSince(began) / 1000;
  Line(entry, std::to_string(kThreads) + " threads")
      << "difference " << worst << ", " << kThreads * runs / seconds << " rows/s" << std::endl;
  return worst;
}

/// Rows a second with so many at once in two lanes and in one, where two are said to pay. @returns
/// the largest difference
double Lanes(const Entry& entry, Session& session, const Expected& expected, int runs) {
  const Served served(session, kBatches.back(), 2);
  served.batcher->Warm(served.Row(expected.shape, expected.inputs[0]), kBatches.back(), {});
  double worst = 0;
  const auto measure = [&] {
    const auto began = Clock::now();
    for (int run = 0; run < runs; ++run) {
      const int64_t count = 4 * kBatches.back();
      std::vector<std::shared_ptr<BatchRow>> rows;
      std::latch done(count);
      for (int64_t i = 0; i < count; ++i) {
        rows.push_back(
            served.Row(expected.shape, expected.inputs[static_cast<size_t>(i) % kInputs]));
        rows.back()->done = [&done] { done.count_down(); };
      }
      served.batcher->Submit(rows);
      done.wait();
      for (size_t i = 0; i < rows.size(); ++i) {
        const bool failed = rows[i]->failure.has_value();
        worst = std::max(
            worst, failed ? INFINITY : Difference(rows[i]->outputs, expected.outputs[i % kInputs]));
      }
    }
    return static_cast<double>(4 * kBatches.back() * runs) / (MillisecondsSince(began) / 1000);
  };
  const double two = measure();
  const bool stays = served.batcher->ForgoLanes(1);
  const double one = measure();
  Line(entry, stays ? "two lanes" : "a second lane does not pay")
      << "difference " << worst << ", " << two << " rows/s, in one lane " << one << std::endl;
  return worst;
}

/// How long a batch that runs takes to end once all of its rows are cancelled, and that the next
/// one is right.
double Cancelled(const Entry& entry, Session& session, const Expected& expected) {
  const Served served(session, kBatches.back());
  const auto send = [&](int count, bool cancel) {
    std::vector<std::shared_ptr<BatchRow>> rows;
    std::latch done(count);
    for (int i = 0; i < count; ++i) {
      rows.push_back(served.Row(expected.shape, expected.inputs[0]));
      rows.back()->done = [&done] { done.count_down(); };
      served.batcher->Submit(rows.back());
    }
    if (cancel) {
      for (const auto& row : rows) served.batcher->Cancel(row);
    }
    done.wait();
    return rows;
  };
  send(static_cast<int>(kBatches.back()), false);
  const auto began = Clock::now();
  send(4 * static_cast<int>(kBatches.back()), true);
  const auto next = send(1, false).at(0);
  const double took = MillisecondsSince(began);
  const double difference =
      next->failure ? INFINITY : Difference(next->outputs, expected.outputs[0]);
  Line(entry, "after a cancelled batch")
      << "difference " << difference << ", next answer after " << took << " ms" << std::endl;
  return difference;
}

bool Agrees(const Entry& entry, Provider provider, int runs) {
  const std::vector<Expected> all = OnCpu(entry);
  const auto began = Clock::now();
  const std::unique_ptr<Session> session = LoadOn(entry, provider);
  Line(entry, "load") << MillisecondsSince(began) << " ms" << std::endl;
  const double worst =
      std::max({Buckets(entry, *session, all, runs), Threads(entry, *session, all, runs),
                Lanes(entry, *session, all.at(0), runs), Cancelled(entry, *session, all.at(0))});
  if (worst <= entry.tolerance) return true;
  Line(entry, "DIFFERS") << "by " << worst << ", tolerance " << entry.tolerance << std::endl;
  return false;
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) {
    std::cerr << "usage: gpu_check LIST cpu|cuda [RUNS]\n";
    return 2;
  }
  try {
    StartRuntime();
    const bool cuda = std::string(words[2]) == "cuda";
    if (cuda) {
      const std::string problem = CudaProblem(0);
      if (!problem.empty()) throw std::runtime_error("CUDA cannot be used: " + problem);
    }
    const int runs = count > 3 ? std::max(1, std::stoi(words[3])) : 100;
    bool agree = true;
    for (const Entry& entry : ReadList(words[1])) {
      agree = Agrees(entry, cuda ? Provider::kCuda : Provider::kCpu, runs) && agree;
    }
    return agree ? 0 : 1;
  } catch (const std::exception& e) {
    std::cerr << "gpu_check: " << e.what() << "\n";
    return 2;
  }
}
