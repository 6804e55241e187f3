#include "runtime/shape_nodes.h"

#include "check.h"
#include "onnx.h"

namespace {

using radserve::ShapeNodes;
using radserve::test::Bytes;
using radserve::test::Value;
using radserve::test::Zeros;

std::string Node(const std::string& op, const std::vector<std::string>& inputs,
                 const std::string& output, const std::string& attributes = "") {
  std::string node;
  for (const std::string& input : inputs) node += Bytes(1, input);
  return Bytes(
      1, node + Bytes(2, output) + Bytes(3, op + " to " + output) + Bytes(4, op) + attributes);
}

ShapeNodes Of(const std::string& graph) {
  const std::string model = Bytes(7, graph);
  return ShapeNodes(std::as_bytes(std::span(model)));
}

TEST("what comes from Shape and constants touches shapes only; what the image reaches does not") {
  const ShapeNodes nodes =
      Of(Bytes(11, Value("x", {0, 4})) + Zeros("zero", {1}) + Node("Shape", {"x"}, "s") +
         Node("Gather", {"s", "zero"}, "g") + Node("Size", {"x"}, "n") +
         Node("Mul", {"g", "n"}, "m") + Node("Gather", {"x", "zero"}, "p") +
         Node("Add", {"p", "m"}, "q") + Node("Constant", {}, "c"));
  for (const char* name : {"Gather to g", "Mul to m", "Constant to c"}) {
    CHECK(nodes.Contains(name, std::string(name).substr(0, std::string(name).find(' '))));
  }
  CHECK(!nodes.Contains("Gather to p", "Gather"));
  CHECK(!nodes.Contains("Add to q", "Add"));
  // To find the shape of an image on the CPU it would have to be copied there.
  CHECK(!nodes.Contains("Shape to s", "Shape"));
  CHECK(!nodes.Contains("Gather to g", "Mul"));
  CHECK(!nodes.Contains("", "Gather"));
}
END;

TEST("old exports list their constants among the inputs") {
  const ShapeNodes nodes =
      Of(Bytes(11, Value("x", {0, 4})) + Bytes(11, Value("zero", {1})) + Zeros("zero", {1}) +
         Node("Shape", {"x"}, "s") + Node("Gather", {"s", "zero"}, "g"));
  CHECK(nodes.Contains("Gather to g", "Gather"));
}
END;

TEST("a graph inside a node sees the image of the one around it") {
  const auto attribute = [](const std::string& graph) {
    return Bytes(5, Bytes(1, "body") + Bytes(6, graph));
  };
  const ShapeNodes nodes =
      Of(Bytes(11, Value("x", {0, 4})) + Node("Shape", {"x"}, "s") +
         Node("If", {"s"}, "a", attribute(Node("Identity", {"x"}, "i"))) +
         Node("If", {"s"}, "b", attribute(Node("Identity", {"s"}, "j"))) + Node("Neg", {"a"}, "d"));
  CHECK(!nodes.Contains("If to a", "If"));
  CHECK(!nodes.Contains("Identity to i", "Identity"));
  CHECK(!nodes.Contains("Neg to d", "Neg"));
  CHECK(nodes.Contains("If to b", "If"));
  CHECK(nodes.Contains("Identity to j", "Identity"));
}
END;

TEST("nodes of one name are one: if any has the image, none is allowed") {
  const std::string name = Bytes(3, "") + Bytes(4, "Neg");
  const ShapeNodes nodes = Of(Bytes(11, Value("x", {0, 4})) + Node("Shape", {"x"}, "s") +
                              Bytes(1, Bytes(1, "s") + Bytes(2, "a") + name) +
                              Bytes(1, Bytes(1, "x") + Bytes(2, "b") + name));
  CHECK(!nodes.Contains("", "Neg"));
}
END;

TEST("what is no model has no nodes") {
  const std::string text = "no model";
  CHECK(!ShapeNodes(std::as_bytes(std::span(text))).Contains("", ""));
}
END;

}  // namespace
