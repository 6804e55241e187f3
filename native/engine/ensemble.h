#pragma once

#include "engine/image_model.h"
#include "runtime/session.h"

namespace radserve {

/// Moves the activations of a model's outputs to before the mean of its graphs: what is given back
/// activates what each graph gave, and the outputs, each with a tensor of its own, take the mean as
/// activated. It throws output_invalid for a map whose shape does not fit.
BeforeMean TakeActivations(ImageModel& model);

}  // namespace radserve
