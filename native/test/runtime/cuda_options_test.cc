#include "runtime/cuda_options.h"

#include "check.h"

namespace {

using radserve::CudaOptions;
using radserve::Precision;
using radserve::SessionSettings;

TEST("TF32 is off where float32 was asked for") {
  SessionSettings settings;
  settings.device = 1;
  const auto options = CudaOptions(settings);
  EQUAL(options.at("use_tf32"), "0");
  EQUAL(options.at("cudnn_conv_algo_search"), "HEURISTIC");
  EQUAL(options.at("device_id"), "1");
}
END;

TEST("TF32 and float16 use the tensor cores") {
  for (const Precision precision : {Precision::kTf32, Precision::kFloat16}) {
    SessionSettings settings;
    settings.precision = precision;
    EQUAL(CudaOptions(settings).at("use_tf32"), "1");
  }
}
END;

}  // namespace
