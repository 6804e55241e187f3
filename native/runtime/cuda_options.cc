#include "runtime/cuda_options.h"

namespace radserve {

std::unordered_map<std::string, std::string> CudaOptions(const SessionSettings& settings, bool graphs) {
  std::unordered_map<std::string, std::string> options = {
      {"device_id", std::to_string(settings.device)},
      // Plans by rule: trying every algorithm takes up to a second for each new shape.
      {"cudnn_conv_algo_search", "HEURISTIC"},
      {"do_copy_in_default_stream", "1"},
      {"arena_extend_strategy", "kSameAsRequested"},
      // On by default in the runtime. Without it a float16 graph gets no tensor cores.
      {"use_tf32", settings.precision == Precision::kFloat32 ? "0" : "1"},
      {"enable_cuda_graph", graphs ? "1" : "0"}};
  if (graphs && settings.device_memory > 0) options["gpu_mem_limit"] = std::to_string(settings.device_memory);
  return options;
}

}  // namespace radserve
