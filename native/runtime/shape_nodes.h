#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <utility>

namespace radserve {

/// Which nodes of a graph compute with shapes and constants alone: nothing leads from an input of
/// the graph to them but through Shape or Size, as in the chains Shape -> Gather -> Concat that
/// exporters write before a Reshape. Whether such a node runs on the CPU or on a GPU changes
/// neither a number of an image nor, noticeably, the time.
class ShapeNodes {
 public:
  /// Nodes of the bytes of an .onnx file; a file that is no ONNX has none.
  explicit ShapeNodes(std::span<const std::byte> model);

  /// Whether there is a node of that name and operator, and all of them touch shapes only. Names
  /// may be "".
  bool Contains(const std::string& name, const std::string& op) const;

 private:
  std::map<std::pair<std::string, std::string>, bool> nodes_;
};

}  // namespace radserve
