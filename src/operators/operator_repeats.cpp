// Which calls of an operator give the same bits each time.
#include <algorithm>
#include <limits>

#include <ATen/Context.h>
#include <ATen/TensorIterator.h>

#include "operators/operator_info.h"
#include "pytorch/autocast_state.h"
#include "pytorch/tensors_of.h"

namespace remat {
namespace {

/// Infinite where that is a symbol, as in what torch.compile traces.
double elements_of(const at::Tensor& tensor) {
  const auto known = tensor.sym_numel().maybe_as_int();
  return known ? static_cast<double>(*known) : std::numeric_limits<double>::infinity();
}

}  // namespace

bool OperatorInfo::calls_opaque(c10::ArrayRef<const c10::IValue> inputs) const {
  return kernels.opaque() || (kernels.opaque_under_autocast() && AutocastState::current().any()) ||
         (kernels.opaque_on_device() && !kernels.pytorch_python_on_device() && may_be_on_device(inputs));
}

bool OperatorInfo::runs_once(c10::ArrayRef<const c10::IValue> inputs) const {
  const Declared said = declared.load(std::memory_order_relaxed);
  if (collective || several_generators || contradicted || meets_threads) return true;
  if (said != Declared::kNothing) return said != Declared::kRepeatable;
  if (varies) return true;
  return calls_opaque(inputs) && !name.starts_with("prims::");
}

bool OperatorInfo::repeats(c10::ArrayRef<const c10::IValue> inputs, int threads) const {
  if (!repeatable() || may_race(inputs, threads)) return false;
  if (is_declared_repeatable()) return true;
  return !calls_opaque(inputs) && !(kernels.pytorch_python_on_device() && may_be_on_device(inputs));
}

bool OperatorInfo::may_race(c10::ArrayRef<const c10::IValue> inputs, int threads) const {
  if (races_on_device && may_be_on_device(inputs)) return !at::globalContext().deterministicAlgorithms();
  if (!races || threads == 1) return false;
  // Kernels for fewer elements than the grain run on one thread. Several index tensors are broadcast to one another.
  double elements = 0, indices = 1;
  for (const auto& input : inputs) {
    if (input.isTensor() && input.toTensor().defined()) {
      elements = std::max(elements, elements_of(input.toTensor()));
    } else if (input.isTensorList() || input.isOptionalTensorList()) {
      for (const c10::IValue& element : input.toListRef()) {
        if (element.isTensor()) indices *= std::max(1.0, elements_of(element.toTensor()));
      }
    }
  }
  return elements * indices >= static_cast<double>(at::internal::GRAIN_SIZE);
}

}  // namespace remat
