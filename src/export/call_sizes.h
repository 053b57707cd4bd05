// src/export/call_sizes.h -- how much of its buffers a call reads and writes, by its arguments: nothing in C checks it.
#pragma once

#include <string_view>

#include "export/kernels.h"
#include "export/step.h"

namespace remat::exporting {

/// How many elements a text of the table of kernels stands for, with a call's arguments:
/// - "n*c/g" a product of arguments (a list counts as the product of its numbers), numbers, and "/" an argument;
/// - "m:am,k:ak" from where a tensor with sizes and strides begins to its last element;
/// - "n|reduction" n where that argument is 0, else 1.
/// `input`: of which lists that have a number for each input are read. -1: the text is none of those.
double elements_of(const Kernel& kernel, const StepOperator& call, std::string_view text, size_t input = 0);

/// Throws Error unless all that the call reads and writes is within its buffers, its workspace, and its results are
/// made whole. check_call() was content with it.
void check_sizes(const Step& step, size_t index);

}  // namespace remat::exporting
