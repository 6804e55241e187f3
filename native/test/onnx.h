#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// Tiny ONNX files by hand: a protobuf field is its number and kind, then its content.
namespace radserve::test {

inline std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(0x80 | (value & 0x7f));
  return out + static_cast<char>(value);
}

inline std::string Number(int field, uint64_t value) {
  return Varint(static_cast<uint64_t>(field) << 3) + Varint(value);
}

inline std::string Bytes(int field, const std::string& bytes) {
  return Varint(static_cast<uint64_t>(field) << 3 | 2) + Varint(bytes.size()) + bytes;
}

/// A float32 tensor of the graph; 0 stands for the dynamic side "n", -1 for one without a name.
inline std::string Value(const std::string& name, const std::vector<int64_t>& shape) {
  std::string sides;
  for (const int64_t side : shape) {
    const std::string dynamic = side == 0 ? Bytes(2, "n") : "";
    sides += Bytes(1, side > 0 ? Number(1, static_cast<uint64_t>(side)) : dynamic);
  }
  return Bytes(1, name) + Bytes(2, Bytes(1, Number(1, 1) + Bytes(2, sides)));
}

/// A float32 initializer; `content` has its bytes.
inline std::string Initializer(const std::string& name, const std::vector<int64_t>& shape,
                               const std::string& content) {
  std::string tensor;
  for (const int64_t side : shape) tensor += Number(1, static_cast<uint64_t>(side));
  return Bytes(5, tensor + Number(2, 1) + Bytes(8, name) + Bytes(9, content));
}

/// Bytes of a float32 tensor.
inline size_t BytesOf(const std::vector<int64_t>& shape) {
  size_t bytes = sizeof(float);
  for (const int64_t side : shape) bytes *= static_cast<size_t>(side);
  return bytes;
}

/// A float32 initializer that holds zeros.
inline std::string Zeros(const std::string& name, const std::vector<int64_t>& shape) {
  return Initializer(name, shape, std::string(BytesOf(shape), '\0'));
}

/// An int64 initializer without sides that is 0.
inline std::string WholeZero(const std::string& name) {
  return Bytes(5, Number(2, 7) + Bytes(8, name) + Bytes(9, std::string(sizeof(int64_t), '\0')));
}

/// x -> op -> y, the operator with one attribute of a whole number where `attribute` is no "".
inline std::string OneNode(const std::string& op, const std::vector<std::string>& inputs,
                           const std::vector<int64_t>& x, const std::vector<int64_t>& y,
                           const std::string& attribute = "", int64_t value = 0,
                           const std::string& initializers = "") {
  std::string node;
  for (const std::string& input : inputs) node += Bytes(1, input);
  node += Bytes(2, "y") + Bytes(3, "node") + Bytes(4, op);
  constexpr int kIntKind = 2;
  if (!attribute.empty()) {
    node += Bytes(
        5, Bytes(1, attribute) + Number(3, static_cast<uint64_t>(value)) + Number(20, kIntKind));
  }
  const std::string graph = Bytes(1, node) + Bytes(2, "test") + initializers +
                            Bytes(11, Value("x", x)) + Bytes(12, Value("y", y));
  return Number(1, 8) + Bytes(7, graph) + Bytes(8, Bytes(1, "") + Number(2, 17));
}

}  // namespace radserve::test
