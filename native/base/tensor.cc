#include "base/tensor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/simd.h"

namespace radserve {
namespace {

template <typename T>
float Widened(T value) {
  return static_cast<float>(value);
}

struct Half {
  uint16_t bits;
};

float Widened(Half half) { return FromHalf(half.bits); }

template <typename T>
void Load(const std::byte* data, ptrdiff_t first, ptrdiff_t stride, size_t count, float* out) {
  const std::byte* at = data + first * static_cast<ptrdiff_t>(sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, at + static_cast<ptrdiff_t>(i) * stride * static_cast<ptrdiff_t>(sizeof(T)),
                sizeof(T));
    out[i] = Widened(value);
  }
}

/// Values rounded to whole ones, ties to even, and held to a range. Below 2^22 a sum with 1.5 *
/// 2^23 has no room for a fraction, and rounds it off as it is asked to.
RADSERVE_HOT_LOOP void RoundRow(const float* __restrict row, size_t count, float low, float high,
                                int32_t* __restrict whole) {
  constexpr float kNoFraction = 12582912.0F;
  for (size_t i = 0; i < count; ++i) {
    const float held = row[i] < low ? low : (row[i] > high ? high : row[i]);
    whole[i] = static_cast<int32_t>((held + kNoFraction) - kNoFraction);
  }
}

void StoreFloats(const float* row, size_t count, std::byte* destination, size_t stride) {
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(destination + i * stride * sizeof(float), row + i, sizeof(float));
  }
}

void StoreHalves(const float* row, size_t count, std::byte* destination, size_t stride) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t half = ToHalf(row[i]);
    std::memcpy(destination + i * stride * sizeof(half), &half, sizeof(half));
  }
}

/// For types of at most 16 bits.
template <typename T>
void StoreSmallIntegers(const float* row, size_t count, std::byte* destination, size_t stride) {
  std::array<int32_t, 512> whole;
  for (size_t done = 0; done < count; done += whole.size()) {
    const size_t part = std::min(whole.size(), count - done);
    RoundRow(row + done, part, std::numeric_limits<T>::min(), std::numeric_limits<T>::max(),
             whole.data());
    std::byte* const to = destination + done * stride * sizeof(T);
    for (size_t i = 0; i < part; ++i) {
      const T value = static_cast<T>(whole[i]);
      std::memcpy(to + i * stride * sizeof(T), &value, sizeof(T));
    }
  }
}

void StoreInt32(const float* row, size_t count, std::byte* destination, size_t stride) {
  constexpr double kLow = std::numeric_limits<int32_t>::min();
  constexpr double kHigh = std::numeric_limits<int32_t>::max();
  for (size_t i = 0; i < count; ++i) {
    const double rounded = std::nearbyint(static_cast<double>(row[i]));
    const auto value =
        static_cast<int32_t>(rounded < kLow ? kLow : (rounded > kHigh ? kHigh : rounded));
    std::memcpy(destination + i * stride * sizeof(value), &value, sizeof(value));
  }
}

/// How the elements of a type are read and written. Images are not prepared as types that have no
/// `store`, and nothing is computed here with those that have no `load`.
struct DtypeEntry {
  Dtype dtype;
  std::string_view name;
  size_t size;
  void (*load)(const std::byte* data, ptrdiff_t first, ptrdiff_t stride, size_t count, float* out);
  void (*store)(const float* row, size_t count, std::byte* destination, size_t stride);
};

