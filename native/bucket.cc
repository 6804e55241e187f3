#include "bucket.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <utility>

#include "error.h"
#include "session_state.h"

namespace radserve {
namespace {

std::vector<int64_t> WithRows(int64_t rows, const std::vector<int64_t>& shape) {
  std::vector<int64_t> out{rows};
  out.insert(out.end(), shape.begin(), shape.end());
  return out;
}

/// Throws bad_request where the graph cannot take batches of that shape.
void CheckFits(const TensorInfo& info, const std::vector<int64_t>& shape) {
  const auto fits = [](int64_t declared, int64_t side) { return declared == -1 || declared == side; };
  const bool positive = std::all_of(shape.begin(), shape.end(), [](int64_t side) { return side > 0; });
  if (positive && std::equal(info.shape.begin(), info.shape.end(), shape.begin(), shape.end(), fits)) return;
  throw EngineError("bad_request", "Expected the input \"" + info.name + "\" as " + ShapeText(info.shape) +
                                       ", found a batch of " + ShapeText(shape) + ".");
}

/// Rows in, rows out; how a run is made, the derived classes say.
class RowBucket : public Bucket {
 public:
  RowBucket(std::shared_ptr<SessionState> state, int64_t capacity, std::span<const std::string> outputs)
      : state_(std::move(state)), capacity_(capacity), output_names_(outputs.begin(), outputs.end()) {}

  int64_t capacity() const override { return capacity_; }

  std::span<std::byte> Row(size_t input, int64_t row) override {
    if (row < 0 || row >= capacity_) throw EngineError("internal", "There is no such row in the bucket.");
    int64_t high = written_;
    while (high <= row && !written_.compare_exchange_weak(high, row + 1)) continue;
    return RowOf(inputs_.at(input), row);
  }

  void Run(int64_t rows, const std::stop_token& stop) override {
    if (rows < 1 || rows > capacity_) throw EngineError("internal", "The batch does not fit its bucket.");
    ClearPadding(rows);
    outputs_.clear();
    try {
      Ort::RunOptions options;
      const std::stop_callback terminate(stop, [&options] { options.SetTerminate(); });
      Execute(rows, options);
    } catch (const Ort::Exception& e) {
      ThrowRunFailure(e);
    }
    CheckOutputs(rows);
  }

  std::vector<Tensor> TakeRow(int64_t row) override {
    std::vector<Tensor> taken;
    for (const Tensor& output : outputs_) {
      std::vector<int64_t> shape = output.shape;
      if (capacity_ > 1) shape.at(0) = 1;
      Tensor copy = MakeTensorForOverwrite(output.name, output.dtype, std::move(shape));
      const std::span<std::byte> from = capacity_ > 1 ? RowOf(output, row) : Whole(output);
      if (!from.empty()) std::memcpy(copy.data, from.data(), from.size());
      taken.push_back(std::move(copy));
    }
    return taken;
  }

 protected:
  /// Fills outputs_.
  virtual void Execute(int64_t rows, const Ort::RunOptions& options) = 0;

  const std::shared_ptr<SessionState> state_;
  const int64_t capacity_;
  const std::vector<std::string> output_names_;
  /// [capacity, ...]; what they own is never moved.
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;

 private:
  static std::span<std::byte> Whole(const Tensor& tensor) { return {tensor.data, tensor.Bytes()}; }

  static std::span<std::byte> RowOf(const Tensor& tensor, int64_t row) {
    const size_t bytes = tensor.Bytes() / static_cast<size_t>(tensor.shape.at(0));
    return Whole(tensor).subspan(static_cast<size_t>(row) * bytes, bytes);
  }

  /// Rows of an earlier batch would make the same batch give other bits, where a model mixes its rows.
  void ClearPadding(int64_t rows) {
    for (int64_t row = rows; row < written_; ++row) {
      for (const Tensor& input : inputs_) std::ranges::fill(RowOf(input, row), std::byte{0});
    }
    written_ = rows;
  }

  void CheckOutputs(int64_t rows) const {
    if (capacity_ == 1) return;
    for (const Tensor& output : outputs_) {
      if (!output.shape.empty() && output.shape[0] >= rows && output.shape[0] <= capacity_) continue;
      throw EngineError("output_invalid", "Expected one row of the output \"" + output.name +
                                              "\" for each of the " + std::to_string(rows) +
                                              " images of the batch, found " + ShapeText(output.shape) +
                                              ". Set batching.max to 1.");
    }
  }

  /// One more than the highest row that holds anything but zeros.
  std::atomic<int64_t> written_ = 0;
};

/// Plain memory. A run takes only the rows that are there, because shapes cost nothing on a CPU.
class CpuBucket : public RowBucket {
 public:
  CpuBucket(std::shared_ptr<SessionState> state, int64_t capacity,
            const std::vector<std::vector<int64_t>>& row_shapes, std::span<const std::string> outputs)
      : RowBucket(std::move(state), capacity, outputs) {
    const GraphInfo& graph = state_->graph;
    for (size_t i = 0; i < row_shapes.size(); ++i) {
      const TensorInfo& info = graph.inputs[i];
      inputs_.push_back(MakeTensor(info.name, info.dtype, WithRows(capacity, row_shapes[i])));
      fixed_ = fixed_ || info.shape.at(0) != -1;
    }
  }

  void SetWide(bool wide) override { wide_ = wide; }

