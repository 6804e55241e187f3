#include "runtime/mean.h"

#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/simd.h"

namespace radserve {
namespace {

std::span<float> Floats(Tensor& tensor) {
  return {reinterpret_cast<float*>(tensor.data), tensor.Elements()};
}

RADSERVE_HOT_LOOP void AddTo(float* __restrict sums, const float* __restrict values, size_t count) {
  for (size_t i = 0; i < count; ++i) sums[i] += values[i];
}

RADSERVE_HOT_LOOP void DivideBy(float* values, size_t count, float divisor) {
  for (size_t i = 0; i < count; ++i) values[i] /= divisor;
}

/// The tensor as float32, in its own memory if it is one already.
Tensor AsFloat32(Tensor tensor) {
  if (tensor.dtype == Dtype::kFloat32) return tensor;
  if (tensor.dtype != Dtype::kFloat16 && tensor.dtype != Dtype::kFloat64) {
    throw EngineError("output_invalid", "Expected numbers with a fraction in the output \"" +
                                            tensor.name + "\", of which a mean is taken; found " +
                                            std::string(DtypeName(tensor.dtype)) + ".");
  }
  const std::vector<float> values = AsFloats(tensor);
  Tensor floats = MakeTensorForOverwrite(tensor.name, Dtype::kFloat32, tensor.shape);
  if (!values.empty()) std::memcpy(floats.data, values.data(), floats.Bytes());
  return floats;
}

/// A tensor whose memory nobody else reads.
Tensor Copy(const Tensor& tensor) {
  Tensor copy = MakeTensorForOverwrite(tensor.name, tensor.dtype, tensor.shape);
  if (copy.Bytes() > 0) std::memcpy(copy.data, tensor.data, copy.Bytes());
  return copy;
}

class MeanBucket : public Bucket {
 public:
  MeanBucket(std::vector<std::unique_ptr<Bucket>> graphs, const BeforeMean& before)
      : graphs_(std::move(graphs)), before_(before) {}

  int64_t capacity() const override { return First().capacity(); }
  std::span<std::byte> Row(size_t input, int64_t row) override { return First().Row(input, row); }

  std::vector<RowInputs> Place(int64_t rows) override { return First().Place(rows); }

  bool RunRows(std::span<const RowInputs> rows, const std::stop_token& stop) override {
    bool copied = false;
    for (const auto& graph : graphs_) copied = graph->RunRows(rows, stop) || copied;
    return copied;
  }

  std::vector<Tensor> TakeRow(int64_t row) override {
    Mean mean(before_);
    for (const auto& graph : graphs_) {
      std::vector<Tensor> outputs = graph->TakeRow(row);
      // Tensors that a bucket lends may be asked for again.
      for (Tensor& output : outputs) output = Copy(output);
      mean.Add(std::move(outputs));
    }
    return mean.Take();
  }

  bool Shared() const override { return First().Shared(); }

  size_t Bytes() const override {
    size_t bytes = 0;
    for (const auto& graph : graphs_) bytes += graph->Bytes();
    return bytes;
  }

 private:
  Bucket& First() const { return *graphs_.front(); }

  const std::vector<std::unique_ptr<Bucket>> graphs_;
  /// A copy, because a bucket may outlive its session.
  const BeforeMean before_;
};

}  // namespace

void Mean::Add(std::vector<Tensor> outputs) {
  for (Tensor& output : outputs) {
    output = AsFloat32(std::move(output));
    if (before_) before_(output);
  }
  if (graphs_++ == 0) {
    sums_ = std::move(outputs);
    return;
  }
  for (size_t i = 0; i < sums_.size(); ++i) {
    Tensor& sum = sums_[i];
    if (outputs.at(i).shape != sum.shape) {
      throw EngineError("output_invalid",
                        "Expected outputs \"" + sum.name +
                            "\" of one shape from all graphs of the ensemble, found " +
                            ShapeText(sum.shape) + " and " + ShapeText(outputs[i].shape) + ".");
    }
    AddTo(Floats(sum).data(), Floats(outputs[i]).data(), sum.Elements());
  }
}

std::vector<Tensor> Mean::Take() {
  for (Tensor& sum : sums_)
    DivideBy(Floats(sum).data(), sum.Elements(), static_cast<float>(graphs_));
  return std::move(sums_);
}

std::unique_ptr<Bucket> MakeMeanBucket(std::vector<std::unique_ptr<Bucket>> graphs,
                                       const BeforeMean& before) {
  return std::make_unique<MeanBucket>(std::move(graphs), before);
}

}  // namespace radserve
