#include "runtime/weights.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <optional>

namespace radserve {
namespace {

using Bytes = std::span<const std::byte>;

// Field numbers of onnx.proto.
constexpr uint64_t kModelGraph = 7;
constexpr uint64_t kGraphNode = 1;
constexpr uint64_t kGraphInitializer = 5;
constexpr uint64_t kNodeAttribute = 5;
constexpr uint64_t kAttributeTensor = 5;
constexpr uint64_t kAttributeGraph = 6;
constexpr uint64_t kTensorDims = 1;
constexpr uint64_t kTensorType = 2;
constexpr uint64_t kTypeFloat32 = 1;
constexpr uint64_t kTypeFloat16 = 10;

/// Bytes of an element by its number in TensorProto.DataType; 0 for texts and what is smaller than a byte.
constexpr std::array<uint64_t, 17> kElementBytes = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 8, 16, 2};

struct Field {
  uint64_t number = 0;
  /// What a field of a number holds.
  uint64_t value = 0;
  /// What a field of a message, a text or a packed list holds.
  Bytes bytes;
};

/// Reads a protobuf message field by field (protobuf.dev/programming-guides/encoding); ends where it is
/// broken.
class Message {
 public:
  explicit Message(Bytes bytes) : rest_(bytes) {}

  std::optional<Field> Next() {
    const std::optional<uint64_t> tag = Varint();
    if (!tag) return std::nullopt;
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
        return field;
      }
      case 5:
        return Take(4) ? std::optional(field) : std::nullopt;
      default:
        return std::nullopt;
    }
  }

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
  std::optional<Bytes> Take(uint64_t size) {
    if (size > rest_.size()) return std::nullopt;
    const Bytes taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }

  Bytes rest_;
};

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

void CountGraph(Bytes graph, WeightCount& count);

void CountNode(Bytes node, WeightCount& count) {
  Message message(node);
  while (const auto attribute = message.Next()) {
    if (attribute->number != kNodeAttribute) continue;
    Message parts(attribute->bytes);
    while (const auto part = parts.Next()) {
      if (part->number == kAttributeTensor) CountTensor(part->bytes, count);
      if (part->number == kAttributeGraph) CountGraph(part->bytes, count);
    }
  }
}

void CountGraph(Bytes graph, WeightCount& count) {
  Message message(graph);
  while (const auto field = message.Next()) {
    if (field->number == kGraphInitializer) CountTensor(field->bytes, count);
    if (field->number == kGraphNode) CountNode(field->bytes, count);
  }
}

}  // namespace

WeightCount CountWeights(std::span<const std::byte> model) {
  WeightCount count;
  Message message(model);
  while (const auto field = message.Next()) {
    if (field->number == kModelGraph) CountGraph(field->bytes, count);
  }
  return count;
}

WeightCount CountWeights(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  struct stat status {};
  const bool known = fstat(file, &status) == 0 && status.st_size > 0;
  const auto size = static_cast<size_t>(known ? status.st_size : 0);
  // Mapped, because only a few bytes of each tensor are looked at.
  void* memory = known ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  close(file);
  if (memory == MAP_FAILED) return {};
  const WeightCount count = CountWeights(Bytes(static_cast<const std::byte*>(memory), size));
  munmap(memory, size);
  return count;
}

}  // namespace radserve
