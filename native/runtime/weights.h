#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace radserve {

/// A graph's constants: initializers, tensors of attributes, and those of subgraphs and functions.
struct WeightCount {
  /// Elements of these types.
  uint64_t float32 = 0;
  uint64_t float16 = 0;
  /// Bytes of the weights of all types.
  uint64_t bytes = 0;
};

/// Counts in the bytes of an .onnx file, of which nothing but the shapes and types of its tensors
/// is read; what is no ONNX counts nothing.
WeightCount CountWeights(std::span<const std::byte> model);

/// The same of a file; nothing if it cannot be read.
WeightCount CountWeights(const std::string& path);

/// The files beside an .onnx file that hold constants of its graph, as it names them (`location` of
/// TensorProto's external_data): those of initializers, of attributes, of subgraphs and of
/// functions. nullopt if the bytes are no ONNX model, or cannot be read to their end.
std::optional<std::set<std::string>> ExternalLocations(std::span<const std::byte> model);

/// The same of a file; nullopt if it cannot be read.
std::optional<std::set<std::string>> ExternalLocations(const std::string& path);

/// Bytes of those initializers of the graph itself by which its MatMul and Gemm multiply.
uint64_t BytesOfFactors(std::span<const std::byte> model);

/// An initializer of the graph itself whose content lies in it, or in a file, as it lies in memory.
struct RawInitializer {
  std::string name;
  /// TensorProto.DataType, of whole bytes an element.
  uint64_t type = 0;
  std::vector<int64_t> shape;
  std::span<const std::byte> content;
};

/// Those of `least` bytes and more, which no input of the graph may replace; in `model`, which they
/// point into. What is broken, or of another length than shape and type say, is left out.
std::vector<RawInitializer> RawInitializers(std::span<const std::byte> model, size_t least);

/// Contents of files beside a graph, by their names without a leading "./"; whoever has them keeps
/// them.
using OutsideFiles = std::map<std::string, std::string_view>;

/// Initializers of the graph itself of more than `most` bytes whose content lies in a file, which
/// they point into. Throws std::runtime_error as WithConstantsInside does.
std::vector<RawInitializer> OutsideInitializers(std::span<const std::byte> model,
                                                const OutsideFiles& files, size_t most);

/// `location` without a leading "./".
std::string PlainLocation(std::string location);

/// The model with its constants that lie in `files` inside it, but for the initializers of the
/// graph itself, which keep their places in the files, by PlainLocation: the runtime takes those
/// from memory, and no others. Throws std::runtime_error if a constant lies in no file or beyond
/// the end of one.
std::string WithConstantsInside(std::span<const std::byte> model, const OutsideFiles& files);

/// The model with all of its constants inside it. Throws as WithConstantsInside does.
std::string WithAllInside(std::span<const std::byte> model, const OutsideFiles& files);

/// The model without its weights, for whoever wants to know what it takes and gives: initializers
/// of the graph itself of kLargeWeight and more are inputs, whose names are added to `inputs`. All
/// other constants lie inside. Throws as WithConstantsInside does.
std::string WithoutWeights(std::span<const std::byte> model, const OutsideFiles& files,
                           std::set<std::string>& inputs);

/// Bytes. Constants that decide shapes are smaller.
constexpr uint64_t kLargeWeight = uint64_t{64} << 10;

}  // namespace radserve
