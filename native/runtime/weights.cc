#include "runtime/weights.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "runtime/onnx_file.h"

namespace radserve {
namespace {

using onnx_file::All;
using onnx_file::Bytes;
using onnx_file::First;
using onnx_file::kGraphInitializer;
using onnx_file::kGraphInput;
using onnx_file::kGraphNode;
using onnx_file::kModelGraph;
using onnx_file::kNodeInput;
using onnx_file::kNodeOp;
using onnx_file::kTensorName;
using onnx_file::kValueName;
using onnx_file::MappedFile;
using onnx_file::Message;
using onnx_file::TextOf;

// Field numbers of onnx.proto.
constexpr uint64_t kTensorDims = 1;
constexpr uint64_t kTensorType = 2;
constexpr uint64_t kTensorRawData = 9;
constexpr uint64_t kTensorExternalData = 13;
constexpr uint64_t kTensorDataLocation = 14;
constexpr uint64_t kDataIsExternal = 1;
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

/// The fields of onnx.proto that lead to tensors. training_info is not among them: it is never read
/// to infer.
constexpr std::array<Step, 16> kSteps = {{{Kind::kModel, kModelGraph, Kind::kGraph},
                                          {Kind::kModel, 25, Kind::kFunction},
                                          {Kind::kFunction, 7, Kind::kNode},
                                          {Kind::kFunction, 11, Kind::kAttribute},
                                          {Kind::kGraph, kGraphNode, Kind::kNode},
                                          {Kind::kGraph, kGraphInitializer, Kind::kTensor},
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

/// Bytes of an element by its number in TensorProto.DataType; 0 for texts and what is smaller than
/// a byte.
constexpr std::array<uint64_t, 17> kElementBytes = {0, 4, 1, 1, 2, 2, 4,  8, 0,
                                                    1, 2, 8, 4, 8, 8, 16, 2};

/// Calls `see` with every tensor below a message. Returns false if something is broken, or too
/// deep.
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

/// Type and shape of a tensor.
struct Form {
  uint64_t type = 0;
  std::vector<int64_t> shape;

  uint64_t Elements() const {
    uint64_t elements = 1;
    for (const int64_t side : shape) elements *= static_cast<uint64_t>(side);
    return elements;
  }
  /// 0 of a type whose elements are no whole bytes.
  uint64_t Bytes() const {
    return type < kElementBytes.size() ? Elements() * kElementBytes[type] : 0;
  }
};

Form FormOf(Bytes tensor) {
  Form form;
  Message message(tensor);
  while (const auto field = message.Next()) {
    if (field->number == kTensorType) form.type = field->value;
    if (field->number != kTensorDims) continue;
    if (field->bytes.empty()) {
      form.shape.push_back(static_cast<int64_t>(field->value));
      continue;
    }
    Message packed(field->bytes);
    while (const auto side = packed.Varint()) form.shape.push_back(static_cast<int64_t>(*side));
  }
  return form;
}

void CountTensor(Bytes tensor, WeightCount& count) {
  const Form form = FormOf(tensor);
  count.bytes += form.Bytes();
  if (form.type == kTypeFloat32) count.float32 += form.Elements();
  if (form.type == kTypeFloat16) count.float16 += form.Elements();
}

/// Key and value of an entry of external_data.
std::pair<std::string_view, std::string_view> EntryOf(Bytes entry) {
  std::pair<std::string_view, std::string_view> found;
  Message message(entry);
  while (const auto part = message.Next()) {
    if (!part->has_bytes) continue;
    if (part->number == kEntryKey) found.first = TextOf(part->bytes);
    if (part->number == kEntryValue) found.second = TextOf(part->bytes);
  }
  return found;
}

/// Appends the `location` of a tensor's external data. Whether the tensor says that it uses it does
/// not matter.
void AppendLocations(Bytes tensor, std::set<std::string>& locations) {
  Message message(tensor);
  while (const auto field = message.Next()) {
    if (field->number != kTensorExternalData) continue;
    const auto [key, value] = EntryOf(field->bytes);
    if (key == "location") locations.emplace(value);
  }
}

void AppendVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(0x80 | (value & 0x7f));
  out += static_cast<char>(value);
}

void AppendField(std::string& out, uint64_t number, std::string_view content) {
  constexpr uint64_t kWithLength = 2;
  AppendVarint(out, number << 3 | kWithLength);
  AppendVarint(out, content.size());
  out += content;
}

/// Where a tensor's content lies. Writers may leave the length out, which then follows from shape
/// and type.
struct Outside {
  std::string location;
  uint64_t offset = 0;
  uint64_t length = 0;
};

uint64_t WholeNumber(std::string_view text) {
  uint64_t number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (fault != std::errc() || end != text.data() + text.size())
    throw std::runtime_error("a place in a file of weights is no whole number");
  return number;
}

/// nullopt if the tensor's content lies in the tensor.
std::optional<Outside> OutsideOf(Bytes tensor) {
  Outside outside{{}, 0, FormOf(tensor).Bytes()};
  bool external = false;
  Message message(tensor);
  while (const auto field = message.Next()) {
    if (field->number == kTensorDataLocation) external = field->value == kDataIsExternal;
    if (field->number != kTensorExternalData) continue;
    const auto [key, value] = EntryOf(field->bytes);
    if (key == "location") outside.location = PlainLocation(std::string(value));
    if (key == "offset") outside.offset = WholeNumber(value);
    if (key == "length") outside.length = WholeNumber(value);
  }
  return external ? std::optional(outside) : std::nullopt;
}

std::string_view ContentOf(const Outside& outside, const OutsideFiles& files) {
  const auto file = files.find(outside.location);
  if (file == files.end())
    throw std::runtime_error("the file of weights " + outside.location + " is missing");
  const std::string_view whole = file->second;
  if (outside.offset > whole.size() || outside.length > whole.size() - outside.offset)
    throw std::runtime_error("the file of weights " + outside.location +
                             " ends before its last tensor");
  return whole.substr(outside.offset, outside.length);
}

/// A tensor with its content inside, or still in its file.
std::string TensorWith(Bytes tensor, const OutsideFiles& files, bool inside) {
  const std::optional<Outside> outside = OutsideOf(tensor);
  if (!outside) return std::string(TextOf(tensor));
  std::string out;
  Message message(tensor);
  while (const auto field = message.Next()) {
    if (field->number != kTensorExternalData && (!inside || field->number != kTensorDataLocation))
      out += TextOf(field->whole);
  }
  const std::string_view content = ContentOf(*outside, files);
  if (inside) {
    AppendField(out, kTensorRawData, content);
    return out;
  }
  const auto append = [&out](std::string_view key, std::string_view value) {
    std::string entry;
    AppendField(entry, kEntryKey, key);
    AppendField(entry, kEntryValue, value);
    AppendField(out, kTensorExternalData, entry);
  };
  append("location", outside->location);
  append("offset", std::to_string(outside->offset));
  append("length", std::to_string(content.size()));
  return out;
}

/// ValueInfoProto of a tensor.
std::string InputOf(std::string_view name, const Form& form) {
  const auto append_number = [](std::string& out, uint64_t number, uint64_t value) {
    AppendVarint(out, number << 3);
    AppendVarint(out, value);
  };
  std::string shape;
  for (const int64_t side : form.shape) {
    std::string dimension;
    append_number(dimension, 1, static_cast<uint64_t>(side));
    AppendField(shape, 1, dimension);
  }
  std::string tensor;
  append_number(tensor, 1, form.type);
  AppendField(tensor, 2, shape);
  std::string type;
  AppendField(type, 1, tensor);
  std::string value;
  AppendField(value, kValueName, name);
  AppendField(value, 2, type);
  return value;
}

/// A message on the way to tensors, with these; `inputs` is that of WithoutWeights, or null; `all`
/// says whether initializers of the graph itself come inside too.
std::string MessageWith(Bytes bytes, Kind kind, int depth, const OutsideFiles& files,
                        std::set<std::string>* inputs, bool all) {
  constexpr int kDepthOfInitializers = 2;
  if (depth > kDeepest) throw std::runtime_error("its graphs lie too deep in each other");
  if (kind == Kind::kTensor) return TensorWith(bytes, files, all || depth != kDepthOfInitializers);
  std::set<std::string_view> given;
  if (inputs != nullptr && kind == Kind::kGraph) {
    for (const Bytes input : All(bytes, kGraphInput)) given.insert(First(input, kValueName));
  }
  std::string out;
  Message message(bytes);
  while (const auto field = message.Next()) {
    const auto* const step = std::ranges::find_if(
        kSteps, [&](const Step& each) { return each.from == kind && each.field == field->number; });
    if (step == kSteps.end() || !field->has_bytes) {
      out += TextOf(field->whole);
    } else if (const bool own = inputs != nullptr && step->to == Kind::kTensor &&
                                depth + 1 == kDepthOfInitializers;
               own && FormOf(field->bytes).Bytes() >= kLargeWeight) {
      const std::string_view name = First(field->bytes, kTensorName);
      if (const auto outside = OutsideOf(field->bytes)) ContentOf(*outside, files);
      inputs->emplace(name);
      if (!given.contains(name)) AppendField(out, kGraphInput, InputOf(name, FormOf(field->bytes)));
    } else {
      AppendField(out, field->number,
                  MessageWith(field->bytes, step->to, depth + 1, files, inputs, all));
    }
  }
  return out;
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
  if (!WalkTensors(model, Kind::kModel, 0,
                   [&](Bytes tensor) { AppendLocations(tensor, locations); }))
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

uint64_t BytesOfFactors(std::span<const std::byte> model) {
  uint64_t sum = 0;
  for (const Bytes graph : All(model, kModelGraph)) {
    std::set<std::string_view> factors;
    for (const Bytes node : All(graph, kGraphNode)) {
      const std::string_view op = First(node, kNodeOp);
      if (op != "MatMul" && op != "Gemm") continue;
      const std::vector<Bytes> inputs = All(node, kNodeInput);
      if (inputs.size() > 1) factors.insert(TextOf(inputs[1]));
    }
    for (const Bytes tensor : All(graph, kGraphInitializer)) {
      if (factors.contains(First(tensor, kTensorName))) sum += FormOf(tensor).Bytes();
    }
  }
  return sum;
}

std::vector<RawInitializer> RawInitializers(std::span<const std::byte> model, size_t least) {
  std::vector<RawInitializer> found;
  for (const Bytes graph : All(model, kModelGraph)) {
    std::set<std::string_view> inputs;
    for (const Bytes input : All(graph, kGraphInput)) inputs.insert(First(input, kValueName));
    for (const Bytes tensor : All(graph, kGraphInitializer)) {
      const std::string_view name = First(tensor, kTensorName);
      const std::vector<Bytes> contents = All(tensor, kTensorRawData);
      const Form form = FormOf(tensor);
      if (name.empty() || inputs.contains(name) || contents.empty()) continue;
      const Bytes content = contents.back();
      if (content.empty() || content.size() < least || content.size() != form.Bytes()) continue;
      found.push_back({std::string(name), form.type, form.shape, content});
    }
  }
  return found;
}

std::vector<RawInitializer> OutsideInitializers(std::span<const std::byte> model,
                                                const OutsideFiles& files, size_t most) {
  std::vector<RawInitializer> found;
  for (const Bytes graph : All(model, kModelGraph)) {
    for (const Bytes tensor : All(graph, kGraphInitializer)) {
      const Form form = FormOf(tensor);
      if (form.Bytes() <= most) continue;
      const std::optional<Outside> outside = OutsideOf(tensor);
      if (!outside) continue;
      const std::string_view content = ContentOf(*outside, files);
      if (content.size() != form.Bytes())
        throw std::runtime_error("a tensor in the file of weights " + outside->location +
                                 " has another length than its shape says");
      found.push_back({std::string(First(tensor, kTensorName)), form.type, form.shape,
                       std::as_bytes(std::span(content))});
    }
  }
  return found;
}

std::string PlainLocation(std::string location) {
  while (location.starts_with("./")) location.erase(0, 2);
  return location;
}

std::string WithConstantsInside(std::span<const std::byte> model, const OutsideFiles& files) {
  return MessageWith(model, Kind::kModel, 0, files, nullptr, false);
}

std::string WithAllInside(std::span<const std::byte> model, const OutsideFiles& files) {
  return MessageWith(model, Kind::kModel, 0, files, nullptr, true);
}

std::string WithoutWeights(std::span<const std::byte> model, const OutsideFiles& files,
                           std::set<std::string>& inputs) {
  return MessageWith(model, Kind::kModel, 0, files, &inputs, true);
}

}  // namespace radserve
