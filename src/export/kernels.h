// src/export/kernels.h -- what runtime/c offers: the arguments, inputs and results of each kernel.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "export/step.h"

namespace remat::exporting {

struct KernelField {
  std::string_view name;
  int count = 1;  ///< of a list: how many numbers
  bool is_float = false;
  double least = 1, most = 268435456;  ///< of whole numbers
};

/// An input or a result.
struct KernelTensor {
  StepBuffer::Type type = StepBuffer::Type::kFloat;
  bool optional = false;
  bool sink = false;          ///< a gradient: given as a remat_sink, which may update the parameter at once
  bool in_place = false;      ///< an input that the result may lie over
  std::string_view elements;  ///< that are read or made, as of_elements() reads it
};

struct Kernel {
  std::string_view name;
  std::string_view structure;  ///< of its arguments: "conv2d" is remat_conv2d_t
  std::string_view file;       ///< that has it, without ".c"
  std::vector<KernelField> fields;
  std::vector<KernelTensor> inputs, results;
  bool workspace = false;  ///< takes some
  bool by_input = false;   ///< is called for each of any number of inputs, with one number of each list
};

/// nullptr: there is none of this name.
const Kernel* find_kernel(std::string_view name);

const std::vector<Kernel>& all_kernels();

/// Throws Error unless the call is one that its kernel takes: names, types, ranges of numbers. `index`: its place in
/// the step, for the message.
void check_call(const Step& step, size_t index);

}  // namespace remat::exporting
