#ifndef RADSERVE_BUCKET_H_
#define RADSERVE_BUCKET_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "base/tensor.h"

namespace radserve {

/// A prepared place for batches of one shape on one device, reused for every run (CUDA: pinned host memory,
/// bound with IoBinding). Of use to one thread at a time. Keeps its session alive.
class Bucket {
 public:
  virtual ~Bucket() = default;
  /// Rows that one run can hold.
  virtual int64_t capacity() const = 0;
  /// Where one row of an input is written, in the order of the graph's inputs; row-major, without the batch
  /// dimension. The memory for it is made when it is first asked for.
  virtual std::span<std::byte> Row(size_t input, int64_t row) = 0;
  /// Runs the first `rows` rows; those beyond are padding, whose content decides nothing. Stops between nodes
  /// when `stop` is requested. Throws EngineError: OutOfMemory where a smaller batch may succeed,
  /// output_invalid where the outputs do not have one row for each row that went in.
  virtual void Run(int64_t rows, const std::stop_token& stop) = 0;
  /// How many rows a run of `rows` reads, padding included.
  virtual int64_t Reads(int64_t rows) const = 0;
  /// The same without a place of its own, for graphs of one input: `data` is as many rows as Reads says, one
  /// after the other, in memory of Session::MakeRows.
  virtual void RunOver(std::span<std::byte> data, int64_t rows, const std::stop_token& stop) = 0;
  /// The outputs of one row of the last run, in the order asked for: copies, each of shape [1, ...]. Of a
  /// bucket of capacity 1 they are the outputs whole, whatever their shape.
  virtual std::vector<Tensor> TakeRow(int64_t row) = 0;
  /// On the CPU, whether the next runs may use all cores; they use the calling thread alone unless set.
  virtual void SetWide(bool /*wide*/) {}
};

}  // namespace radserve

#endif  // RADSERVE_BUCKET_H_
