#include "base/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "check.h"

using namespace radserve;
using namespace radserve::test;

namespace {

/// Values around every half and both ends of the range, and more of them than one turn of the loop
/// takes.
std::vector<float> Values(float low, float high) {
  std::vector<float> values = {low,        high,        low - 1,     high + 1,    low - 0.5F,
                               low + 0.5F, high - 0.5F, high + 0.5F, 0.49999997F, -0.49999997F,
                               0.5F,       1.5F,        2.5F,        -0.5F,       -1.5F,
                               1e30F,      -1e30F,      0.0F};
  constexpr int kMany = 3000;
  for (int i = 0; i < kMany; ++i) {
    values.push_back(low + (high - low) * static_cast<float>(i) / kMany);
    values.push_back(std::floor(values.back()) + 0.5F);
  }
  values.push_back(std::numeric_limits<float>::infinity());
  values.push_back(-std::numeric_limits<float>::infinity());
  return values;
}

/// Held against the C library's rounding, ties to even, of one value after the other.
template <typename T>
void CheckIntegers(Dtype dtype, size_t stride) {
  constexpr double kLow = std::numeric_limits<T>::min(), kHigh = std::numeric_limits<T>::max();
  const std::vector<float> values = Values(static_cast<float>(kLow), static_cast<float>(kHigh));
  std::vector<T> stored(values.size() * stride, T{42});
  StoreRow(dtype, values.data(), values.size(), reinterpret_cast<std::byte*>(stored.data()),
           stride);
  for (size_t i = 0; i < values.size(); ++i) {
    const double wanted = std::clamp(std::nearbyint(static_cast<double>(values[i])), kLow, kHigh);
    CHECK(static_cast<double>(stored[i * stride]) == wanted);
    for (size_t between = 1; between < stride; ++between)
      CHECK(stored[i * stride + between] == T{42});
  }
}

}  // namespace

TEST("rows of whole numbers are rounded, ties to even, and held to their range") {
  for (const size_t stride : {size_t{1}, size_t{3}}) {
    CheckIntegers<uint8_t>(Dtype::kUint8, stride);
    CheckIntegers<int8_t>(Dtype::kInt8, stride);
    CheckIntegers<uint16_t>(Dtype::kUint16, stride);
    CheckIntegers<int16_t>(Dtype::kInt16, stride);
    CheckIntegers<int32_t>(Dtype::kInt32, stride);
  }
}
END;

TEST(
    "text has its own memory, two numbers of four bits share a byte, and neither is read as "
    "floats") {
  Tensor texts = MakeTexts("t", {2, 3});
  EQUAL(texts.Texts().size(), size_t{6});
  texts.Texts()[5] = "text of more bytes than a string has by itself";
  const Tensor share = texts;
  texts = Tensor();
  CHECK(share.Texts()[0].empty() && share.Texts()[5].size() > 32);
  EQUAL(BytesOf(Dtype::kInt4, 3), size_t{2});
  EQUAL(BytesOf(Dtype::kUint2, 5), size_t{2});
  EQUAL(BytesOf(Dtype::kUint64, 3), size_t{24});
  for (const Dtype dtype : {Dtype::kString, Dtype::kInt4, Dtype::kBfloat16, Dtype::kUint64}) {
    CHECK(!IsNumber(dtype));
    const Tensor tensor = dtype == Dtype::kString ? share : MakeTensor("x", dtype, {2, 3});
    EQUAL(CodeOf([&] { AsFloats(tensor); }), std::string("bad_request"));
  }
}
END;

TEST("channels that several write lie in one tensor, and what nobody writes is 0") {
  int made = 0;
  SharedTensor shared(4, [&](std::string name, Dtype dtype, std::vector<int64_t> shape) {
    ++made;
    return MakeTensorForOverwrite(std::move(name), dtype, std::move(shape));
  });
  const auto fill = [](const Tensor& part, float value) {
    const std::vector<float> values(part.Elements(), value);
    std::memcpy(part.data, values.data(), part.Bytes());
  };
  fill(shared.Part("x", Dtype::kFloat32, {1, 1, 2, 1}), 5);
  const auto refused = [&](const std::vector<int64_t>& shape) {
    return CodeOf([&] { shared.Part("x", Dtype::kFloat32, shape); });
  };
  EQUAL(refused({1, 1, 3, 1}), "no_model_accepts");
  EQUAL(refused({1, 4, 2, 1}), "no_model_accepts");
  fill(shared.Part("x", Dtype::kFloat32, {1, 2, 2, 1}), 6);
  const Tensor whole = shared.Take();
  EQUAL(made, 1);
  EQUAL(ShapeText(whole.shape), "[1,4,2,1]");
  CHECK((AsFloats(whole) == std::vector<float>{5, 5, 6, 6, 6, 6, 0, 0}));
  SharedTensor large(3, MakeTensorForOverwrite);
  EQUAL(CodeOf([&] {
          large.Part("x", Dtype::kFloat32, {1, 1, 1024, 1024, 256});
        }),
        "no_model_accepts");
}
END;
