#include "runtime/weights.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>

namespace radserve {
namespace {

using Bytes = std::span<const std::byte>;

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

struct Field {
  uint64_t number = 0;
  /// What a field of a number holds.
  uint64_t value = 0;
  /// What a field of a message, a text or a packed list holds.
  Bytes bytes;
  bool has_bytes = false;
};

/// Reads a protobuf message field by field (protobuf.dev/programming-guides/encoding); ends if it is
/// broken.
class Message {
 public:
  explicit Message(Bytes bytes) : rest_(bytes) {}

  std::optional<Field> Next() {
    if (rest_.empty()) return std::nullopt;
    std::optional<Field> field = Read();
    broken_ = !field;
    return field;
  }

  /// Whether what Next came to last is no field.
  bool broken() const { return broken_; }

  std::optional<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return std::nullopt;
      const auto byte = std::to_integer<uint64_t>(rest_.front());
      rest_ = rest_.subspan(1);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

 private:
  std::optional<Field> Read() {
    const std::optional<uint64_t> tag = Varint();
    if (!tag || *tag > std::numeric_limits<uint32_t>::max()) return std::nullopt;
    Field field;
    field.number = *tag >> 3;
    switch (*tag & 7) {
      case 0:
        if (const auto value = Varint()) {
          field.value = *value;
          return field;
        }
        return std::nullopt;
      case 1:
        return Take(8) ? std::optional(field) : std::nullopt;
      case 2: {
        const std::optional<uint64_t> size = Varint();
        const auto bytes = size ? Take(*size) : std::nullopt;
        if (!bytes) return std::nullopt;
        field.bytes = *bytes;
        field.has_bytes = true;
        return field;
      }
      case 5:
        return Take(4) ? std::optional(field) : std::nullopt;
      default:
        return std::nullopt;
    }
  }

  std::optional<Bytes> Take(uint64_t size) {
    if (size > rest_.size()) return std::nullopt;
    const Bytes taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }

  Bytes rest_;
  bool broken_ = false;
};

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

std::string_view TextOf(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

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

/// A file in memory, mapped, because only a few bytes of each tensor are looked at. Empty if it cannot be read.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    struct stat status {};
    const bool known = fstat(file, &status) == 0 && status.st_size > 0;
    const auto size = static_cast<size_t>(known ? status.st_size : 0);
    void* memory = known ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    close(file);
    if (memory != MAP_FAILED) bytes_ = Bytes(static_cast<const std::byte*>(memory), size);
  }
  ~MappedFile() {
    if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  Bytes bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

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
