// src/observe/softmax_backward.h -- the backward pass of softmax and log_softmax in the memory of the gradient.
//
// Plain has three tensors of the logits' size there: the saved result, its gradient and that of the input. With a large
// vocabulary this is often the peak of the whole step, and nothing that may be dropped is among them. The kernels give
// the same bits where the result is written over the gradient (tests/observe/softmax_backward_test.cpp).
#pragma once

namespace remat {

/// From now on these operators write their result over the gradient on the CPU, where a step is in progress and
/// Recorder::reuses() allows it. Otherwise they are PyTorch's own. Leaves an operator alone whose kernel is not
/// PyTorch's.
void install_softmax_backward();

}  // namespace remat
