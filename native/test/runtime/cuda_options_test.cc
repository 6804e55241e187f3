#include "runtime/cuda_options.h"

#include "check.h"

namespace {

using radserve::CudaOptions;
using radserve::Precision;
using radserve::SessionSettings;

TEST("without a limit none is set, and TF32 is off where float32 was asked for") {
  const auto options = CudaOptions({}, 1000);
  EQUAL(options.count("gpu_mem_limit"), size_t{0});
  EQUAL(options.at("use_tf32"), "0");
  EQUAL(options.at("cudnn_conv_algo_search"), "HEURISTIC");
  EQUAL(options.at("device_id"), "0");
}
END;

TEST("the limit is for runs, beside the weights") {
  SessionSettings settings;
  settings.device = 1;
  settings.device_memory = size_t{8} << 30;
  const auto options = CudaOptions(settings, size_t{10} << 30);
  EQUAL(options.at("gpu_mem_limit"), std::to_string(size_t{18} << 30));
  EQUAL(options.at("device_id"), "1");
}
END;

TEST("TF32 and float16 use the tensor cores") {
  for (const Precision precision : {Precision::kTf32, Precision::kFloat16}) {
    SessionSettings settings;
    settings.precision = precision;
    EQUAL(CudaOptions(settings, 0).at("use_tf32"), "1");
  }
}
END;

}  // namespace
