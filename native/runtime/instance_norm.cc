#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "base/simd.h"
#include "runtime/ort.h"

namespace radserve {
namespace {

/// Values that one task takes; fixed, so that the sums are the same on any number of threads.
constexpr size_t kPart = size_t{1} << 14;
constexpr size_t kLanes = 8;

/// Of values and of their squares.
using Sums = std::array<double, 2>;

RADSERVE_HOT_LOOP Sums SumsOf(const float* values, size_t count) {
  double sums[2][kLanes] = {};
  for (size_t i = 0; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[0][lane] += double{values[i + lane]};
    for (size_t lane = 0; lane < kLanes; ++lane)
      sums[1][lane] += double{values[i + lane]} * double{values[i + lane]};
  }
  for (size_t i = count / kLanes * kLanes; i < count; ++i) {
    sums[0][0] += double{values[i]};
    sums[1][0] += double{values[i]} * double{values[i]};
  }
  Sums all{};
  for (size_t lane = 0; lane < kLanes; ++lane)
    all = {all[0] + sums[0][lane], all[1] + sums[1][lane]};
  return all;
}

struct Kernel {
  float epsilon = 1e-5F;

  void Compute(OrtKernelContext* given) const {
    const Ort::KernelContext context(given);
    const std::vector<int64_t> shape = context.GetInput(0).GetTensorTypeAndShapeInfo().GetShape();
    const auto elements = context.GetInput(0).GetTensorTypeAndShapeInfo().GetElementCount();
    for (const size_t of_channels : {size_t{1}, size_t{2}}) {
      const auto info = context.GetInput(of_channels).GetTensorTypeAndShapeInfo();
      if (shape.size() < 3 || info.GetShape() != std::vector{shape[1]})
        throw Ort::Exception("Expected a scale and a bias for each channel.", ORT_INVALID_ARGUMENT);
    }
    const auto* values = context.GetInput(0).GetTensorData<float>();
    const auto* scales = context.GetInput(1).GetTensorData<float>();
    const auto* biases = context.GetInput(2).GetTensorData<float>();
    auto* out = context.GetOutput(0, shape).GetTensorMutableData<float>();
    if (elements == 0) return;
    const auto channels = static_cast<size_t>(shape[1]);
    const size_t maps = static_cast<size_t>(shape[0]) * channels;
    const size_t size = elements / maps;
    const size_t parts = (size + kPart - 1) / kPart;
    std::vector<Sums> sums(maps * parts);
    const auto for_parts = [&](const auto& work) {
      const auto call = [&](size_t i) {
        const size_t begin = i % parts * kPart;
        work(i, i / parts * size + begin, std::min(kPart, size - begin));
      };
      const auto on_thread = [](void* data, size_t i) { (*static_cast<decltype(&call)>(data))(i); };
      context.ParallelFor(on_thread, sums.size(), 0,
                          const_cast<void*>(static_cast<const void*>(&call)));
    };
    for_parts([&](size_t i, size_t at, size_t count) { sums[i] = SumsOf(values + at, count); });
    for_parts([&](size_t i, size_t at, size_t count) {
      Sums means{};
      for (size_t part = i / parts * parts; part < (i / parts + 1) * parts; ++part) {
        for (size_t k = 0; k < 2; ++k) means[k] += sums[part][k] / static_cast<double>(size);
      }
      const size_t channel = i / parts % channels;
      // In this order, what is no number stays none: of what was infinite nothing finite comes.
      const double variance = std::max(means[1] - means[0] * means[0], 0.0);
      const double exact = scales[channel] / std::sqrt(variance + epsilon);
      const auto scale = static_cast<float>(exact);
      const auto shift = static_cast<float>(biases[channel] - means[0] * exact);
      for (size_t k = at; k < at + count; ++k) out[k] = values[k] * scale + shift;
    });
  }
};

struct InstanceNorm : Ort::CustomOpBase<InstanceNorm, Kernel> {
  InstanceNorm() {
    // The wrapper knows no sides that have a name.
    InferOutputShapeFn = [](const OrtCustomOp*, OrtShapeInferContext* context) -> OrtStatusPtr {
      OrtTensorTypeAndShapeInfo* shape = nullptr;
      size_t sides = 0;
      const OrtApi& api = Ort::GetApi();
      OrtStatusPtr status = api.ShapeInferContext_GetInputTypeShape(context, 0, &shape);
      if (status == nullptr) status = api.GetDimensionsCount(shape, &sides);
      // None stand for a shape that is not known.
      if (status != nullptr || sides == 0) return status;
      std::vector<int64_t> lengths(sides);
      std::vector<const char*> names(sides);
      status = api.GetDimensions(shape, lengths.data(), sides);
      if (status == nullptr) status = api.GetSymbolicDimensions(shape, names.data(), sides);
      if (status != nullptr) return status;
      // A side that has neither a length nor a name would have the length -1 then, as all of them,
      // and memory of another one's.
      for (size_t i = 0; i < sides; ++i) {
        if (lengths[i] < 0 && names[i][0] == '\0') return nullptr;
      }
      return api.ShapeInferContext_SetOutputTypeShape(context, 0, shape);
    };
  }
  static void* CreateKernel(const OrtApi& api, const OrtKernelInfo* info) {
    auto kernel = std::make_unique<Kernel>();
    // One that is left out has the default of the operator.
    const Ort::Status read(api.KernelInfoGetAttribute_float(info, "epsilon", &kernel->epsilon));
    return kernel.release();
  }
  static const char* GetName() { return "InstanceNormalization"; }
  static size_t GetInputTypeCount() { return 3; }
  static size_t GetOutputTypeCount() { return 1; }
  static ONNXTensorElementDataType GetInputType(size_t) {
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  }
  static ONNXTensorElementDataType GetOutputType(size_t) {
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  }
};

}  // namespace

void AddInstanceNorm(Ort::SessionOptions& options) {
  static const InstanceNorm op;
  // Leaked, as sessions may be.
  static auto& domain = *new Ort::CustomOpDomain("");
  static const bool added = (domain.Add(&op), true);
  if (added) options.Add(domain);
}

}  // namespace radserve
