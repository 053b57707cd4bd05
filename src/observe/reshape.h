// src/observe/reshape.h -- operators that change sizes and strides in place, such as squeeze_(): autograd counts them
// as writes, and they are none.
#pragma once

#include <memory>

#include <ATen/record_function.h>

#include "tape/tape.h"

namespace remat {

/// Such an operator is about to run on `tensor`. Null where the tape does not know the tensor's contents.
std::unique_ptr<at::ObserverContext> begin_reshape(Tape& tape, const at::Tensor& tensor);
/// It has run: the version count goes up by one, and the contents are what they were.
void end_reshape(Tape& tape, const at::ObserverContext& context);

}  // namespace remat
