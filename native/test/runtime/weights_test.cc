#include "runtime/weights.h"

#include <optional>
#include <set>

#include "check.h"
#include "onnx.h"

namespace {

using radserve::CountWeights;
using radserve::ExternalLocations;
using radserve::WeightCount;

using radserve::test::Bytes;
using radserve::test::Number;
using radserve::test::Varint;

constexpr int kFloat32 = 1;
constexpr int kInt64 = 7;
constexpr int kFloat16 = 10;

std::string Tensor(int type, uint64_t rows, uint64_t columns) {
  return Number(1, rows) + Number(1, columns) + Number(2, type) + Bytes(9, std::string(5, 'x'));
}

WeightCount Count(const std::string& model) {
  return CountWeights(std::as_bytes(std::span(model)));
}

TEST("initializers, constants and subgraphs are counted by type") {
  const std::string constant = Bytes(1, Bytes(5, Bytes(5, Tensor(kFloat16, 1, 7))));
  const std::string branch = Bytes(1, Bytes(5, Bytes(6, Bytes(5, Tensor(kFloat32, 300, 2)))));
  const std::string packed = Bytes(1, Varint(2) + Varint(200)) + Number(2, kFloat16);
  const std::string graph = Bytes(5, Tensor(kFloat32, 3, 4)) + Bytes(5, Tensor(kInt64, 9, 9)) +
                            Bytes(5, packed) + constant + branch;
  const WeightCount count = Count(Number(1, 8) + Bytes(7, graph));
  EQUAL(count.float32, uint64_t{12 + 600});
  EQUAL(count.float16, uint64_t{400 + 7});
  EQUAL(count.bytes, uint64_t{612 * 4 + 407 * 2 + 81 * 8});
}
END;

TEST("what is cut short or no ONNX counts nothing beyond its end") {
  const std::string model = Bytes(7, Bytes(5, Tensor(kFloat32, 3, 4)));
  for (size_t size = 0; size < model.size(); ++size)
    EQUAL(Count(model.substr(0, size)).float32, uint64_t{0});
  EQUAL(Count(std::string(64, '\xff')).float32, uint64_t{0});
  EQUAL(CountWeights(std::string("/nowhere")).float32, uint64_t{0});
}
END;

std::string Outside(const std::string& location) {
  return Number(1, 4) + Number(2, kFloat32) + Bytes(13, Bytes(1, "length") + Bytes(2, "16")) +
         Bytes(13, Bytes(1, "location") + Bytes(2, location)) + Number(14, 1);
}

std::optional<std::set<std::string>> Locations(const std::string& model) {
  return ExternalLocations(std::as_bytes(std::span(model)));
}

std::string Listed(const std::string& model) {
  std::string out;
  for (const std::string& location : Locations(model).value_or(std::set<std::string>{"none"}))
    out += location + " ";
  return out;
}

TEST("files of constants are found wherever a graph can keep them") {
  const auto attribute = [](int field, const std::string& value) {
    return Bytes(5, Bytes(field, value));
  };
  const std::string branch = Bytes(1, attribute(6, Bytes(5, Outside("branch"))));
  const std::string loops = Bytes(1, attribute(11, Bytes(1, attribute(5, Outside("inner")))));
  const std::string sparse = Bytes(15, Bytes(1, Outside("values")) + Bytes(2, Outside("indices")));
  const std::string constant =
      Bytes(1, attribute(10, Outside("list")) + attribute(22, Bytes(1, Outside("one"))) +
                   attribute(23, Bytes(1, Outside("more"))));
  const std::string function = Bytes(
      25, Bytes(7, attribute(5, Outside("function"))) + Bytes(11, Bytes(5, Outside("default"))));
  const std::string graph = Bytes(5, Outside("first")) + Bytes(5, Outside("first")) +
                            Bytes(5, Tensor(kFloat32, 3, 4)) + branch + loops + sparse + constant;
  EQUAL(Listed(Number(1, 8) + Bytes(7, graph) + function),
        std::string("branch default first function indices inner list more one values "));
  EQUAL(Listed(Bytes(7, Bytes(5, Tensor(kFloat32, 3, 4)))), std::string());
}
END;

TEST("what cannot be read to its end may hide files, and is no model") {
  const std::string model = Bytes(7, Bytes(5, Outside("first")));
  for (size_t size = 0; size < model.size(); ++size)
    EQUAL(Listed(model.substr(0, size)), std::string("none "));
  // A group, which onnx.proto has none of.
  EQUAL(Listed(Varint(30 << 3 | 3) + Varint(30 << 3 | 4) + model), std::string("none "));
  EQUAL(Listed(Number(1, 8)), std::string("none "));
  std::string deep = Bytes(5, Outside("deep"));
  for (int i = 0; i < 1000; ++i) deep = Bytes(1, Bytes(5, Bytes(6, deep)));
  EQUAL(Listed(Bytes(7, deep)), std::string("none "));
  EQUAL(ExternalLocations(std::string("/nowhere")).has_value(), false);
}
END;

TEST("large initializers of the graph itself are found in their files") {
  const std::string model =
      Bytes(7, Bytes(5, Outside("./w") + Bytes(8, "large")) + Bytes(5, Tensor(kFloat32, 1, 4)) +
                   Bytes(1, Bytes(5, Bytes(5, Outside("w") + Bytes(8, "constant")))));
  const auto found = [&](const std::string& content, size_t most) {
    return radserve::OutsideInitializers(std::as_bytes(std::span(model)), {{"w", content}}, most);
  };
  const std::string content(20, 'w');
  const auto large = found(content, 15);
  EQUAL(large.size(), size_t{1});
  EQUAL(large[0].name, std::string("large"));
  EQUAL(large[0].type, uint64_t{kFloat32});
  EQUAL(large[0].shape.size(), size_t{1});
  CHECK(large[0].content.data() == std::as_bytes(std::span(content)).data());
  EQUAL(large[0].content.size(), size_t{16});
  EQUAL(found(content, 16).size(), size_t{0});
  bool refused = false;
  try {
    found(std::string(15, 'w'), 15);
  } catch (const std::runtime_error&) {
    refused = true;
  }
  CHECK(refused);
}
END;

TEST("constants that cannot be brought inside are told, and what needs nothing is left as it is") {
  const auto with = [](const std::string& model, const radserve::OutsideFiles& files) {
    return radserve::WithConstantsInside(std::as_bytes(std::span(model)), files);
  };
  const std::string constant = Bytes(7, Bytes(1, Bytes(5, Bytes(5, Outside("w")))));
  const std::string initializer =
      Bytes(7, Bytes(5, Outside("w")) + Bytes(5, Tensor(kFloat32, 1, 1)));
  const std::string content(16, 'w');
  const std::string shorter(15, 'w');
  const std::string inside = with(constant, {{"w", content}});
  CHECK(inside.find(std::string(16, 'w')) != std::string::npos);
  EQUAL(Listed(inside), std::string());
  EQUAL(Listed(with(initializer, {{"w", content}})), std::string("w "));
  const std::string plain =
      Number(1, 8) + Bytes(7, Bytes(5, Tensor(kFloat32, 1, 1)) + Bytes(2, "name"));
  EQUAL(with(plain, {}), plain);
  for (const std::string& model : {constant, initializer}) {
    for (const auto& files : {radserve::OutsideFiles{}, {{"w", shorter}}, {{"v", content}}}) {
      bool refused = false;
      try {
        with(model, files);
      } catch (const std::runtime_error&) {
        refused = true;
      }
      CHECK(refused);
    }
  }
}
END;

TEST("a model without its weights has inputs in their place, and no file is needed any more") {
  constexpr uint64_t kRows = 16384;
  const auto weight = [](const std::string& name, const std::string& content) {
    return Bytes(5, Number(1, kRows) + Number(2, kFloat32) + Bytes(8, name) + content);
  };
  const std::string outside = Bytes(13, Bytes(1, "location") + Bytes(2, "w")) + Number(14, 1);
  const std::string small = Bytes(5, Tensor(kFloat32, 2, 2));
  const std::string model = Bytes(7, weight("beside", outside) + weight("given", Bytes(9, "raw")) +
                                         small + Bytes(11, Bytes(1, "given")));
  std::set<std::string> inputs;
  const std::string beside(4 * kRows, 'w');
  const std::string bare =
      radserve::WithoutWeights(std::as_bytes(std::span(model)), {{"w", beside}}, inputs);
  CHECK((inputs == std::set<std::string>{"beside", "given"}));
  EQUAL(Listed(bare), std::string());
  const std::string type = Bytes(1, Number(1, kFloat32) + Bytes(2, Bytes(1, Number(1, kRows))));
  EQUAL(bare, Bytes(7, Bytes(11, Bytes(1, "beside") + Bytes(2, type)) + small +
                           Bytes(11, Bytes(1, "given"))));
  bool refused = false;
  try {
    radserve::WithoutWeights(std::as_bytes(std::span(model)), {{"w", "too short"}}, inputs);
  } catch (const std::runtime_error&) {
    refused = true;
  }
  CHECK(refused);
}
END;

TEST("initializers that lie in the graph as in memory are found, and those only") {
  const auto tensor = [](const std::string& name, int type, uint64_t rows,
                         const std::string& content) {
    return Bytes(5, Number(1, rows) + Number(1, 2) + Number(2, static_cast<uint64_t>(type)) +
                        Bytes(8, name) + Bytes(9, content));
  };
  const std::string sixteen(16, 'w');
  constexpr int kString = 8;
  constexpr int kInt4 = 22;
  const std::string outside = Bytes(5, Bytes(8, "file") + Outside("data"));
  const std::string branch = Bytes(1, Bytes(5, Bytes(6, tensor("inner", kFloat32, 2, sixteen))));
  const std::string graph =
      tensor("w", kFloat32, 2, sixteen) + tensor("half", kFloat16, 4, sixteen) +
      tensor("small", kInt64, 1, sixteen.substr(0, 8)) + tensor("short", kFloat32, 3, sixteen) +
      tensor("texts", kString, 8, sixteen) + tensor("packed", kInt4, 16, sixteen) +
      tensor("given", kFloat32, 2, sixteen) + tensor("", kFloat32, 2, sixteen) + outside + branch +
      Bytes(11, Bytes(1, "given"));
  const std::string model = Number(1, 8) + Bytes(7, graph);
  const auto found = radserve::RawInitializers(std::as_bytes(std::span(model)), 16);
  EQUAL(found.size(), size_t{2});
  EQUAL(found[0].name, "w");
  EQUAL(found[0].type, uint64_t{kFloat32});
  CHECK(found[0].shape == (std::vector<int64_t>{2, 2}));
  EQUAL(
      std::string(reinterpret_cast<const char*>(found[0].content.data()), found[0].content.size()),
      sixteen);
  EQUAL(found[1].name, "half");
  EQUAL(found[1].type, uint64_t{kFloat16});
  CHECK(found[1].shape == (std::vector<int64_t>{4, 2}));
  for (size_t size = 0; size < model.size(); ++size)
    CHECK(radserve::RawInitializers(std::as_bytes(std::span(model)).first(size), 16).size() <= 2);
}
END;

TEST("weights by which a graph multiplies are counted once each") {
  const auto node = [](const std::string& op, const std::string& a, const std::string& b) {
    return Bytes(1, Bytes(1, a) + Bytes(1, b) + Bytes(2, "y") + Bytes(4, op));
  };
  const auto weights = [](const std::string& name, uint64_t rows) {
    return Bytes(5, Number(1, rows) + Number(1, 10) + Number(2, kFloat32) + Bytes(8, name));
  };
  const std::string graph = node("MatMul", "x", "a") + node("Gemm", "x", "b") +
                            node("MatMul", "z", "a") + node("MatMul", "c", "x") +
                            node("Conv", "x", "d") + weights("a", 1) + weights("b", 20) +
                            weights("c", 300) + weights("d", 4000);
  const std::string model = Number(1, 8) + Bytes(7, graph);
  EQUAL(radserve::BytesOfFactors(std::as_bytes(std::span(model))), uint64_t{4 * 10 * (1 + 20)});
  EQUAL(radserve::BytesOfFactors({}), uint64_t{0});
}
END;

}  // namespace
