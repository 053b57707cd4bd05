// What the default type (torch.set_default_dtype()) decides: the type of what factories make that are given none, and
// what operators compute in that turn integers into floating-point numbers.
#include "tape/default_type.h"

#include "pytorch/tensors_of.h"

namespace remat {
namespace {

bool is_floating(at::ScalarType type) { return at::isFloatingType(type) || at::isComplexType(type); }

}  // namespace

void find_default_type(Call& call, c10::ArrayRef<const c10::IValue> inputs) {
  const OperatorInfo& info = *call.info;
  bool floating = false;
  for (const c10::IValue& input : inputs) {
    const bool number = input.isDouble() || input.isComplexDouble();
    call.scalar_of_default_type = call.scalar_of_default_type || number;
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !is_floating(tensor.scalar_type())) return;
      const bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
      (wrapped ? call.scalar_of_default_type : floating) = true;
    });
  }
  const bool given = info.dtype_argument >= 0 && !inputs[static_cast<size_t>(info.dtype_argument)].isNone();
  // The code of an operator that is not PyTorch's may ask for it at any time, and a factory whatever its inputs are
  // (linspace between two tensors).
  call.operation.reads_default_type = info.foreign || (!given && (info.takes_options || !floating));
}

void settle_default_type(Call& call, const CallEnd& end, Program& program) {
  Operation& operation = call.operation;
  if (!operation.reads_default_type || !call.repeatable) return;
  const OperatorInfo& info = *call.info;
  if (!info.foreign) {
    std::optional<at::ScalarType> made;
    for_each_result(end.outputs, [&](const at::Tensor& t) {
      if (t.defined() && is_floating(t.scalar_type())) made = t.scalar_type();
    });
    if (made && info.dtype_argument >= 0 && (info.takes_options || !call.reads)) {
      program.set_constant(operation, static_cast<size_t>(info.dtype_argument), static_cast<int64_t>(*made));
      made.reset();
      call.scalar_of_default_type = false;
    }
    operation.reads_default_type = made.has_value() || call.scalar_of_default_type;
  }
  const bool changed = program.settings(operation).default_type != program.first_settings().default_type;
  // Other threads would see what a replay sets.
  if (operation.reads_default_type && changed && end.several_threads) call.repeatable = false;
}

}  // namespace remat