constexpr std::array<DtypeEntry, kDtypes> kEntries = {
    {{Dtype::kFloat32, "float32", 4, Load<float>, StoreFloats},
     {Dtype::kFloat16, "float16", 2, Load<Half>, StoreHalves},
     {Dtype::kFloat64, "float64", 8, Load<double>, nullptr},
     {Dtype::kUint8, "uint8", 1, Load<uint8_t>, StoreSmallIntegers<uint8_t>},
     {Dtype::kInt8, "int8", 1, Load<int8_t>, StoreSmallIntegers<int8_t>},
     {Dtype::kUint16, "uint16", 2, Load<uint16_t>, StoreSmallIntegers<uint16_t>},
     {Dtype::kInt16, "int16", 2, Load<int16_t>, StoreSmallIntegers<int16_t>},
     {Dtype::kInt32, "int32", 4, Load<int32_t>, StoreInt32},
     {Dtype::kInt64, "int64", 8, Load<int64_t>, nullptr},
     {Dtype::kUint32, "uint32", 4, Load<uint32_t>, nullptr},
     {Dtype::kBool, "bool", 1, Load<uint8_t>, nullptr},
     {Dtype::kUint64, "uint64", 8, nullptr, nullptr},
     {Dtype::kBfloat16, "bfloat16", 2, nullptr, nullptr},
     {Dtype::kString, "string", sizeof(std::string), nullptr, nullptr},
     {Dtype::kFloat8e4m3fn, "float8e4m3fn", 1, nullptr, nullptr},
     {Dtype::kFloat8e4m3fnuz, "float8e4m3fnuz", 1, nullptr, nullptr},
     {Dtype::kFloat8e5m2, "float8e5m2", 1, nullptr, nullptr},
     {Dtype::kFloat8e5m2fnuz, "float8e5m2fnuz", 1, nullptr, nullptr},
     {Dtype::kFloat8e8m0, "float8e8m0", 1, nullptr, nullptr},
     {Dtype::kFloat4e2m1, "float4e2m1", 1, nullptr, nullptr},
     {Dtype::kUint4, "uint4", 1, nullptr, nullptr},
     {Dtype::kInt4, "int4", 1, nullptr, nullptr},
     {Dtype::kUint2, "uint2", 1, nullptr, nullptr},
     {Dtype::kInt2, "int2", 1, nullptr, nullptr}}};

const DtypeEntry& Entry(Dtype dtype) { return kEntries[static_cast<size_t>(dtype)]; }

}  // namespace

std::string_view DtypeName(Dtype dtype) { return Entry(dtype).name; }

size_t DtypeSize(Dtype dtype) { return Entry(dtype).size; }

size_t ElementsInByte(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat4e2m1:
    case Dtype::kUint4:
    case Dtype::kInt4:
      return 2;
    case Dtype::kUint2:
    case Dtype::kInt2:
      return 4;
    default:
      return 1;
  }
}

size_t BytesOf(Dtype dtype, size_t elements) {
  const size_t in_byte = ElementsInByte(dtype);
  const size_t whole = elements / in_byte + (elements % in_byte == 0 ? 0 : 1);
  return whole * DtypeSize(dtype);
}

bool IsNumber(Dtype dtype) { return Entry(dtype).load != nullptr; }

bool HasPlainElements(Dtype dtype) { return dtype != Dtype::kString && ElementsInByte(dtype) == 1; }

