#ifndef RADSERVE_WEIGHTS_H_
#define RADSERVE_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>

namespace radserve {

/// A graph's constants: initializers, tensors of attributes, and those of subgraphs and functions.
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

/// The files beside an .onnx file that hold constants of its graph, as it names them (`location` of TensorProto's
/// external_data): those of initializers, of attributes, of subgraphs and of functions. nullopt if the bytes
/// are no ONNX model, or cannot be read to their end.
std::optional<std::set<std::string>> ExternalLocations(std::span<const std::byte> model);

/// The same of a file; nullopt if it cannot be read.
std::optional<std::set<std::string>> ExternalLocations(const std::string& path);

}  // namespace radserve

#endif  // RADSERVE_WEIGHTS_H_
