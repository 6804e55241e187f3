#ifndef RADSERVE_WEIGHTS_H_
#define RADSERVE_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace radserve {

/// A graph's constants: initializers, Constant nodes, and those of subgraphs.
struct WeightCount {
  /// Elements of these types.
  uint64_t float32 = 0;
  uint64_t float16 = 0;
  /// Bytes of the weights of all types.
  uint64_t bytes = 0;
};

/// Counts in the bytes of an .onnx file, of which nothing but the shapes and types of its tensors is read;
/// what is no ONNX counts nothing.
WeightCount CountWeights(std::span<const std::byte> model);

/// The same of a file; nothing if it cannot be read.
WeightCount CountWeights(const std::string& path);

}  // namespace radserve

#endif  // RADSERVE_WEIGHTS_H_
