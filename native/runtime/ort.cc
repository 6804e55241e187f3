#include "runtime/ort.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "base/error.h"
#include "runtime/cuda.h"
#include "runtime/nameless_file.h"
#include "runtime/run_memory.h"

namespace radserve {
namespace {

/// In the order of Dtype.
constexpr std::array<ONNXTensorElementDataType, kDtypes> kTypes = {
    ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,        ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,       ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,         ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,        ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,        ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,         ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,     ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FN, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FNUZ,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2,   ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2FNUZ,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E8M0,   ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT4E2M1,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT4,        ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT2,        ONNX_TENSOR_ELEMENT_DATA_TYPE_INT2};
static_assert(kTypes[static_cast<size_t>(Dtype::kInt2)] == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT2);

/// cudaError_t after which a context answers every call with the same error, and devices that are
/// gone.
constexpr std::array kLost = {46,    // devices unavailable
                              214,   // uncorrectable ECC error
                              220,   // uncorrectable NVLink error
                              700,   // illegal address
                              702,   // launch timeout
                              709,   // context is destroyed
                              710,   // assert
                              714,   // hardware stack error
                              715,   // illegal instruction
                              716,   // misaligned address
                              717,   // invalid address space
                              718,   // invalid program counter
                              719,   // launch failure
                              721,   // tensor memory leak
                              999};  // unknown
constexpr int kCudaOutOfMemory = 2;

/// The runtime's arena, and the status names of cuDNN and cuBLAS.
constexpr std::array<std::string_view, 6> kMemoryWords = {
    "Failed to allocate memory for requested buffer",
    "is smaller than requested bytes of",
    "out of memory",
    "ALLOC_FAILED",
    "ALLOCATION_FAILED",
    "bad_alloc"};

/// How the runtime begins to say that a node of the graph failed.
constexpr std::string_view kNodeFailed = "Non-zero status code returned while running";

/// The number in "CUDA failure 700: ...", or 0 if there is no number.
int CudaNumber(std::string_view message) {
  constexpr std::string_view kWords = "CUDA failure ";
  const size_t at = message.find(kWords);
  if (at == std::string_view::npos) return 0;
  const std::string_view rest = message.substr(at + kWords.size());
  int number = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), number);
  return number;
}

std::string Mebibytes(size_t bytes) {
  return std::to_string((bytes + (size_t{1} << 20) - 1) >> 20) + " MiB";
}

/// Throws OutOfMemory for a run of the CPU that was refused that, or was refused something that
/// nobody counts.
[[noreturn]] void ThrowRefused(const std::optional<RunRefusal>& refused) {
  const size_t limit = RunMemoryLimit();
  const std::string given = limit == 0 ? std::string("the machine has not as much left")
                                       : "all runs together may have " + Mebibytes(limit) + " here";
  const std::string needs =
      refused ? "its network needs " + Mebibytes(refused->bytes) + " or more at once, and " + given
              : "its network asked for more than there is";
  if (refused && !refused->alone)
    throw OutOfMemory("The model had no memory for this image: " + needs +
                          ", of which other images have some now. Send the request again.",
                      refused->bytes);
  throw MemoryExceeded("The model cannot have the memory for this image: " + needs +
                       ". Send a smaller image, give the server more memory, or correct the "
                       "network.");
}

}  // namespace

std::optional<Dtype> FromOrt(ONNXTensorElementDataType type) {
  const auto found = std::find(kTypes.begin(), kTypes.end(), type);
  return found == kTypes.end() ? std::nullopt
                               : std::optional(static_cast<Dtype>(found - kTypes.begin()));
}

ONNXTensorElementDataType ToOrt(Dtype dtype) { return kTypes[static_cast<size_t>(dtype)]; }

