// What the engine is measured against: ONNX Runtime in a plain loop, nothing round it. Reads commands from
// standard input, a line each, and answers each with a line of JSON, so that a bench can take turns between
// it and the engine.
//
//   raw_ort MODEL cpu|cuda [DEVICE]
//
//   run LANES THREADS SPIN BATCH HEIGHT WIDTH SECONDS [DEPTH]
//     LANES threads call Run on one session with THREADS intra-op threads, on a tensor of one channel; with DEPTH
//     of a volume. Answers images a second, the latency in ms and the resident KiB.
//   load LEVEL [OPTIMISED]
//     Answers the ms to make a session at that optimisation level (0 or 99) from MODEL; writes the optimised
//     model or, with level 0, reads it.
#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

/// Processor time of all threads of this process so far.
double ProcessorSeconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

long ResidentKib() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::stol(line.substr(6));
  }
  return 0;
}

struct Run {
  int lanes = 1;
  int threads = 1;
  int spin = 0;
  int64_t batch = 1;
  int64_t height = 0;
  int64_t width = 0;
  double seconds = 1;
  /// 0: the input has two dimensions of space.
  int64_t depth = 0;
};

class Raw {
 public:
  Raw(std::string path, bool cuda, int device)
      : env_(ORT_LOGGING_LEVEL_ERROR, "raw"), path_(std::move(path)), cuda_(cuda), device_(device) {}

  Ort::SessionOptions Options(int threads, int spin) const {
    Ort::SessionOptions options;
    options.SetExecutionMode(ORT_SEQUENTIAL);
    options.SetInterOpNumThreads(1);
    options.SetIntraOpNumThreads(threads);
    options.AddConfigEntry("session.intra_op.allow_spinning", spin != 0 ? "1" : "0");
    if (cuda_) {
      Ort::CUDAProviderOptions cuda;
      cuda.Update({{"device_id", std::to_string(device_)},
                   {"cudnn_conv_algo_search", "HEURISTIC"},
                   {"use_tf32", "0"}});
      options.AppendExecutionProvider_CUDA_V2(*cuda);
    }
    return options;
  }

  std::string Measure(const Run& run) {
    Ort::Session& session = SessionFor(run);
    std::mutex mutex;
    std::vector<double> latencies;
    // One run each outside the time: memory and plans of a new shape.
    Loop(session, run, 0, mutex, latencies);
    latencies.clear();
    const double used = ProcessorSeconds();
    const auto start = Clock::now();
    std::vector<std::jthread> lanes;
    for (int lane = 0; lane < run.lanes; ++lane) {
      lanes.emplace_back([&] { Loop(session, run, run.seconds, mutex, latencies); });
    }
    lanes.clear();
    const double elapsed = Seconds(start);
    const double processor = ProcessorSeconds() - used;
    std::sort(latencies.begin(), latencies.end());
    const auto quantile = [&](double q) {
      return latencies[std::min(latencies.size() - 1, static_cast<size_t>(q * latencies.size()))] * 1000;
    };
    std::ostringstream out;
    const auto images = static_cast<double>(latencies.size() * run.batch);
    out << "{\"rate\":" << images / elapsed << ",\"cpu_us\":" << processor * 1e6 / images
        << ",\"p50\":" << quantile(0.5) << ",\"p95\":" << quantile(0.95) << ",\"p99\":" << quantile(0.99)
        << ",\"rss_kib\":" << ResidentKib() << "}";
    return out.str();
  }

  std::string Load(int level, const std::string& optimised) {
    Ort::SessionOptions options = Options(1, 0);
    options.SetGraphOptimizationLevel(level == 0 ? ORT_DISABLE_ALL : ORT_ENABLE_ALL);
    if (level != 0 && !optimised.empty()) options.SetOptimizedModelFilePath(optimised.c_str());
    const auto start = Clock::now();
    const Ort::Session session(env_, (level == 0 ? optimised : path_).c_str(), options);
    return "{\"ms\":" + std::to_string(Seconds(start) * 1000) + "}";
  }

 private:
  Ort::Session& SessionFor(const Run& run) {
    const auto key = std::make_pair(run.threads, run.spin);
    if (sessions_.count(key) == 0) {
      // One at a time: pools of sessions that are not measured would only be in the way.
      sessions_.clear();
      sessions_.emplace(key,
                        std::make_unique<Ort::Session>(env_, path_.c_str(), Options(run.threads, run.spin)));
    }
    return *sessions_.at(key);
  }

  void Loop(Ort::Session& session, const Run& run, double seconds, std::mutex& mutex,
            std::vector<double>& latencies) const {
    std::vector<int64_t> shape = {run.batch, 1};
    if (run.depth > 0) shape.push_back(run.depth);
    shape.insert(shape.end(), {run.height, run.width});
    // Pinned memory on both sides of a GPU.
    const Ort::MemoryInfo memory =
        cuda_ ? Ort::MemoryInfo("CudaPinned", OrtDeviceAllocator, device_, OrtMemTypeCPU)
              : Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
    const Ort::Allocator pinned = cuda_ ? Ort::Allocator(session, memory) : Ort::Allocator(nullptr);
    Ort::AllocatorWithDefaultOptions plain;
    const Ort::AllocatedStringPtr input_name = session.GetInputNameAllocated(0, plain);
    const Ort::AllocatedStringPtr output_name = session.GetOutputNameAllocated(0, plain);
    Ort::Value input = Ort::Value::CreateTensor<float>(
        cuda_ ? static_cast<OrtAllocator*>(pinned) : static_cast<OrtAllocator*>(plain), shape.data(),
        shape.size());
    auto* values = input.GetTensorMutableData<float>();
    const size_t count = input.GetTensorTypeAndShapeInfo().GetElementCount();
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 255) / 127 - 1;
    Ort::IoBinding binding(session);
    binding.BindOutput(output_name.get(), memory);
    const auto start = Clock::now();
    std::vector<double> own;
    do {
      const auto began = Clock::now();
      binding.BindInput(input_name.get(), input);
      session.Run(Ort::RunOptions(), binding);
      binding.SynchronizeOutputs();
      own.push_back(Seconds(began));
    } while (Seconds(start) < seconds);
    const std::lock_guard lock(mutex);
    latencies.insert(latencies.end(), own.begin(), own.end());
  }

  const Ort::Env env_;
  const std::string path_;
  const bool cuda_;
  const int device_;
  std::map<std::pair<int, int>, std::unique_ptr<Ort::Session>> sessions_;
};

std::string Answer(Raw& raw, const std::string& line) {
  std::istringstream words(line);
  std::string verb;
  words >> verb;
  if (verb == "run") {
    Run run;
    words >> run.lanes >> run.threads >> run.spin >> run.batch >> run.height >> run.width >> run.seconds;
    words >> run.depth;
    return raw.Measure(run);
  }
  int level = 0;
  std::string optimised;
  words >> level >> optimised;
  return raw.Load(level, optimised);
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) {
    std::cerr << "usage: raw_ort MODEL cpu|cuda [DEVICE]\n";
    return 2;
  }
  try {
    Raw raw(words[1], std::string(words[2]) == "cuda", count > 3 ? std::stoi(words[3]) : 0);
    for (std::string line; std::getline(std::cin, line);) std::cout << Answer(raw, line) << std::endl;
  } catch (const std::exception& e) {
    std::cerr << "raw_ort: " << e.what() << "\n";
    return 1;
  }
  return 0;
}
