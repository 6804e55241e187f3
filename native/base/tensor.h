#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace radserve {

/// Element types of tensors. The names of those up to kBool, of which images are made, are those of
/// TensorType in src/base/tensor.ts; all of them are those of DataType in src/graph/types.ts.
enum class Dtype {
  kFloat32,
  kFloat16,
  kFloat64,
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kInt32,
  kInt64,
  kUint32,
  kBool,
  kUint64,
  kBfloat16,
  kString,
  kFloat8e4m3fn,
  kFloat8e4m3fnuz,
  kFloat8e5m2,
  kFloat8e5m2fnuz,
  kFloat8e8m0,
  kFloat4e2m1,
  kUint4,
  kInt4,
  kUint2,
  kInt2
};
inline constexpr size_t kDtypes = 24;

/// Whether elements can be read as floats: true of those that images are made of.
bool IsNumber(Dtype dtype);
/// Whether each element lies in bytes of its own, which can be copied: not so of text, and of
/// numbers of four or two bits.
bool HasPlainElements(Dtype dtype);

std::string_view DtypeName(Dtype dtype);
std::optional<Dtype> DtypeFromName(std::string_view name);
/// Bytes of one element. Of numbers of four or two bits, which share a byte, 1; of text, those of a
/// std::string.
size_t DtypeSize(Dtype dtype);
/// How many elements share a byte: 2 or 4 of those that are shorter than one, else 1.
size_t ElementsInByte(Dtype dtype);
/// Bytes of so many elements in memory.
size_t BytesOf(Dtype dtype, size_t elements);

/// A dense, row-major tensor. The bytes belong to `owner` (a vector, or an output of ONNX Runtime),
/// so that they move from stage to stage and on to JavaScript without a copy. Text is an array of
/// std::string.
struct Tensor {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  std::shared_ptr<void> owner;
  std::byte* data = nullptr;

  size_t Elements() const;
  size_t Bytes() const { return BytesOf(dtype, Elements()); }
  /// The elements of a tensor of text.
  std::span<std::string> Texts() const {
    return {reinterpret_cast<std::string*>(data), Elements()};
  }
};

/// Larger tensors are not made of images; a source of 16384 x 16384 in float fits.
inline constexpr double kMostTensorBytes = 2147483648.0;

/// A tensor with its own zeroed memory.
Tensor MakeTensor(std::string name, Dtype dtype, std::vector<int64_t> shape);
/// The same with whatever was in the memory before: for those who write every element.
Tensor MakeTensorForOverwrite(std::string name, Dtype dtype, std::vector<int64_t> shape);
/// A tensor of empty texts with its own memory.
Tensor MakeTexts(std::string name, std::vector<int64_t> shape);

/// Makes a tensor as MakeTensorForOverwrite does, wherever its reader wants it.
using TensorMaker =
    std::function<Tensor(std::string name, Dtype dtype, std::vector<int64_t> shape)>;

/// "[1,3,-1,224]", for messages.
std::string ShapeText(const std::vector<int64_t>& shape);

/// One tensor of the channels of several, one after the other, [1,...,C]. Throws no_model_accepts
/// if their other sides differ.
Tensor JoinChannels(std::span<const Tensor> parts, const TensorMaker& make);

/// One tensor [1,C,...] whose channels several write, each its own, so that nothing is copied when
/// they come together.
class SharedTensor {
 public:
  /// `channels` are those of all. The tensor itself is made by `make`, when the first part is asked
  /// for.
  SharedTensor(int64_t channels, TensorMaker make) : channels_(channels), make_(std::move(make)) {}
  /// The next channels, of the shape [1,c,...]. Throws no_model_accepts if the other sides differ
  /// from those of the first, or if the whole takes more than 2 GiB.
  Tensor Part(std::string name, Dtype dtype, std::vector<int64_t> shape);
  /// The whole. Channels that nobody asked for are 0.
  Tensor Take();

 private:
  int64_t channels_;
  TensorMaker make_;
  Tensor whole_;
  size_t given_ = 0;
};

/// The elements as floats, whatever the type.
std::vector<float> AsFloats(const Tensor& tensor);

/// IEEE 754 binary16, rounded to nearest, ties to even; beyond the range, infinity.
uint16_t ToHalf(float value);
float FromHalf(uint16_t half);

/// Whether a type of which images are made has a number that is `value` rounded: none is beyond its
/// range.
bool Holds(Dtype dtype, double value);

/// Writes one row of floats as elements of `dtype`: integers are rounded (ties to even) and
/// saturate. `stride` counts elements between neighbours in the destination.
void StoreRow(Dtype dtype, const float* row, size_t count, std::byte* destination, size_t stride);

/// Reads `count` elements as floats, from `first` on, `stride` (which may be negative) elements
/// from neighbour to neighbour.
void LoadRow(const Tensor& tensor, ptrdiff_t first, ptrdiff_t stride, size_t count, float* out);

}  // namespace radserve