std::optional<Dtype> DtypeFromName(std::string_view name) {
  for (const DtypeEntry& entry : kEntries) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

size_t Tensor::Elements() const {
  size_t count = 1;
  for (const int64_t side : shape) count *= static_cast<size_t>(side);
  return count;
}

Tensor MakeTensor(std::string name, Dtype dtype, std::vector<int64_t> shape) {
  Tensor tensor = MakeTensorForOverwrite(std::move(name), dtype, std::move(shape));
  std::fill_n(tensor.data, tensor.Bytes(), std::byte{0});
  return tensor;
}

Tensor MakeTensorForOverwrite(std::string name, Dtype dtype, std::vector<int64_t> shape) {
  Tensor tensor{std::move(name), dtype, std::move(shape), nullptr, nullptr};
  auto bytes = std::make_shared_for_overwrite<std::byte[]>(tensor.Bytes());
  tensor.data = bytes.get();
  tensor.owner = std::move(bytes);
  return tensor;
}

Tensor MakeTexts(std::string name, std::vector<int64_t> shape) {
  Tensor tensor{std::move(name), Dtype::kString, std::move(shape), nullptr, nullptr};
  auto texts = std::make_shared<std::string[]>(tensor.Elements());
  tensor.data = reinterpret_cast<std::byte*>(texts.get());
  tensor.owner = std::move(texts);
  return tensor;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  return text + "]";
}

namespace {

EngineError Unlike(const std::string& name, const std::vector<int64_t>& first,
                   const std::vector<int64_t>& other) {
  return {"no_model_accepts", "Expected channels of one size in \"" + name + "\"; found " +
                                  ShapeText(first) + " and " + ShapeText(other) + "."};
}

}  // namespace

Tensor SharedTensor::Part(std::string name, Dtype dtype, std::vector<int64_t> shape) {
  std::vector<int64_t> all = shape;
  all.at(1) = channels_;
  if (whole_.data == nullptr) {
    double bytes = static_cast<double>(DtypeSize(dtype));
    for (const int64_t side : all) bytes *= static_cast<double>(side);
    if (bytes > kMostTensorBytes) {
      throw EngineError("no_model_accepts", "All channels together need a tensor " +
                                                ShapeText(all) + ", which is more than 2 GiB.");
    }
    whole_ = make_(std::move(name), dtype, all);
  }
  Tensor part = whole_;
  part.shape = std::move(shape);
  if (all != whole_.shape || given_ + part.Bytes() > whole_.Bytes()) {
    throw Unlike(whole_.name, whole_.shape, part.shape);
  }
  part.data = whole_.data + given_;
  given_ += part.Bytes();
  return part;
}

Tensor SharedTensor::Take() {
  std::memset(whole_.data + given_, 0, whole_.Bytes() - given_);
  return std::move(whole_);
}

Tensor JoinChannels(std::span<const Tensor> parts, const TensorMaker& make) {
  const Tensor& first = parts.front();
  std::vector<int64_t> shape = first.shape;
  const size_t axis = shape.size() - 1;
  shape[axis] = 0;
  for (const Tensor& part : parts) {
    std::vector<int64_t> alike = part.shape;
    alike[axis] = first.shape[axis];
    if (alike != first.shape) throw Unlike(first.name, first.shape, part.shape);
    shape[axis] += part.shape[axis];
  }
  Tensor joined = make(first.name, first.dtype, shape);
  const size_t pixels = first.Elements() / static_cast<size_t>(first.shape[axis]);
  std::byte* out = joined.data;
  for (size_t pixel = 0; pixel < pixels; ++pixel) {
    for (const Tensor& part : parts) {
      const size_t bytes = part.Bytes() / pixels;
      std::memcpy(out, part.data + pixel * bytes, bytes);
      out += bytes;
    }
  }
  return joined;
}

std::vector<float> AsFloats(const Tensor& tensor) {
  std::vector<float> out(tensor.Elements());
  LoadRow(tensor, 0, 1, out.size(), out.data());
  return out;
}

/// The least magnitude that rounds to an infinite float16.
constexpr float kHalfOverflow = 65520;

uint16_t ToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00u);
  const float magnitude = std::fabs(value);
  if (magnitude >= kHalfOverflow) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 6.103515625e-5f) {
    // Subnormal halves count steps of 2^-24; the carry into the smallest normal one comes out right
    // by itself.
    return static_cast<uint16_t>(sign |
                                 static_cast<uint16_t>(std::nearbyint(magnitude * 16777216.0f)));
  }
  const uint32_t rounding = 0xfffu + ((bits >> 13) & 1u);
  const uint32_t rounded = (bits & 0x7fffffffu) + rounding;
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

float FromHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-8f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 0xffu : exponent + 112u;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

bool Holds(Dtype dtype, double value) {
  const auto within = [value = std::nearbyint(value)](double low, double high) {
    return low <= value && value <= high;
  };
  const auto of = [&within]<typename T>(T) {
    return within(std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  };
  switch (dtype) {
    case Dtype::kFloat16:
      return std::fabs(value) < kHalfOverflow;
    case Dtype::kUint8:
      return of(uint8_t{});
    case Dtype::kInt8:
      return of(int8_t{});
    case Dtype::kUint16:
      return of(uint16_t{});
    case Dtype::kInt16:
      return of(int16_t{});
    case Dtype::kInt32:
      return of(int32_t{});
    default:
      return std::fabs(value) <= std::numeric_limits<float>::max();
  }
}

void StoreRow(Dtype dtype, const float* row, size_t count, std::byte* destination, size_t stride) {
  const DtypeEntry& entry = Entry(dtype);
  if (entry.store == nullptr)
    throw EngineError("bad_request",
                      "Images cannot be prepared as " + std::string(entry.name) + " tensors.");
  entry.store(row, count, destination, stride);
}

void LoadRow(const Tensor& tensor, ptrdiff_t first, ptrdiff_t stride, size_t count, float* out) {
  const DtypeEntry& entry = Entry(tensor.dtype);
  if (entry.load == nullptr)
    throw EngineError("bad_request",
                      "Tensors of " + std::string(entry.name) + " are not read as numbers.");
  entry.load(tensor.data, first, stride, count, out);
}

}  // namespace radserve
