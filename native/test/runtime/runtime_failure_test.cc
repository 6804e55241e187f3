#include "check.h"
#include "runtime/ort.h"

namespace {

using radserve::ClassifyFailure;
using radserve::RuntimeFailure;

/// The form that ONNX Runtime gives failures of CUDA calls.
std::string Cuda(int number, const std::string& text) {
  return "Non-zero status code returned while running Conv node. Name:'c' Status Message: CUDA "
         "failure " +
         std::to_string(number) + ": " + text +
         " ; GPU=0 ; hostname=box ; file=/src/cuda_call.cc ; line=133 ; "
         "expr=cudaStreamSynchronize(); ";
}

TEST("too little memory is told from other failures") {
  const std::string arena =
      "/bfc_arena.cc:359 Failed to allocate memory for requested buffer of size 4294967296";
  const std::string limit = "Available memory of 1024 is smaller than requested bytes of 802816";
  CHECK(ClassifyFailure(arena) == RuntimeFailure::kMemory);
  CHECK(ClassifyFailure(limit) == RuntimeFailure::kMemory);
  CHECK(ClassifyFailure(Cuda(2, "out of memory")) == RuntimeFailure::kMemory);
  CHECK(ClassifyFailure("CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0") ==
        RuntimeFailure::kMemory);
  CHECK(
      ClassifyFailure("CUDNN failure 4005: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED") ==
      RuntimeFailure::kMemory);
}
END;

TEST("a broken context is told from a failed run") {
  CHECK(ClassifyFailure(Cuda(700, "an illegal memory access was encountered")) ==
        RuntimeFailure::kDeviceLost);
  CHECK(ClassifyFailure(Cuda(719, "unspecified launch failure")) == RuntimeFailure::kDeviceLost);
  CHECK(ClassifyFailure(Cuda(46, "all CUDA-capable devices are busy or unavailable")) ==
        RuntimeFailure::kDeviceLost);
  CHECK(ClassifyFailure(Cuda(9, "invalid configuration argument")) == RuntimeFailure::kRun);
  CHECK(ClassifyFailure(Cuda(209, "no kernel image is available")) == RuntimeFailure::kRun);
  CHECK(ClassifyFailure("Exiting due to terminate flag being set to true.") ==
        RuntimeFailure::kRun);
  CHECK(ClassifyFailure("") == RuntimeFailure::kRun);
  CHECK(ClassifyFailure("CUDA failure ") == RuntimeFailure::kRun);
}
END;

}  // namespace
