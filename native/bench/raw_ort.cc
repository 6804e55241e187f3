// The rival of the engine in benches: ONNX Runtime in a plain loop, nothing round it. Reads
// commands from standard input, a line each, and answers each with a line of JSON, so that a bench
// can take turns between it and the engine.
//
//   raw_ort MODEL cpu|cuda [DEVICE [OPTION=VALUE...]]
//
// The options are the CUDA provider's, in place of what is set here. With enable_cuda_graph=1 each
// lane has a session of its own, whose runs are captured before the time begins.
//
//   run LANES THREADS SPIN BATCH HEIGHT WIDTH SECONDS [DEPTH]
//     LANES threads call Run on one session with THREADS intra-op threads, on a tensor of one
//     channel; with DEPTH of a volume. Answers images a second, the latency in ms and the resident
//     KiB. On a GPU a run copies its input there and its output back.
//   load LEVEL [OPTIMISED]
//     Answers the ms to make a session at that optimisation level (0 or 99) from MODEL; writes the
//     optimised model or, with level 0, reads it.
#include <dlfcn.h>
#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
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

/// cudaMemcpy of the runtime that the provider has loaded.
void CopyOnGpu(void* to, const void* from, size_t bytes) {
  static auto* const copy = [] {
    void* runtime = dlopen("libcudart.so.13", RTLD_NOW);
    return reinterpret_cast<int (*)(void*, const void*, size_t, int)>(
        runtime == nullptr ? nullptr : dlsym(runtime, "cudaMemcpy"));
  }();
  constexpr int kByAddresses = 4;
  if (copy == nullptr || copy(to, from, bytes, kByAddresses) != 0)
    throw std::runtime_error("cudaMemcpy failed");
}

using CudaOptions = std::unordered_map<std::string, std::string>;

class Raw {
 public:
  Raw(std::string path, bool cuda, CudaOptions options)
      : env_(ORT_LOGGING_LEVEL_FATAL, "raw"),
        path_(std::move(path)),
        cuda_(cuda),
        cuda_options_(std::move(options)),
        graphs_(cuda_options_["enable_cuda_graph"] == "1") {}

  Ort::SessionOptions Options(int threads, int spin) const {
    Ort::SessionOptions options;
    options.SetExecutionMode(ORT_SEQUENTIAL);
    options.SetInterOpNumThreads(1);
    options.SetIntraOpNumThreads(threads);
    options.AddConfigEntry("session.intra_op.allow_spinning", spin != 0 ? "1" : "0");
    if (cuda_) {
      CudaOptions given = {{"cudnn_conv_algo_search", "HEURISTIC"}, {"use_tf32", "0"}};
      for (const auto& [name, value] : cuda_options_) {
        if (!value.empty()) given[name] = value;
      }
      Ort::CUDAProviderOptions cuda;
      cuda.Update(given);
      options.AppendExecutionProvider_CUDA_V2(*cuda);
    }
    return options;
  }

