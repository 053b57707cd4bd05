// src/record/tensors_of.h -- the tensors among an operator's arguments and results.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace remat {

/// Calls `visit` for the tensor that `value` is, or for every tensor in the list (of lists) that it is.
template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isNone()) continue;
      if (!element.isTensor() && !element.isList()) return;  // of numbers
      for_each_tensor(element, visit);
    }
  }
}

/// Does an operator with these arguments compute on CUDA? True too where no tensor tells.
inline bool may_be_on_cuda(c10::ArrayRef<const c10::IValue> arguments) {
  bool cuda = false, elsewhere = false;
  for (const auto& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.defined()) (tensor.is_cuda() ? cuda : elsewhere) = true;
    });
  }
  return cuda || !elsewhere;
}

/// Calls `visit` for every tensor among an operator's results. Their order is that of `Value::result`.
template <class Values, class Visit>
void for_each_result(const Values& outputs, Visit&& visit) {
  for (const auto& output : outputs) {
    if (output.isTensor()) {
      visit(output.toTensor());
    } else if (output.isTensorList()) {
      for (const at::Tensor& tensor : output.toTensorVector()) visit(tensor);
    }
  }
}

}  // namespace remat
