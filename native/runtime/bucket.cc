#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "runtime/cuda.h"
#include "runtime/session_state.h"

namespace radserve {
namespace {

std::vector<int64_t> WithRows(int64_t rows, const std::vector<int64_t>& shape) {
  std::vector<int64_t> out{rows};
  out.insert(out.end(), shape.begin(), shape.end());
  return out;
}

/// Throws OutOfMemory if so many bytes more are beyond what all models of the GPU may take. The
/// runtime holds an arena alone to that.
void CheckLimit(const SessionState& state, size_t bytes) {
  if (state.device_memory == 0) return;
  const size_t taken = TakenOfGpu(state.device) + bytes;
  if (taken <= state.device_memory) return;
  throw OutOfMemory("The models of GPU " + std::to_string(state.device) + " would take " +
                    std::to_string(taken) + " bytes of the " + std::to_string(state.device_memory) +
                    " that they may take.");
}

/// Memory of an allocator, apart from the chunks of its arena: a graph writes into chunks of the
/// device that are free by then, and copies from such chunks of pinned memory (where the parts of a
/// Concat are unequal, their addresses). Plain memory without an allocator, which lives by itself:
/// whoever still reads a result does not hold the weights. Throws OutOfMemory, Ort::Exception.
std::shared_ptr<std::byte> Allocate(const std::shared_ptr<Ort::Allocator>& allocator, int device,
                                    size_t bytes) {
  if (allocator == nullptr) {
    const auto plain = std::make_shared_for_overwrite<std::byte[]>(bytes);
    return {plain, plain.get()};
  }
  const CudaWork work;
  OrtAllocator* const from = *allocator;
  void* memory = nullptr;
  try {
    memory = from->Reserve(from, std::max<size_t>(bytes, 1));
  } catch (const std::exception& e) {
    // The runtime's own, through its interface in C.
    throw Ort::Exception(e.what(), ORT_FAIL);
  }
  if (memory == nullptr) throw OutOfMemory("CUDA has no " + std::to_string(bytes) + " bytes left.");
  const auto release = [owner = allocator, device](std::byte* taken) mutable {
    const CudaWork releasing;
    // See ~SessionState.
    if (!GpuLost(device)) owner->Free(taken);
    owner = nullptr;
  };
  return {static_cast<std::byte*>(memory), release};
}

/// Memory of the device; of the host without a device.
std::shared_ptr<std::byte> MakeDeviceMemory(const SessionState& state, size_t bytes) {
  CheckLimit(state, bytes);
  return Allocate(state.memory, state.device, bytes);
}

/// Throws bad_request if the graph cannot take batches of that shape.
void CheckFits(const TensorInfo& info, const std::vector<int64_t>& shape) {
  const auto fits = [](int64_t declared, int64_t side) {
    return declared == -1 || declared == side;
  };
  const bool positive =
      std::all_of(shape.begin(), shape.end(), [](int64_t side) { return side > 0; });
  if (positive &&
      std::equal(info.shape.begin(), info.shape.end(), shape.begin(), shape.end(), fits))
    return;
  throw EngineError("bad_request", "Expected the input \"" + info.name + "\" as " +
                                       ShapeText(info.shape) + ", found a batch of " +
                                       ShapeText(shape) + ".");
}

/// Rows in, rows out; how a run is made, the derived classes say.
class RowBucket : public Bucket {
 public:
  RowBucket(std::shared_ptr<SessionState> state, int64_t capacity,
            const std::vector<std::vector<int64_t>>& row_shapes,
            std::span<const std::string> outputs)
      : state_(std::move(state)),
        capacity_(capacity),
        output_names_(outputs.begin(), outputs.end()) {
    for (size_t i = 0; i < row_shapes.size(); ++i) {
      const TensorInfo& info = state_->facts.graph.inputs[i];
      inputs_.push_back(
          {info.name, info.dtype, WithRows(capacity, row_shapes[i]), nullptr, nullptr});
    }
  }

  int64_t capacity() const override { return capacity_; }