namespace {

Tensor TextsOf(std::string name, const Ort::Value& value, std::vector<int64_t> shape) {
  Tensor tensor = MakeTexts(std::move(name), std::move(shape));
  const std::span<std::string> texts = tensor.Texts();
  for (size_t i = 0; i < texts.size(); ++i) texts[i] = value.GetStringTensorElement(i);
  return tensor;
}

/// The number by which a tensor over memory is made. ONNX Runtime 1.29 takes it for one of
/// TensorProto.DataType, which has other numbers than ONNXTensorElementDataType for these three:
/// without this a tensor of uint2 is one of float8e8m0.
ONNXTensorElementDataType NumberForMaking(Dtype dtype) {
  constexpr int kFloat8e8m0 = 24;
  constexpr int kUint2 = 25;
  constexpr int kInt2 = 26;
  switch (dtype) {
    case Dtype::kFloat8e8m0:
      return static_cast<ONNXTensorElementDataType>(kFloat8e8m0);
    case Dtype::kUint2:
      return static_cast<ONNXTensorElementDataType>(kUint2);
    case Dtype::kInt2:
      return static_cast<ONNXTensorElementDataType>(kInt2);
    default:
      return ToOrt(dtype);
  }
}

Ort::Value ValueOfTexts(const Tensor& tensor) {
  const Ort::AllocatorWithDefaultOptions allocator;
  Ort::Value value = Ort::Value::CreateTensor(allocator, tensor.shape.data(), tensor.shape.size(),
                                              ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING);
  const std::span<std::string> texts = tensor.Texts();
  // By their lengths: text may hold a zero.
  for (size_t i = 0; i < texts.size(); ++i)
    std::ranges::copy(texts[i], value.GetResizedStringTensorElementBuffer(i, texts[i].size()));
  return value;
}

}  // namespace

Tensor FromValue(std::string name, Ort::Value value) {
  if (!value.IsTensor())
    throw EngineError("output_invalid", "The output \"" + name + "\" is no tensor.");
  const auto info = value.GetTensorTypeAndShapeInfo();
  const auto dtype = FromOrt(info.GetElementType());
  if (!dtype)
    throw EngineError("output_invalid",
                      "The output \"" + name + "\" is a tensor of a type that is not offered.");
  if (*dtype == Dtype::kString) return TextsOf(std::move(name), value, info.GetShape());
  auto owner = std::make_shared<Ort::Value>(std::move(value));
  auto* data = static_cast<std::byte*>(owner->GetTensorMutableRawData());
  return Tensor{std::move(name), *dtype, info.GetShape(), std::move(owner), data};
}

Ort::Value OverMemory(const Ort::MemoryInfo& where, const Tensor& tensor) {
  if (tensor.dtype == Dtype::kString) return ValueOfTexts(tensor);
  return Ort::Value::CreateTensor(where, tensor.data, tensor.Bytes(), tensor.shape.data(),
                                  tensor.shape.size(), NumberForMaking(tensor.dtype));
}

RuntimeFailure ClassifyFailure(std::string_view message) {
  const int number = CudaNumber(message);
  if (std::find(kLost.begin(), kLost.end(), number) != kLost.end())
    return RuntimeFailure::kDeviceLost;
  const auto in_message = [&](std::string_view words) {
    return message.find(words) != std::string_view::npos;
  };
  const bool memory = number == kCudaOutOfMemory ||
                      std::any_of(kMemoryWords.begin(), kMemoryWords.end(), in_message);
  return memory ? RuntimeFailure::kMemory : RuntimeFailure::kRun;
}

namespace {

/// Where the path of a place in the source begins that ends this word ("failed:/src/a.cc:5",
/// "a.h:5"); npos if none does.
size_t PlaceIn(std::string_view word) {
  constexpr std::array<std::string_view, 5> kSources = {".cc", ".h", ".cu", ".cuh", ".cpp"};
  const size_t colon = word.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == word.size()) return std::string_view::npos;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!std::ranges::all_of(word.substr(colon + 1), is_digit)) return std::string_view::npos;
  const std::string_view path = word.substr(0, colon);
  const auto ends_path = [&](std::string_view ending) { return path.ends_with(ending); };
  if (!std::ranges::any_of(kSources, ends_path)) return std::string_view::npos;
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? 0 : slash;
}

/// The length of the bracketed part that `text` begins with; its own if it does not end.
size_t BracketLength(std::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']' && --depth == 0) return i + 1;
  }
  return text.size();
}

/// The length of the declaration of a function as compilers print it ("void F<int>(int) const [with
/// T = int]"), which `text` begins with; 0 if that is not seen.
size_t SignatureLength(std::string_view text) {
  constexpr std::string_view kConst = " const";
  int depth = 0;
  size_t opened = 0;
  for (size_t i = 0; i < text.size() && text[i] != '\n'; ++i) {
    const char c = text[i];
    if ((c == '(' || c == '<') && depth++ == 0) opened = i;
    if ((c != ')' && c != '>') || depth == 0 || --depth > 0) continue;
    const std::string_view rest = text.substr(i + 1);
    const bool lambda = text.substr(opened).starts_with("<lambda");
    if ((c != ')' && !lambda) || (!rest.empty() && rest.front() != ' ')) continue;
    size_t length = i + 1;
    if (rest.starts_with(kConst)) length += kConst.size();
    if (text.substr(length).starts_with(" [with "))
      length += 1 + BracketLength(text.substr(length + 1));
    return length;
  }
  return 0;
}

}  // namespace

