#include "runtime/shape_nodes.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "runtime/onnx_file.h"

namespace radserve {
namespace {

using onnx_file::All;
using onnx_file::Bytes;
using onnx_file::First;
using onnx_file::kGraphInitializer;
using onnx_file::kGraphInput;
using onnx_file::kGraphNode;
using onnx_file::kModelGraph;
using onnx_file::kNodeInput;
using onnx_file::kNodeOp;
using onnx_file::kTensorName;
using onnx_file::kValueName;
using onnx_file::TextOf;

using Nodes = std::map<std::pair<std::string, std::string>, bool>;
/// Values that depend on what the graph is given.
using Names = std::set<std::string, std::less<>>;

// Field numbers of onnx.proto.
constexpr uint64_t kNodeOutput = 2;
constexpr uint64_t kNodeName = 3;
constexpr uint64_t kNodeAttribute = 5;
constexpr uint64_t kAttributeGraph = 6;
constexpr uint64_t kAttributeGraphs = 11;

/// protobuf reads no deeper by itself.
constexpr int kDeepest = 100;

bool Walk(Bytes graph, Names data, int depth, Nodes& nodes);

/// Whether the node computes with data, or a graph inside it does.
bool UsesData(Bytes node, const Names& data, int depth, Nodes& nodes) {
  const auto of_data = [&](Bytes name) { return data.contains(TextOf(name)); };
  bool uses = std::ranges::any_of(All(node, kNodeInput), of_data);
  for (const Bytes attribute : All(node, kNodeAttribute)) {
    for (const uint64_t field : {kAttributeGraph, kAttributeGraphs}) {
      for (const Bytes graph : All(attribute, field))
        uses = Walk(graph, data, depth + 1, nodes) || uses;
    }
  }
  return uses;
}

/// Notes the nodes of a graph, which come in the order in which they run. Returns whether any
/// computes with data. An input that has an initializer is a constant, because Radserve never gives
/// another.
bool Walk(Bytes graph, Names data, int depth, Nodes& nodes) {
  if (depth > kDeepest) return true;
  bool any = false;
  Names constants;
  for (const Bytes tensor : All(graph, kGraphInitializer))
    constants.emplace(First(tensor, kTensorName));
  for (const Bytes input : All(graph, kGraphInput)) {
    const std::string_view name = First(input, kValueName);
    if (!constants.contains(name)) data.emplace(name);
  }
  for (const Bytes node : All(graph, kGraphNode)) {
    const bool uses = UsesData(node, data, depth, nodes);
    const std::string op(First(node, kNodeOp));
    any = any || uses;
    const auto [place, fresh] = nodes.try_emplace({std::string(First(node, kNodeName)), op}, !uses);
    if (!fresh) place->second = place->second && !uses;
    if (!uses || op == "Shape" || op == "Size") continue;
    for (const Bytes output : All(node, kNodeOutput)) data.emplace(TextOf(output));
  }
  return any;
}

}  // namespace

ShapeNodes::ShapeNodes(std::span<const std::byte> model) {
  for (const Bytes graph : All(model, kModelGraph)) Walk(graph, {}, 0, nodes_);
}

bool ShapeNodes::Contains(const std::string& name, const std::string& op) const {
  const auto found = nodes_.find({name, op});
  return found != nodes_.end() && found->second;
}

}  // namespace radserve