  std::span<std::byte> Row(size_t input, int64_t row) override {
    if (row < 0 || row >= capacity_)
      throw EngineError("internal", "There is no such row in the bucket.");
    MakePlace();
    return RowOf(inputs_.at(input), row);
  }

  std::vector<RowInputs> Place(int64_t rows) override {
    CheckFill(rows);
    MakePlace();
    std::vector<RowInputs> place(static_cast<size_t>(rows));
    for (int64_t row = 0; row < rows; ++row) {
      for (const Tensor& input : inputs_)
        place[static_cast<size_t>(row)].push_back(RowOf(input, row));
    }
    return place;
  }

  bool RunRows(std::span<const RowInputs> rows, const std::stop_token& stop) override {
    CheckFill(static_cast<int64_t>(rows.size()));
    for (const RowInputs& row : rows) {
      const auto fits = [this](std::span<const std::byte> given, const Tensor& input) {
        return given.size() == RowBytes(input);
      };
      if (!std::ranges::equal(row, inputs_, fits)) {
        throw EngineError("internal", "A row does not fit its bucket.");
      }
    }
    CheckGpu(state_->Gpu());
    outputs_.clear();
    bool copied = false;
    try {
      copied = Execute(rows, stop);
    } catch (const Ort::Exception& e) {
      ThrowRunFailure(e, state_->Gpu());
    }
    CheckOutputs(static_cast<int64_t>(rows.size()));
    return copied;
  }

  std::vector<Tensor> TakeRow(int64_t row) override {
    std::vector<Tensor> taken;
    for (const Tensor& output : outputs_) {
      Tensor out{output.name, output.dtype, output.shape, nullptr, nullptr};
      if (capacity_ > 1) out.shape.at(0) = 1;
      const std::span<std::byte> from = capacity_ > 1 ? RowOf(output, row) : Whole(output);
      out.owner = Lend();
      if (out.owner != nullptr) {
        out.data = from.data();
      } else {
        out = MakeTensorForOverwrite(std::move(out.name), out.dtype, std::move(out.shape));
        if (!from.empty()) std::memcpy(out.data, from.data(), from.size());
      }
      taken.push_back(std::move(out));
    }
    return taken;
  }

  size_t Bytes() const override {
    size_t bytes = 0;
    for (const Tensor& input : inputs_) bytes += input.data == nullptr ? 0 : input.Bytes();
    return bytes;
  }

 protected:
  /// Fills outputs_; see RunRows.
  virtual bool Execute(std::span<const RowInputs> rows, const std::stop_token& stop) = 0;
  /// Keeps the memory of the outputs as they are now; nullptr if they must be copied.
  virtual std::shared_ptr<void> Lend() { return nullptr; }

  const std::shared_ptr<SessionState> state_;
  const int64_t capacity_;
  const std::vector<std::string> output_names_;
  /// The place, [capacity, ...] each; without memory until a row of it is asked for.
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;

  void MakePlace() {
    for (Tensor& input : inputs_) {
      if (input.data != nullptr) continue;
      const std::shared_ptr<std::byte> bytes = MakeRows(*state_, input.Bytes());
      std::memset(bytes.get(), 0, input.Bytes());
      input.data = bytes.get();
      input.owner = bytes;
    }
  }

  /// Returns whether any of them lay elsewhere.
  bool CopyToPlace(std::span<const RowInputs> rows) {
    MakePlace();
    bool copied = false;
    for (size_t row = 0; row < rows.size(); ++row) {
      for (size_t i = 0; i < inputs_.size(); ++i) {
        const std::span<std::byte> to = RowOf(inputs_[i], static_cast<int64_t>(row));
        if (to.data() == rows[row][i].data()) continue;
        std::ranges::copy(rows[row][i], to.data());
        copied = true;
      }
    }
    return copied;
  }

  static size_t RowBytes(const Tensor& tensor) {
    return tensor.Bytes() / static_cast<size_t>(tensor.shape.at(0));
  }
  static std::span<std::byte> Whole(const Tensor& tensor) { return {tensor.data, tensor.Bytes()}; }
  static std::span<std::byte> RowOf(const Tensor& tensor, int64_t row) {
    const size_t bytes = RowBytes(tensor);
    return Whole(tensor).subspan(static_cast<size_t>(row) * bytes, bytes);
  }

