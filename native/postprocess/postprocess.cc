#include "postprocess/postprocess.h"

#include "base/error.h"
#include "postprocess/kind.h"

namespace radserve {

void InvalidOutput(const Tensor& tensor, const std::string& expected) {
  throw EngineError("output_invalid", "Expected " + expected + " from the output \"" + tensor.name +
                                          "\", found shape " + ShapeText(tensor.shape) + ".");
}

OutputResult Postprocess(const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
                         std::span<const double> thresholds) {
  OutputResult out;
  out.kind = spec.kind;
  out.tensor = spec.tensor;
  out.rows = grid.geometry.source_rows;
  out.columns = grid.geometry.source_columns;
  spec.kind->decode(spec, tensors, grid, thresholds, out);
  return out;
}

}  // namespace radserve
