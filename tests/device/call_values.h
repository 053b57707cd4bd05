// tests/device/call_values.h -- the arguments and results of an operator, whose tensors are replaced by others.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

namespace remat::simulated {

/// The device that a call works on: that of its tensors, else the one it names, else the current one. Throws where its
/// tensors are on several, but for numbers on the CPU, and what indexing and packing take from there.
c10::Device device_of_call(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

/// The tensors of arguments, each with the one that stands for it. The same tensor has one.
class Replacements {
 public:
  /// The stand-in of a tensor that was asked for before, or what `make` returns.
  template <class Make>
  at::Tensor replace(const at::Tensor& tensor, Make make) {
    for (const auto& [original, stand_in] : pairs_) {
      if (original.is_same(tensor)) return stand_in;
    }
    pairs_.emplace_back(tensor, make(tensor));
    return pairs_.back().second;
  }
  /// The tensor that this one stands for, undefined if none.
  at::Tensor original_of(const at::Tensor& stand_in) const {
    for (const auto& [original, replaced] : pairs_) {
      if (replaced.is_same(stand_in)) return original;
    }
    return {};
  }
  const std::vector<std::pair<at::Tensor, at::Tensor>>& pairs() const { return pairs_; }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
};

/// A value with each defined tensor in it replaced by what `replace` returns. Undefined ones stay; lists of numbers and
/// strings are copied, so that the result shares nothing and another thread can have it.
template <class Replace>
c10::IValue with_tensors(const c10::IValue& value, Replace replace) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() ? c10::IValue(replace(tensor)) : value;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(tensor.defined() ? replace(tensor) : tensor);
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor && tensor->defined() ? std::optional(replace(*tensor)) : std::nullopt);
    }
    return list;
  }
  if (value.isString()) return std::string(value.toStringView());
  return value.isList() ? value.deepcopy() : value;
}

/// The arguments for the CPU's kernel: tensors are replaced by replace(tensor, whether the operator says it writes to
/// them), devices by the CPU, the generator by `generator`.
template <class Replace>
torch::jit::Stack for_cpu(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                          const c10::IValue& generator, Replace replace) {
  torch::jit::Stack changed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& argument = op.schema().arguments()[i];
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (argument.name() == "generator") {
      changed.push_back(generator);
    } else if (arguments[i].isDevice()) {
      changed.emplace_back(c10::Device(c10::kCPU));
    } else {
      changed.push_back(with_tensors(arguments[i], [&](const at::Tensor& tensor) { return replace(tensor, written); }));
    }
  }
  return changed;
}

}  // namespace remat::simulated