 private:
  void Execute(int64_t rows, const Ort::RunOptions& options) override {
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
    std::vector<const char*> input_names;
    std::vector<const char*> output_names;
    std::vector<Ort::Value> values;
    for (const Tensor& input : inputs_) {
      Tensor part = input;
      if (!fixed_) part.shape[0] = rows;
      input_names.push_back(input.name.c_str());
      values.push_back(OverMemory(memory, part));
    }
    for (const std::string& name : output_names_) output_names.push_back(name.c_str());
    std::vector<Ort::Value> results = state_->Pick(wide_).Run(
        options, input_names.data(), values.data(), values.size(), output_names.data(), output_names.size());
    for (size_t i = 0; i < results.size(); ++i) {
      outputs_.push_back(FromValue(output_names_[i], std::move(results[i])));
    }
  }

  bool fixed_ = false;
  bool wide_ = false;
};

/// Memory that the device itself reads and writes, bound once. Every run has the full capacity, because cuDNN
/// makes a new plan for every new shape.
class BoundBucket : public RowBucket {
 public:
  BoundBucket(std::shared_ptr<SessionState> state, int64_t capacity,
              const std::vector<std::vector<int64_t>>& row_shapes, std::span<const std::string> outputs,
              Ort::MemoryInfo memory)
      : RowBucket(std::move(state), capacity, outputs),
        memory_(std::move(memory)),
        allocator_(state_->Pick(true), memory_),
        binding_(state_->Pick(true)) {
    const GraphInfo& graph = state_->graph;
    for (size_t i = 0; i < row_shapes.size(); ++i) {
      const TensorInfo& info = graph.inputs[i];
      const std::vector<int64_t> shape = WithRows(capacity, row_shapes[i]);
      values_.push_back(Ort::Value::CreateTensor(allocator_, shape.data(), shape.size(), ToOrt(info.dtype)));
      auto* data = static_cast<std::byte*>(values_.back().GetTensorMutableRawData());
      inputs_.push_back(Tensor{info.name, info.dtype, shape, nullptr, data});
      std::memset(data, 0, inputs_.back().Bytes());
    }
    for (const std::string& name : output_names_) {
      binding_.BindOutput(name.c_str(), memory_);
      keeps_shape_.push_back(KeepsShape(name));
    }
  }

 private:
  void Execute(int64_t, const Ort::RunOptions& options) override {
    // Binding is what copies to the device (IOBinding::BindInput), so it is done anew for every run.
    for (size_t i = 0; i < values_.size(); ++i) binding_.BindInput(inputs_[i].name.c_str(), values_[i]);
    for (size_t i = 0; i < output_names_.size(); ++i) {
      // What a run gives stays bound and takes the next run's output, which must have the same shape.
      if (!keeps_shape_[i]) binding_.BindOutput(output_names_[i].c_str(), memory_);
    }
    binding_.SynchronizeInputs();
    state_->Pick(true).Run(options, binding_);
    binding_.SynchronizeOutputs();
    std::vector<Ort::Value> results = binding_.GetOutputValues();
    for (size_t i = 0; i < results.size(); ++i) {
      outputs_.push_back(FromValue(output_names_[i], std::move(results[i])));
    }
  }

  /// Every side of the output is a number or the size of the batch.
  bool KeepsShape(const std::string& name) const {
    const auto info = std::ranges::find(state_->graph.outputs, name, &TensorInfo::name);
    if (info == state_->graph.outputs.end() || info->shape.empty()) return false;
    if (std::find(info->shape.begin() + 1, info->shape.end(), -1) != info->shape.end()) return false;
    if (info->shape[0] != -1) return true;
    const TensorInfo& input = state_->graph.inputs.at(0);
    return !info->names.at(0).empty() && !input.names.empty() && info->names[0] == input.names[0];
  }

  const Ort::MemoryInfo memory_;
  // Before the values that it gives memory to.
  Ort::Allocator allocator_;
  std::vector<Ort::Value> values_;
  Ort::IoBinding binding_;
  /// For each output.
  std::vector<bool> keeps_shape_;
};

}  // namespace

std::unique_ptr<Bucket> MakeBoundBucket(std::shared_ptr<SessionState> state, int64_t capacity,
                                        const std::vector<std::vector<int64_t>>& row_shapes,
                                        std::span<const std::string> outputs, Ort::MemoryInfo memory) {
  return std::make_unique<BoundBucket>(std::move(state), capacity, row_shapes, outputs, std::move(memory));
}

std::unique_ptr<Bucket> MakeBucket(std::shared_ptr<SessionState> state, int64_t capacity,
                                   const std::vector<std::vector<int64_t>>& row_shapes,
                                   std::span<const std::string> outputs) {
  const std::vector<TensorInfo>& inputs = state->graph.inputs;
  if (capacity < 1 || row_shapes.size() != inputs.size()) {
    throw EngineError("internal", "Expected a bucket with room and one shape for each input of the model.");
  }
  for (size_t i = 0; i < inputs.size(); ++i) CheckFits(inputs[i], WithRows(capacity, row_shapes[i]));
  try {
    if (state->provider == Provider::kCuda) {
      Ort::MemoryInfo pinned("CudaPinned", OrtDeviceAllocator, state->device, OrtMemTypeCPU);
      return MakeBoundBucket(std::move(state), capacity, row_shapes, outputs, std::move(pinned));
    }
    return std::make_unique<CpuBucket>(std::move(state), capacity, row_shapes, outputs);
  } catch (const Ort::Exception& e) {
    ThrowRunFailure(e);
  }
}

}  // namespace radserve
