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

/// Values around every half and both ends of the range, and more of them than one turn of the loop takes.
std::vector<float> Values(float low, float high) {
  std::vector<float> values = {low,         high,        low - 1,     high + 1,     low - 0.5F, low + 0.5F,
                               high - 0.5F, high + 0.5F, 0.49999997F, -0.49999997F, 0.5F,       1.5F,
                               2.5F,        -0.5F,       -1.5F,       1e30F,        -1e30F,     0.0F};
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
  StoreRow(dtype, values.data(), values.size(), reinterpret_cast<std::byte*>(stored.data()), stride);
  for (size_t i = 0; i < values.size(); ++i) {
    const double wanted = std::clamp(std::nearbyint(static_cast<double>(values[i])), kLow, kHigh);
    CHECK(static_cast<double>(stored[i * stride]) == wanted);
    for (size_t between = 1; between < stride; ++between) CHECK(stored[i * stride + between] == T{42});
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