 private:
  void CheckFill(int64_t rows) const {
    if (rows < 1 || rows > capacity_)
      throw EngineError("internal", "The batch does not fit its bucket.");
  }

  void CheckOutputs(int64_t rows) const {
    if (capacity_ == 1) return;
    for (const Tensor& output : outputs_) {
      if (!output.shape.empty() && output.shape[0] >= rows && output.shape[0] <= capacity_)
        continue;
      throw EngineError("output_invalid", "Expected one row of the output \"" + output.name +
                                              "\" for each of the " + std::to_string(rows) +
                                              " images of the batch, found " +
                                              ShapeText(output.shape) + ". Set batching.max to 1.");
    }
  }
};

/// Rows of less are copied together before the device fetches them: a copy that it makes costs the
/// host some microseconds.
constexpr size_t kFetchedBytes = size_t{32} << 10;

/// How many of the rows from `first` on have an input one right after the other.
size_t Neighbours(std::span<const RowInputs> rows, size_t input, size_t first) {
  size_t next = first + 1;
  while (next < rows.size() &&
         rows[next][input].data() == rows[next - 1][input].data() + rows[next - 1][input].size())
    ++next;
  return next - first;
}

bool Together(std::span<const RowInputs> rows) {
  for (size_t i = 0; i < rows.front().size(); ++i) {
    if (Neighbours(rows, i, 0) < rows.size()) return false;
  }
  return true;
}

/// Plain memory. A run takes only the rows that are there, because shapes cost nothing on a CPU.
class CpuBucket : public RowBucket {
 public:
  CpuBucket(std::shared_ptr<SessionState> state, int64_t capacity,
            const std::vector<std::vector<int64_t>>& row_shapes,
            std::span<const std::string> outputs)
      : RowBucket(std::move(state), capacity, row_shapes, outputs),
        fixed_(std::ranges::any_of(state_->facts.graph.inputs,
                                   [](const TensorInfo& info) { return info.shape.at(0) != -1; })) {
  }

 private:
  bool Execute(std::span<const RowInputs> rows, const std::stop_token& stop) override {
    const bool together =
        (!fixed_ || rows.size() == static_cast<size_t>(capacity_)) && Together(rows);
    const bool copied = !together && CopyToPlace(rows);
    if (fixed_ && !together) ClearPadding(rows.size());
    Ort::RunOptions options;
    const std::stop_callback terminate(stop, [&options] { options.SetTerminate(); });
    std::vector<Tensor> feeds = inputs_;
    for (size_t i = 0; i < feeds.size(); ++i) {
      // A feed is only read.
      if (together) feeds[i].data = const_cast<std::byte*>(rows.front()[i].data());
      if (!fixed_) feeds[i].shape[0] = static_cast<int64_t>(rows.size());
    }
    Ort::Session& session = state_->Pick(true);
    outputs_ = RunOnce(session, options, feeds, output_names_, {kNoGpu, state_->CacheOf(session)});
    return copied;
  }

  /// Rows of an earlier batch would make the same batch give other bits, if a model mixes its rows.
  void ClearPadding(size_t rows) const {
    for (const Tensor& input : inputs_) {
      std::ranges::fill(Whole(input).subspan(rows * RowBytes(input)), std::byte{0});
    }
  }

  const bool fixed_;
};

/// Runs on the device, between pinned memory of the host. Every run has the full capacity, because
/// cuDNN makes a new plan for every new shape. Inputs and outputs have a place each on the device;
/// where the session is the bucket's own and captures graphs, the second run is captured over them,
/// and every later one launches what was captured. Where a capture cannot begin, it is tried again
/// after twice as many runs.
class CudaBucket : public RowBucket {
 public:
  CudaBucket(std::shared_ptr<SessionState> state, int64_t capacity,
             const std::vector<std::vector<int64_t>>& row_shapes,
             std::span<const std::string> outputs)
      : RowBucket(std::move(state), capacity, row_shapes, outputs),
        host_(Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault)),
        device_(state_->stream
                    ? Ort::MemoryInfo("Cuda", OrtDeviceAllocator, state_->device, OrtMemTypeDefault)
                    : Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault)),
        binding_(state_->Pick(true)) {
    for (const std::string& name : output_names_) known_.push_back(KnownOutput(name));
  }