std::string HelpfulText(std::string_view message) {
  constexpr std::string_view kLoad = "Load model from ";
  constexpr std::string_view kFailed = " failed:";
  if (message.starts_with(kLoad) && message.substr(kLoad.size()).starts_with(kNamelessFolder)) {
    const size_t failed = message.find(kFailed);
    if (failed != std::string_view::npos) message.remove_prefix(failed + kFailed.size());
  }
  // What CUDA's failures end with: the machine's name, file, line and call.
  message = message.substr(0, message.find(" ; hostname="));
  std::string text;
  size_t end = 0;
  while ((end = message.find(' ')) != std::string_view::npos) {
    const std::string_view word = message.substr(0, end);
    const size_t place = PlaceIn(word);
    message.remove_prefix(end + 1);
    if (place == std::string_view::npos) {
      text.append(word).append(" ");
      continue;
    }
    // After a whole path stands the function's declaration, after a file's name its name alone
    const size_t function = word[place] == '/' ? SignatureLength(message) : message.find(' ');
    text += word.substr(0, place);
    if (function < message.size()) message.remove_prefix(function);
    if (message.starts_with(' ')) message.remove_prefix(1);
  }
  text += message;
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
}

void CheckGpu(int gpu) {
  if (gpu == kNoGpu || !GpuLost(gpu)) return;
  throw EngineError("model_unavailable", "GPU " + std::to_string(gpu) +
                                             " was lost; restart the server to use it again.");
}

void ThrowRunFailure(const Ort::Exception& e, int gpu) {
  const std::string what = e.what();
  switch (ClassifyFailure(what)) {
    case RuntimeFailure::kDeviceLost:
      LoseGpu(gpu, what);
      break;
    case RuntimeFailure::kMemory:
      if (gpu != kNoGpu)
        throw OutOfMemory("The memory did not suffice to run the model: " + HelpfulText(what), 0);
      ThrowRefused(RefusedInLastRun());
    case RuntimeFailure::kRun:
      break;
  }
  CheckGpu(gpu);
  // On a CPU a node fails for the same input each time; a GPU may have its own reasons
  const bool of_input = gpu == kNoGpu && what.find(kNodeFailed) != std::string::npos;
  throw EngineError(of_input ? "output_invalid" : "internal",
                    "The model could not run: " + HelpfulText(what));
}

namespace {

/// A graph whose output is an input gives the memory that was fed: the caller's, which he may write
/// into or let go of when the run has ended. Of that the result has a copy.
void OwnIfFed(Tensor& result, std::span<const Tensor> feeds) {
  if (result.dtype == Dtype::kString || result.Bytes() == 0) return;
  const auto is_fed = [&](const Tensor& feed) {
    return std::less_equal()(feed.data, result.data) &&
           std::less()(result.data, feed.data + feed.Bytes());
  };
  if (std::ranges::none_of(feeds, is_fed)) return;
  Tensor own = MakeTensorForOverwrite(result.name, result.dtype, result.shape);
  std::memcpy(own.data, result.data, result.Bytes());
  result = std::move(own);
}

}  // namespace

std::vector<Tensor> RunOnce(Ort::Session& session, const Ort::RunOptions& run,
                            std::span<const Tensor> feeds, std::span<const std::string> outputs,
                            const RunPlace& place) {
  try {
    CheckGpu(place.gpu);
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    std::vector<const char*> input_names;
    std::vector<const char*> output_names;
    std::vector<Ort::Value> inputs;
    for (const Tensor& feed : feeds) {
      input_names.push_back(feed.name.c_str());
      inputs.push_back(OverMemory(memory, feed));
    }
    for (const std::string& name : outputs) output_names.push_back(name.c_str());
    const RunScope scope(place.cache);
    std::vector<Ort::Value> values =
        session.Run(run, input_names.data(), inputs.data(), inputs.size(), output_names.data(),
                    output_names.size());
    std::vector<Tensor> results;
    for (size_t i = 0; i < values.size(); ++i) {
      results.push_back(FromValue(outputs[i], std::move(values[i])));
      OwnIfFed(results.back(), feeds);
    }
    return results;
  } catch (const Ort::Exception& e) {
    ThrowRunFailure(e, place.gpu);
  }
}

}  // namespace radserve
