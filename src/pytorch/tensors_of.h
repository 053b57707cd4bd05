// src/pytorch/tensors_of.h -- the tensors among an operator's arguments and results.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "device/device.h"

namespace remat {

/// Calls `visit` for the tensor that `value` is, or for every tensor in the collection (of collections) that it is, or
/// in the attributes of TorchScript's object. Objects of C++ classes are not looked into. Objects may hold themselves:
/// what is deeper than `levels` is left out.
template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit, int levels = 8) {
  if (value.isTensor()) {
    visit(value.toTensor());
    return;
  }
  if (!value.isPtrType() || levels == 0) return;
  const auto enter = [&](const c10::IValue& part) { for_each_tensor(part, visit, levels - 1); };
  if (value.isIntList() || value.isDoubleList() || value.isBoolList()) return;
  if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) enter(element);
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) enter(element);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      enter(entry.key());
      enter(entry.value());
    }
  } else if (value.isObject()) {
    for (const c10::IValue& attribute : value.toObjectRef().slots()) enter(attribute);
  }
}

/// Does an operator with these arguments compute on another device than the CPU? True too where no tensor tells.
inline bool may_be_on_device(c10::ArrayRef<const c10::IValue> arguments) {
  bool device = false, elsewhere = false;
  for (const auto& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.defined()) (device::has_streams(tensor.device()) ? device : elsewhere) = true;
    });
  }
  return device || !elsewhere;
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
