#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Reads .onnx files field by field, where a few fields of a large file are wanted.
namespace radserve::onnx_file {

using Bytes = std::span<const std::byte>;

// Field numbers of onnx.proto.
constexpr uint64_t kModelGraph = 7;
constexpr uint64_t kGraphNode = 1;
constexpr uint64_t kGraphInitializer = 5;
constexpr uint64_t kGraphInput = 11;
constexpr uint64_t kGraphOutput = 12;
constexpr uint64_t kTensorName = 8;
constexpr uint64_t kValueName = 1;
constexpr uint64_t kNodeInput = 1;
constexpr uint64_t kNodeOutput = 2;
constexpr uint64_t kNodeOp = 4;

struct Field {
  uint64_t number = 0;
  /// The value of a field of a number.
  uint64_t value = 0;
  /// The bytes of a field of a message, a text or a packed list.
  Bytes bytes;
  bool has_bytes = false;
  /// The field as it stands in its message, with its number.
  Bytes whole;
};

/// Reads a protobuf message field by field (protobuf.dev/programming-guides/encoding); ends if it
/// is broken.
class Message {
 public:
  explicit Message(Bytes bytes) : rest_(bytes) {}

  std::optional<Field> Next() {
    if (rest_.empty()) return std::nullopt;
    const Bytes from = rest_;
    std::optional<Field> field = Read();
    broken_ = !field;
    if (field) field->whole = from.first(from.size() - rest_.size());
    return field;
  }

  /// Whether what Next came to last is no field.
  bool broken() const { return broken_; }

  std::optional<uint64_t> Varint();

 private:
  std::optional<Field> Read();
  std::optional<Bytes> Take(uint64_t size);

  Bytes rest_;
  bool broken_ = false;
};

inline std::string_view TextOf(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<Bytes> All(Bytes message, uint64_t number);

/// The text in the first of them; "" if there is none.
std::string_view First(Bytes message, uint64_t number);

/// A file in memory, mapped, because only a few bytes of each tensor are looked at. Empty if it
/// cannot be read.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  Bytes bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

}  // namespace radserve::onnx_file