  std::string Measure(const Run& run) {
    if (!graphs_) SessionFor(run);
    std::mutex mutex;
    std::vector<double> latencies;
    std::string failure;
    double used = 0;
    Clock::time_point start;
    // Every lane has run, outside of the time: memory, plans and graphs of a new shape.
    std::barrier ready(run.lanes, [&]() noexcept {
      used = ProcessorSeconds();
      start = Clock::now();
    });
    std::vector<std::jthread> lanes;
    for (int lane = 0; lane < run.lanes; ++lane) {
      lanes.emplace_back([&] {
        try {
          std::optional<Lane> own;
          std::exception_ptr failed;
          try {
            // One at a time: nothing may run beside a capture.
            const std::lock_guard lock(mutex);
            own.emplace(*this, run);
          } catch (...) {
            failed = std::current_exception();
          }
          ready.arrive_and_wait();
          if (failed) std::rethrow_exception(failed);
          std::vector<double> times;
          do {
            const auto began = Clock::now();
            own->RunOnce();
            times.push_back(Seconds(began));
          } while (Seconds(start) < run.seconds);
          const std::lock_guard lock(mutex);
          latencies.insert(latencies.end(), times.begin(), times.end());
        } catch (const std::exception& e) {
          const std::lock_guard lock(mutex);
          failure = e.what();
        }
      });
    }
    lanes.clear();
    if (!failure.empty()) throw std::runtime_error(failure);
    const double elapsed = Seconds(start);
    const double processor = ProcessorSeconds() - used;
    std::sort(latencies.begin(), latencies.end());
    const auto quantile = [&](double q) {
      return latencies[std::min(latencies.size() - 1, static_cast<size_t>(q * latencies.size()))] *
             1000;
    };
    std::ostringstream out;
    const auto images = static_cast<double>(latencies.size() * run.batch);
    out << "{\"rate\":" << images / elapsed << ",\"cpu_us\":" << processor * 1e6 / images
        << ",\"p50\":" << quantile(0.5) << ",\"p95\":" << quantile(0.95)
        << ",\"p99\":" << quantile(0.99) << ",\"rss_kib\":" << ResidentKib() << "}";
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
      sessions_.emplace(
          key, std::make_unique<Ort::Session>(env_, path_.c_str(), Options(run.threads, run.spin)));
    }
    return *sessions_.at(key);
  }

  /// One thread's input, output and, with graphs, session.
  class Lane {
   public:
    Lane(Raw& raw, const Run& run)
        : own_(raw.graphs_ ? std::make_unique<Ort::Session>(raw.env_, raw.path_.c_str(),
                                                            raw.Options(run.threads, run.spin))
                           : nullptr),
          session_(own_ ? *own_ : raw.SessionFor(run)),
          binding_(session_),
          graphs_(raw.graphs_) {
      std::vector<int64_t> shape = {run.batch, 1};
      if (run.depth > 0) shape.push_back(run.depth);
      shape.insert(shape.end(), {run.height, run.width});
      const Ort::AllocatorWithDefaultOptions plain;
      input_name_ = session_.GetInputNameAllocated(0, plain).get();
      output_name_ = session_.GetOutputNameAllocated(0, plain).get();
      input_ = HostTensor(raw.cuda_, shape);
      auto* values = input_.GetTensorMutableData<float>();
      const size_t count = input_.GetTensorTypeAndShapeInfo().GetElementCount();
      for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 255) / 127 - 1;
      binding_.BindInput(input_name_.c_str(), input_);
      // On a GPU, too: the runtime copies there, but not into memory that it is told is pinned.
      binding_.BindOutput(output_name_.c_str(),
                          Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault));
      if (graphs_) options_.AddConfigEntry("gpu_graph_id", "-1");
      RunOnce();
      if (graphs_) Capture(shape);
    }

    void RunOnce() {
      if (on_device_) {
        CopyOnGpu(on_device_.GetTensorMutableRawData(), input_.GetTensorRawData(), input_bytes_);
        session_.Run(options_, binding_);
        CopyOnGpu(output_.GetTensorMutableRawData(), output_on_device_.GetTensorRawData(),
                  output_bytes_);
        return;
      }
      binding_.BindInput(input_name_.c_str(), input_);
      session_.Run(options_, binding_);
      binding_.SynchronizeOutputs();
    }

   private:
    /// Pinned for a GPU.
    Ort::Value HostTensor(bool cuda, const std::vector<int64_t>& shape,
                          ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) {
      Ort::AllocatorWithDefaultOptions plain;
      if (!cuda) return Ort::Value::CreateTensor(plain, shape.data(), shape.size(), type);
      if (!pinned_)
        pinned_ = Ort::Allocator(
            session_, Ort::MemoryInfo("CudaPinned", OrtDeviceAllocator, 0, OrtMemTypeCPU));
      const int64_t bytes = Bytes(shape, type);
      memory_.push_back(
          Ort::Value::CreateTensor(pinned_, &bytes, 1, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8));
      // Over it a tensor of the CPU: what is said to be pinned the runtime takes for the device's.
      return Ort::Value::CreateTensor(
          Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault),
          memory_.back().GetTensorMutableRawData(), static_cast<size_t>(bytes), shape.data(),
          shape.size(), type);
    }

    static int64_t Bytes(const std::vector<int64_t>& shape, ONNXTensorElementDataType type) {
      int64_t bytes = type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 ? 2 : 4;
      for (const int64_t side : shape) bytes *= side;
      return bytes;
    }

    void Capture(const std::vector<int64_t>& shape) {
      const auto info = binding_.GetOutputValues().at(0).GetTensorTypeAndShapeInfo();
      const std::vector<int64_t> output_shape = info.GetShape();
      const ONNXTensorElementDataType type = info.GetElementType();
      device_ = Ort::Allocator(session_,
                               Ort::MemoryInfo("Cuda", OrtDeviceAllocator, 0, OrtMemTypeDefault));
      on_device_ = Ort::Value::CreateTensor(device_, shape.data(), shape.size(),
                                            ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
      output_on_device_ =
          Ort::Value::CreateTensor(device_, output_shape.data(), output_shape.size(), type);
      output_ = HostTensor(true, output_shape, type);
      input_bytes_ = static_cast<size_t>(Bytes(shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT));
      output_bytes_ = static_cast<size_t>(Bytes(output_shape, type));
      binding_.BindInput(input_name_.c_str(), on_device_);
      binding_.BindOutput(output_name_.c_str(), output_on_device_);
      options_.AddConfigEntry("gpu_graph_id", "1");
      RunOnce();
    }

    const std::unique_ptr<Ort::Session> own_;
    Ort::Session& session_;
    Ort::Allocator pinned_{nullptr};
    Ort::Allocator device_{nullptr};
    std::vector<Ort::Value> memory_;
    Ort::Value input_{nullptr};
    Ort::Value on_device_{nullptr};
    Ort::Value output_{nullptr};
    Ort::Value output_on_device_{nullptr};
    size_t input_bytes_ = 0;
    size_t output_bytes_ = 0;
    Ort::IoBinding binding_;
    Ort::RunOptions options_;
    std::string input_name_;
    std::string output_name_;
    const bool graphs_;
  };

  const Ort::Env env_;
  const std::string path_;
  const bool cuda_;
  CudaOptions cuda_options_;
  const bool graphs_;
  std::map<std::pair<int, int>, std::unique_ptr<Ort::Session>> sessions_;
};

std::string Answer(Raw& raw, const std::string& line) {
  std::istringstream words(line);
  std::string verb;
  words >> verb;
  if (verb == "run") {
    Run run;
    words >> run.lanes >> run.threads >> run.spin >> run.batch >> run.height >> run.width >>
        run.seconds;
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
    std::cerr << "usage: raw_ort MODEL cpu|cuda [DEVICE [OPTION=VALUE...]]\n";
    return 2;
  }
  try {
    CudaOptions options = {{"device_id", count > 3 ? words[3] : "0"}};
    for (int i = 4; i < count; ++i) {
      const std::string option = words[i];
      const size_t equals = option.find('=');
      options[option.substr(0, equals)] =
          equals == std::string::npos ? "" : option.substr(equals + 1);
    }
    Raw raw(words[1], std::string(words[2]) == "cuda", options);
    for (std::string line; std::getline(std::cin, line);)
      std::cout << Answer(raw, line) << std::endl;
  } catch (const std::exception& e) {
    std::cerr << "raw_ort: " << e.what() << "\n";
    return 1;
  }
  return 0;
}
