#include "runtime/activations.h"

#include "check.h"
#include "onnx.h"

namespace {

using radserve::test::Bytes;
using radserve::test::Number;

std::string Node(const std::string& op, const std::string& from, const std::string& to) {
  return Bytes(1, Bytes(1, from) + Bytes(2, to) + Bytes(4, op));
}

std::string Output(const std::string& name) { return Bytes(12, Bytes(1, name)); }

std::map<std::string, std::string> Found(const std::string& graph) {
  const std::string model = Number(1, 8) + Bytes(7, graph);
  for (size_t size = 0; size < model.size(); ++size)
    radserve::Activations(std::as_bytes(std::span(model)).first(size));
  return radserve::Activations(std::as_bytes(std::span(model)));
}

TEST("outputs that are activated are found behind what moves their values, and no others") {
  const std::string graph = Node("Conv", "x", "a") + Node("Sigmoid", "a", "b") +
                            Node("Transpose", "b", "c") + Node("Cast", "c", "moved") +
                            Node("HardSigmoid", "a", "hard") + Node("Mul", "b", "scaled") +
                            Node("Conv", "b", "logits") + Node("Softmax", "a", "soft") +
                            Output("moved") + Output("hard") + Output("b") + Output("soft") +
                            Output("scaled") + Output("logits") + Output("x");
  CHECK(Found(graph) ==
        (std::map<std::string, std::string>{
            {"moved", "sigmoid"}, {"hard", "sigmoid"}, {"b", "sigmoid"}, {"soft", "softmax"}}));
}
END;

TEST("a graph that leads round in a circle has an end") {
  const std::string graph = Node("Cast", "b", "a") + Node("Cast", "a", "b") + Output("a");
  CHECK(Found(graph).empty());
  CHECK(radserve::Activations(std::string("/nowhere")).empty());
}
END;

}  // namespace