  ~CudaBucket() override {
    const CudaWork work;
    if (GpuLost(state_->Gpu())) {
      // See ~SessionState.
      static_cast<void>(binding_.release());
    } else {
      binding_ = Ort::IoBinding(nullptr);
    }
  }
  CudaBucket(const CudaBucket&) = delete;
  CudaBucket& operator=(const CudaBucket&) = delete;

  bool Shared() const override { return !state_->own; }

  size_t Bytes() const override {
    size_t bytes = RowBucket::Bytes();
    for (const auto& place : places_) bytes += place->Bytes();
    return bytes;
  }

 private:
  /// Where a run writes the outputs whose shape is known before it.
  struct OutputPlace {
    /// In the order of known_; without memory where it has nothing.
    std::vector<Tensor> outputs;
    /// Rows that somebody still reads.
    std::atomic<int64_t> lent = 0;

    size_t Bytes() const {
      size_t bytes = 0;
      for (const Tensor& output : outputs) bytes += output.data == nullptr ? 0 : output.Bytes();
      return bytes;
    }
  };

  /// The host gets the next batch while rows of the last ones are read in so many places.
  static constexpr ptrdiff_t kOutputPlaces = 3;
  /// The ids of runs that neither are captured nor launch a graph, and of the others.
  static constexpr int kNoGraph = -1;
  static constexpr int kGraph = 1;

  bool Execute(std::span<const RowInputs> rows, const std::stop_token& stop) override {
    CheckStop(stop);
    const bool copied = IsSmall(rows.front()) && !Together(rows) && CopyToPlace(rows);
    const std::lock_guard running(state_->running);
    std::vector<Ort::Value> results;
    {
      const CudaWork work;
      CopyIn(copied ? Place(static_cast<int64_t>(rows.size())) : rows);
      if (captured_) {
        Run(kGraph);
      } else {
        results = RunPlain(stop);
      }
    }
    if (!captured_ && state_->graphs && std::has_single_bit(++runs_) && runs_ > 1) Capture(results);
    const CudaWork work;
    OutputPlace& place = FreePlace();
    for (size_t i = 0; i < known_.size(); ++i) {
      if (known_[i])
        Move(place.outputs[i].data, Whole(outputs_on_device_[i]), &CudaStream::CopyOut);
    }
    if (state_->stream) state_->stream->Wait();
    for (size_t i = 0; i < known_.size(); ++i) {
      outputs_.push_back(known_[i] ? place.outputs[i]
                                   : FromValue(output_names_[i], std::move(results[i])));
    }
    return copied;
  }

  static bool IsSmall(const RowInputs& row) {
    size_t bytes = 0;
    for (const std::span<const std::byte> input : row) bytes += input.size();
    return bytes < kFetchedBytes;
  }

  /// The device itself fetches each row from where it lies, those that are neighbours at once, and
  /// has zeros after them: rows of an earlier batch would make the same batch give other bits, if a
  /// model mixes its rows.
  void CopyIn(std::span<const RowInputs> rows) {
    while (on_device_.size() < inputs_.size())
      on_device_.push_back(OnDevice(inputs_[on_device_.size()]));
    const size_t written = std::exchange(written_, static_cast<size_t>(capacity_));
    for (size_t i = 0; i < on_device_.size(); ++i) {
      const size_t bytes = RowBytes(on_device_[i]);
      for (size_t row = 0; row < rows.size();) {
        const size_t count = Neighbours(rows, i, row);
        Move(on_device_[i].data + row * bytes, {rows[row][i].data(), count * bytes},
             &CudaStream::CopyIn);
        row += count;
      }
      if (rows.size() < written)
        Clear(Whole(on_device_[i]).subspan(rows.size() * bytes, (written - rows.size()) * bytes));
    }
    written_ = rows.size();
  }

