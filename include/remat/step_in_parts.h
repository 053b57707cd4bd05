// remat/step_in_parts.h -- an optimizer's step whose temporary tensors are small.
#pragma once

namespace torch::optim {
class Optimizer;
}

namespace remat {

/// As `optimizer.step()`, with the same bits, in parts of 2,097,152 elements: AdamW's own takes two tensors of the size
/// of the parameter for a moment, 300 MB for the embedding of GPT-2 small, which is often the peak of a training.
/// `optimizer`: SGD, Adam, AdamW, RMSprop or Adagrad. Parameters that are not contiguous, have a sparse gradient, or
/// whose state somebody has laid out otherwise are updated at once. Throws Error for another optimizer. Not
/// thread-safe.
void step_in_parts(torch::optim::Optimizer& optimizer);

}  // namespace remat
