#include "runtime/weights.h"

#include "check.h"
#include "onnx.h"

namespace {

using radserve::CountWeights;
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

WeightCount Count(const std::string& model) { return CountWeights(std::as_bytes(std::span(model))); }

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
  for (size_t size = 0; size < model.size(); ++size) EQUAL(Count(model.substr(0, size)).float32, uint64_t{0});
  EQUAL(Count(std::string(64, '\xff')).float32, uint64_t{0});
  EQUAL(CountWeights(std::string("/nowhere")).float32, uint64_t{0});
}
END;

}  // namespace