  /// A place on the device of that shape.
  Tensor OnDevice(const Tensor& like) const {
    const std::shared_ptr<std::byte> bytes = MakeDeviceMemory(*state_, like.Bytes());
    return {like.name, like.dtype, like.shape, bytes, bytes.get()};
  }

  void Move(std::byte* to, std::span<const std::byte> from,
            void (CudaStream::*copy)(void*, const void*, size_t) const) const {
    if (state_->stream) {
      ((*state_->stream).*copy)(to, from.data(), from.size());
    } else {
      std::ranges::copy(from, to);
    }
  }

  void Clear(std::span<std::byte> memory) const {
    if (state_->stream) {
      state_->stream->Clear(memory.data(), memory.size());
    } else {
      std::ranges::fill(memory, std::byte{0});
    }
  }

  /// Only a run without a graph may be stopped: what was captured of a run that ended early would
  /// be launched as whole.
  void Run(int graph, const std::stop_token& stop = {}) {
    Ort::RunOptions options;
    if (state_->graphs) options.AddConfigEntry("gpu_graph_id", std::to_string(graph).c_str());
    const std::stop_callback terminate(stop, [&options] { options.SetTerminate(); });
    state_->Pick(true).Run(options, binding_);
  }

  /// @returns on the CPU, the outputs whose shape is not known before
  std::vector<Ort::Value> RunPlain(const std::stop_token& stop) {
    for (const Tensor& input : on_device_)
      binding_.BindInput(input.name.c_str(), OverMemory(device_, input));
    outputs_on_device_.resize(known_.size());
    for (size_t i = 0; i < known_.size(); ++i) {
      if (known_[i]) {
        BindOutput(i);
      } else {
        // The outputs of the last run would stay bound and be written over.
        binding_.BindOutput(output_names_[i].c_str(), host_);
      }
    }
    Run(kNoGraph, stop);
    CheckLimit(*state_, 0);
    return binding_.GetOutputValues();
  }

  void BindOutput(size_t i) {
    Tensor& output = outputs_on_device_[i];
    if (output.data == nullptr) output = OnDevice(*known_[i]);
    binding_.BindOutput(output_names_[i].c_str(), OverMemory(device_, output));
  }

  /// `results` are what the run before gave, and are taken if this captures it: its shapes are
  /// those of every run that the graph will stand for, because what decides a shape by the content
  /// of a tensor waits for the device, and cannot be captured.
  void Capture(std::vector<Ort::Value>& results) {
    {
      const CudaWork work;
      for (size_t i = 0; i < known_.size(); ++i) {
        if (known_[i]) continue;
        const auto info = results[i].GetTensorTypeAndShapeInfo();
        const auto dtype = FromOrt(info.GetElementType());
        if (!dtype) return;
        outputs_on_device_[i] =
            OnDevice({output_names_[i], *dtype, info.GetShape(), nullptr, nullptr});
        BindOutput(i);
      }
    }
    const CudaCapture capture;
    if (!capture) return;
    try {
      Run(kGraph);
    } catch (const Ort::Exception& e) {
      if (ClassifyFailure(e.what()) == RuntimeFailure::kRun) throw NotCaptured(e.what());
      throw;
    }
    captured_ = true;
    for (size_t i = 0; i < known_.size(); ++i) {
      const Tensor& output = outputs_on_device_[i];
      known_[i] = Tensor{output.name, output.dtype, output.shape, nullptr, nullptr};
    }
    // They have no memory for what was not known.
    places_.clear();
  }

