#include "check.h"
#include "runtime/cuda.h"

namespace {

using radserve::CudaOptions;
using radserve::Precision;
using radserve::SessionSettings;

TEST("TF32 is off where float32 was asked for") {
  SessionSettings settings;
  settings.device = 1;
  const auto options = CudaOptions(settings, false);
  EQUAL(options.at("use_tf32"), "0");
  EQUAL(options.at("cudnn_conv_algo_search"), "HEURISTIC");
  EQUAL(options.at("device_id"), "1");
}
END;

TEST("TF32 and float16 use the tensor cores") {
  for (const Precision precision : {Precision::kTf32, Precision::kFloat16}) {
    SessionSettings settings;
    settings.precision = precision;
    EQUAL(CudaOptions(settings, false).at("use_tf32"), "1");
  }
}
END;

TEST("a session with graphs holds its own arena to the limit of the GPU") {
  SessionSettings settings;
  EQUAL(CudaOptions(settings, true).at("enable_cuda_graph"), "1");
  EQUAL(CudaOptions(settings, true).count("gpu_mem_limit"), size_t{0});
  settings.device_memory = 1000;
  EQUAL(CudaOptions(settings, true).at("gpu_mem_limit"), "1000");
  EQUAL(CudaOptions(settings, false).count("gpu_mem_limit"), size_t{0});
}
END;

}  // namespace
