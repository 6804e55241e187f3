#include "runtime/activations.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "runtime/onnx_file.h"

namespace radserve {
namespace {

using onnx_file::All;
using onnx_file::Bytes;
using onnx_file::First;
using onnx_file::MappedFile;
using onnx_file::TextOf;

/// Operators that give values of their first input, in another shape, order or type.
constexpr std::array<std::string_view, 9> kMoving = {"Identity", "Cast",      "Reshape",
                                                     "Flatten",  "Squeeze",   "Unsqueeze",
                                                     "Slice",    "Transpose", "Gather"};

using Nodes = std::map<std::string_view, Bytes>;

/// "" of a tensor that is no activation.
std::string_view ActivationOf(std::string_view tensor, const Nodes& nodes) {
  // No way through a graph has more nodes than the graph, unless it leads round in a circle
  for (size_t step = 0; step < nodes.size(); ++step) {
    const auto node = nodes.find(tensor);
    if (node == nodes.end()) return "";
    const std::string_view op = First(node->second, onnx_file::kNodeOp);
    if (op == "Sigmoid" || op == "HardSigmoid") return "sigmoid";
    if (op == "Softmax") return "softmax";
    if (std::ranges::find(kMoving, op) == kMoving.end()) return "";
    tensor = First(node->second, onnx_file::kNodeInput);
  }
  return "";
}

}  // namespace

std::map<std::string, std::string> Activations(std::span<const std::byte> model) {
  std::map<std::string, std::string> found;
  for (const Bytes graph : All(model, onnx_file::kModelGraph)) {
    Nodes nodes;
    for (const Bytes node : All(graph, onnx_file::kGraphNode)) {
      for (const Bytes output : All(node, onnx_file::kNodeOutput)) nodes[TextOf(output)] = node;
    }
    for (const Bytes output : All(graph, onnx_file::kGraphOutput)) {
      const std::string_view name = First(output, onnx_file::kValueName);
      const std::string_view activation = ActivationOf(name, nodes);
      if (!activation.empty()) found.emplace(name, activation);
    }
  }
  return found;
}

std::map<std::string, std::string> Activations(const std::string& path) {
  return Activations(MappedFile(path).bytes());
}

}  // namespace radserve