  OutputPlace& FreePlace() {
    auto free = std::ranges::find_if(places_, [](const auto& place) {
      return place->lent.load(std::memory_order_acquire) == 0;
    });
    if (free == places_.end()) {
      auto place = std::make_shared<OutputPlace>();
      for (const std::optional<Tensor>& known : known_) {
        Tensor output = known.value_or(Tensor());
        if (known) {
          const std::shared_ptr<std::byte> bytes = MakeRows(*state_, output.Bytes());
          output.data = bytes.get();
          output.owner = bytes;
        }
        place->outputs.push_back(std::move(output));
      }
      free = places_.insert(places_.end(), std::move(place));
    }
    // Rows of the last place are copied, so that slow readers hold no more of the memory.
    current_ = free - places_.begin() < kOutputPlaces ? *free : nullptr;
    return **free;
  }

  std::shared_ptr<void> Lend() override {
    const bool all_known =
        std::ranges::all_of(known_, [](const auto& known) { return known.has_value(); });
    if (current_ == nullptr || !all_known) return nullptr;
    current_->lent.fetch_add(1, std::memory_order_relaxed);
    return {current_.get(),
            [place = current_](void*) { place->lent.fetch_sub(1, std::memory_order_release); }};
  }

  /// The output if every side of it is a number or the size of the batch; without memory.
  std::optional<Tensor> KnownOutput(const std::string& name) const {
    const auto info = std::ranges::find(state_->facts.graph.outputs, name, &TensorInfo::name);
    if (info == state_->facts.graph.outputs.end() || info->shape.empty()) return std::nullopt;
    if (std::find(info->shape.begin() + 1, info->shape.end(), -1) != info->shape.end())
      return std::nullopt;
    Tensor output{name, info->dtype, info->shape, nullptr, nullptr};
    if (info->shape[0] != -1) return output;
    const TensorInfo& input = state_->facts.graph.inputs.at(0);
    if (info->names.at(0).empty() || input.names.empty() || info->names[0] != input.names[0])
      return std::nullopt;
    output.shape[0] = capacity_;
    return output;
  }

  const Ort::MemoryInfo host_;
  const Ort::MemoryInfo device_;
  Ort::IoBinding binding_;
  std::vector<Tensor> on_device_;
  /// One more than the highest row there that may hold anything but zeros.
  size_t written_ = static_cast<size_t>(capacity_);
  /// In the order of known_; without memory where that has nothing.
  std::vector<Tensor> outputs_on_device_;
  /// For each output, if its shape is known before a run.
  std::vector<std::optional<Tensor>> known_;
  bool captured_ = false;
  /// Of those without a graph.
  uint64_t runs_ = 0;
  std::vector<std::shared_ptr<OutputPlace>> places_;
  /// Where the last run wrote; nullptr if its rows must be copied.
  std::shared_ptr<OutputPlace> current_;
};

}  // namespace

std::shared_ptr<std::byte> MakeRows(const SessionState& state, size_t bytes) {
  try {
    return Allocate(state.pinned, state.device, bytes);
  } catch (const Ort::Exception& e) {
    ThrowRunFailure(e, state.Gpu());
  }
}

std::unique_ptr<Bucket> MakeCudaBucket(std::shared_ptr<SessionState> state, int64_t capacity,
                                       const std::vector<std::vector<int64_t>>& row_shapes,
                                       std::span<const std::string> outputs) {
  return std::make_unique<CudaBucket>(std::move(state), capacity, row_shapes, outputs);
}

std::unique_ptr<Bucket> MakeBucket(std::shared_ptr<SessionState> state, int64_t capacity,
                                   const std::vector<std::vector<int64_t>>& row_shapes,
                                   std::span<const std::string> outputs) {
  const std::vector<TensorInfo>& inputs = state->facts.graph.inputs;
  if (capacity < 1 || row_shapes.size() != inputs.size()) {
    throw EngineError("internal",
                      "Expected a bucket with room and one shape for each input of the model.");
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    CheckFits(inputs[i], WithRows(capacity, row_shapes[i]));
  const int gpu = state->Gpu();
  try {
    if (state->provider == Provider::kCuda) {
      return MakeCudaBucket(std::move(state), capacity, row_shapes, outputs);
    }
    return std::make_unique<CpuBucket>(std::move(state), capacity, row_shapes, outputs);
  } catch (const Ort::Exception& e) {
    ThrowRunFailure(e, gpu);
  }
}

}  // namespace radserve
