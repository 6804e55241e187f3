#include "runtime/runtime_failure.h"

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

/// The runtime's arena, and the status names of cuDNN and cuBLAS.
constexpr std::array<std::string_view, 6> kMemoryWords = {"Failed to allocate memory for requested buffer",
                                                          "is smaller than requested bytes of",
                                                          "out of memory",
                                                          "ALLOC_FAILED",
                                                          "ALLOCATION_FAILED",
                                                          "bad_alloc"};

/// The number in "CUDA failure 700: ...", or 0 if there is no number.
int CudaNumber(std::string_view message) {
  constexpr std::string_view kWords = "CUDA failure ";
  const size_t at = message.find(kWords);
  if (at == std::string_view::npos) return 0;
  const std::string_view rest = message.substr(at + kWords.size());
  int number = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), number);
  return number;
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
