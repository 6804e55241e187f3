#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/session.h"

namespace radserve {

/// The mean of what several graphs gave, tensor by tensor and element by element. The sums are
/// float32, in the order in which the graphs come, so that equal inputs give equal bits.
class Mean {
 public:
  explicit Mean(const BeforeMean& before) : before_(before) {}

  /// The outputs of the next graph; their memory is written to. Throws output_invalid for tensors
  /// that are not of floats, or of other shapes than those of the first graph.
  void Add(std::vector<Tensor> outputs);
  std::vector<Tensor> Take();

 private:
  const BeforeMean& before_;
  std::vector<Tensor> sums_;
  int graphs_ = 0;
};

/// A bucket over those of several graphs: what goes in goes into each, one graph after the other,
/// and what comes out is the mean.
std::unique_ptr<Bucket> MakeMeanBucket(std::vector<std::unique_ptr<Bucket>> graphs,
                                       const BeforeMean& before);

}  // namespace radserve
