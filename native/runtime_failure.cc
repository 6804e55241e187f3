#include "runtime_failure.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

namespace radserve {
namespace {

/// cudaError_t after which a context answers every call with the same error, and devices that are gone.
constexpr std::array kLost = {46,    // devices unavailable
                              214,   // uncorrectable ECC error
                              220,   // uncorrectable NVLink error
                              700,   // illegal address
                              702,   // launch timeout
                              709,   // context is destroyed
                              710,   // assert
                              714,   // hardware stack error
                              715,   // illegal instruction
                              716,   // misaligned address
                              717,   // invalid address space
                              718,   // invalid program counter
                              719,   // launch failure
                              721,   // tensor memory leak
                              999};  // unknown
constexpr int kCudaOutOfMemory = 2;

constexpr std::array<std::string_view, 5> kMemoryWords = {
    "Failed to allocate memory for requested buffer", "is smaller than requested bytes of",
    "CUDNN_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_ALLOC_FAILED", "bad_alloc"};

/// The number in "CUDA failure 700: ..." (or "CUDA error 700"), 0 where there is none.
int CudaNumber(std::string_view message) {
  for (const std::string_view words : {"CUDA failure ", "CUDA error "}) {
    const size_t at = message.find(words);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = message.substr(at + words.size());
    int number = 0;
    std::from_chars(rest.data(), rest.data() + rest.size(), number);
    return number;
  }
  return 0;
}

}  // namespace

RuntimeFailure ClassifyFailure(std::string_view message) {
  const int number = CudaNumber(message);
  if (std::find(kLost.begin(), kLost.end(), number) != kLost.end()) return RuntimeFailure::kDeviceLost;
  const auto in_message = [&](std::string_view words) {
    return message.find(words) != std::string_view::npos;
  };
  const bool memory =
      number == kCudaOutOfMemory || std::any_of(kMemoryWords.begin(), kMemoryWords.end(), in_message);
  return memory ? RuntimeFailure::kMemory : RuntimeFailure::kRun;
}

}  // namespace radserve
