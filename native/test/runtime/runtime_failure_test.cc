#include "check.h"
#include "runtime/ort.h"

namespace {

using radserve::ClassifyFailure;
using radserve::HelpfulText;
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

TEST("places in the runtime's source are left out") {
  const std::string ort = "/onnxruntime_src/onnxruntime/core/";
  EQUAL(HelpfulText("Load model from /m/a.onnx failed:" + ort +
                    "graph/model.cc:177 onnxruntime::Model::Model(onnx::ModelProto&&, const "
                    "std::function<void(int)>&) ModelProto does not have a graph.\n"),
        "Load model from /m/a.onnx failed:ModelProto does not have a graph.");
  EQUAL(HelpfulText("Load model from /proc/self/fd/21 failed:Protobuf parsing failed."),
        "Protobuf parsing failed.");
  EQUAL(
      HelpfulText("Message: " + ort + "a.h:5 bool F(T) const [with T = char [4]] a (b) failed (c)"),
      "Message: a (b) failed (c)");
  EQUAL(HelpfulText(ort + "a.cc:5 int F(X)::<lambda(int)> a (b) c"), "a (b) c");
  EQUAL(HelpfulText("Message: " + ort + "a.cc:5 F"), "Message: F");
  EQUAL(HelpfulText("Message: matmul_helper.h:59 Compute MatMul dimension mismatch"),
        "Message: MatMul dimension mismatch");
  EQUAL(HelpfulText(Cuda(9, "invalid argument")),
        "Non-zero status code returned while running Conv node. Name:'c' Status Message: "
        "CUDA failure 9: invalid argument ; GPU=0");
  for (const std::string plain :
       {"", "In Node, (\"Conv_0\", Conv, \"\", -1) : (\"x\": tensor(float),) -> a ratio of 3:4",
        "a.cc:5", "/net/a.cc: b"})
    EQUAL(HelpfulText(plain), plain);
}
END;

}  // namespace
