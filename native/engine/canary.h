#pragma once

#include <vector>

#include "base/tensor.h"
#include "runtime/session.h"

namespace radserve {

/// Tensors that go into a model, and those that must come out: |found - expected| <= absolute + relative * |expected| for
/// each element.
struct Canary {
  std::vector<Tensor> feeds;
  std::vector<Tensor> expected;
  double absolute = 0;
  double relative = 0;
};

/// Throws model_unavailable if something else comes out; what Session::Run throws.
void CheckCanary(const Session& session, const Canary& canary);

}  // namespace radserve
