#pragma once

#include <vector>

#include "postprocess/output.h"
#include "prepare/input.h"
#include "runtime/session.h"

namespace radserve {

/// Moves the activations of a model's outputs to before the mean of its graphs: what is given back
/// activates what each graph gave, and the outputs, each with a tensor of its own, take the mean as
/// activated.
BeforeMean TakeActivations(std::vector<OutputSpec>& outputs, const std::vector<InputSpec>& inputs);

}  // namespace radserve
