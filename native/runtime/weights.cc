#include "runtime/weights.h"

#include <array>
#include <functional>
#include <optional>
#include <string_view>

#include "runtime/onnx_file.h"

namespace radserve {
namespace {

using onnx_file::Bytes;
using onnx_file::MappedFile;
using onnx_file::Message;
using onnx_file::TextOf;

// Field numbers of onnx.proto.
constexpr uint64_t kModelGraph = 7;
constexpr uint64_t kTensorDims = 1;
constexpr uint64_t kTensorType = 2;
constexpr uint64_t kTensorExternalData = 13;
constexpr uint64_t kEntryKey = 1;
constexpr uint64_t kEntryValue = 2;
constexpr uint64_t kTypeFloat32 = 1;
constexpr uint64_t kTypeFloat16 = 10;

/// Messages on the way from a model to its tensors.
enum class Kind { kModel, kFunction, kGraph, kNode, kAttribute, kSparseTensor, kTensor };

struct Step {
  Kind from;
  uint64_t field;
  Kind to;
};

/// The fields of onnx.proto that lead to tensors. training_info is not among them: it is never read to infer.
constexpr std::array<Step, 16> kSteps = {{{Kind::kModel, kModelGraph, Kind::kGraph},
                                          {Kind::kModel, 25, Kind::kFunction},
                                          {Kind::kFunction, 7, Kind::kNode},
                                          {Kind::kFunction, 11, Kind::kAttribute},
                                          {Kind::kGraph, 1, Kind::kNode},
                                          {Kind::kGraph, 5, Kind::kTensor},
                                          {Kind::kGraph, 15, Kind::kSparseTensor},
                                          {Kind::kNode, 5, Kind::kAttribute},
                                          {Kind::kAttribute, 5, Kind::kTensor},
                                          {Kind::kAttribute, 6, Kind::kGraph},
                                          {Kind::kAttribute, 10, Kind::kTensor},
                                          {Kind::kAttribute, 11, Kind::kGraph},
                                          {Kind::kAttribute, 22, Kind::kSparseTensor},
                                          {Kind::kAttribute, 23, Kind::kSparseTensor},
                                          {Kind::kSparseTensor, 1, Kind::kTensor},
                                          {Kind::kSparseTensor, 2, Kind::kTensor}}};

/// protobuf reads no deeper by itself.
constexpr int kDeepest = 100;

/// Bytes of an element by its number in TensorProto.DataType; 0 for texts and what is smaller than a byte.
constexpr std::array<uint64_t, 17> kElementBytes = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 8, 16, 2};

/// Calls `see` with every tensor below a message. Returns false if something is broken, or too deep.
bool WalkTensors(Bytes bytes, Kind kind, int depth, const std::function<void(Bytes)>& see) {
  if (depth > kDeepest) return false;
  if (kind == Kind::kTensor) see(bytes);
  Message message(bytes);
  bool whole = true;
  while (const auto field = message.Next()) {
    for (const Step& step : kSteps) {
      if (step.from != kind || step.field != field->number) continue;
      whole = WalkTensors(field->bytes, step.to, depth + 1, see) && whole;
    }
  }
  return whole && !message.broken();
}

void CountTensor(Bytes tensor, WeightCount& count) {
  uint64_t type = 0;
  uint64_t elements = 1;
  Message message(tensor);
  while (const auto field = message.Next()) {
    if (field->number == kTensorType) type = field->value;
    if (field->number != kTensorDims) continue;
    if (field->bytes.empty()) {
      elements *= field->value;
      continue;
    }
    Message packed(field->bytes);
    while (const auto side = packed.Varint()) elements *= *side;
  }
  if (type < kElementBytes.size()) count.bytes += elements * kElementBytes[type];
  if (type == kTypeFloat32) count.float32 += elements;
  if (type == kTypeFloat16) count.float16 += elements;
}

/// Appends the `location` of a tensor's external data. Whether the tensor says that it uses it does not matter.
void AppendLocations(Bytes tensor, std::set<std::string>& locations) {
  Message message(tensor);
  while (const auto field = message.Next()) {
    if (field->number != kTensorExternalData) continue;
    std::string_view key;
    std::string_view value;
    Message entry(field->bytes);
    while (const auto part = entry.Next()) {
      if (!part->has_bytes) continue;
      if (part->number == kEntryKey) key = TextOf(part->bytes);
      if (part->number == kEntryValue) value = TextOf(part->bytes);
    }
    if (key == "location") locations.emplace(value);
  }
}

}  // namespace

WeightCount CountWeights(std::span<const std::byte> model) {
  WeightCount count;
  WalkTensors(model, Kind::kModel, 0, [&](Bytes tensor) { CountTensor(tensor, count); });
  return count;
}

WeightCount CountWeights(const std::string& path) { return CountWeights(MappedFile(path).bytes()); }

std::optional<std::set<std::string>> ExternalLocations(std::span<const std::byte> model) {
  std::set<std::string> locations;
  if (!WalkTensors(model, Kind::kModel, 0, [&](Bytes tensor) { AppendLocations(tensor, locations); }))
    return std::nullopt;
  // Without a graph it is another format, whose bytes happen to be fields.
  Message message(model);
  while (const auto field = message.Next()) {
    if (field->number == kModelGraph) return locations;
  }
  return std::nullopt;
}

std::optional<std::set<std::string>> ExternalLocations(const std::string& path) {
  return ExternalLocations(MappedFile(path).bytes());
}

}  // namespace radserve
