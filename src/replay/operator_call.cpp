#include "replay/operator_call.h"

#include <optional>
#include <utility>

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "device/device.h"
#include "device/dispatch_keys.h"
#include "memory/silent_warnings.h"
#include "observe/recorder.h"
#include "pytorch/raise.h"
#include "pytorch/tensors_of.h"
#include "replay/repeatability.h"

namespace remat {
namespace {

/// What may be between the caller and the kernel while backward runs, and was not when the operator was recorded, or
/// has done its part then: autocast, the user's dispatch modes, levels of torch.func.
const c10::DispatchKeySet kModeKeys =
    device::kAutocastKeys | c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                                                 c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                                                 c10::DispatchKey::FuncTorchDynamicLayerBackMode,
                                                 c10::DispatchKey::FuncTorchVmapMode, c10::DispatchKey::VmapMode});

/// Keys that a replay of `operation` passes by, where `excluded` are passed by now. A user's kernel at autograd's keys
/// may do more than call the one below, so it is called if it was. (No graph is made: nothing that a recompute passes
/// needs a gradient.)
c10::DispatchKeySet passed_by(const Operation& operation, const AutocastState& autocast, c10::DispatchKeySet excluded) {
  constexpr c10::DispatchKeySet kViews(c10::DispatchKey::ADInplaceOrView);
  const bool own = operation.info->own_autograd;
  excluded = excluded - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  if (!own || operation.below_autograd) excluded = excluded | c10::autograd_dispatch_keyset;
  if (!own || operation.below_views) excluded = excluded | kViews;
  return excluded | (autocast.any() ? kModeKeys - device::kAutocastKeys : kModeKeys);
}

StoragePtr empty_storage(const TensorView& view) {
  c10::Allocator* const allocator = c10::GetAllocator(device::type_of(view.keys));
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0, allocator, /*resizable=*/true);
}

/// The storage for an in-place operator: a copy of the whole old one, or the old one itself if this replay made it
/// and nobody will read the old contents any more.
StoragePtr to_write(HeldStorage& held) {
  const bool last_use = held.uses == 1 && held.storage.use_count() == 1;
  return last_use ? std::move(held.storage) : device::copy_of(*held.storage);
}

at::Tensor opaque_of(const Tape& tape, const TensorArgument& argument, const OperatorInfo& reader) {
  const at::Tensor& tensor = tape.program.opaque(argument);
  check_opaque(tensor, argument, reader);
  return tensor;
}

/// Of tensors that stand for others, negated or conjugated, or for zeros: kernels of their own change them first.
constexpr c10::DispatchKeySet kFlags({c10::DispatchKey::Negative, c10::DispatchKey::Conjugate,
                                      c10::DispatchKey::ZeroTensor});

/// Does a call with these arguments go to the kernel for dense tensors on the CPU, and to no other before it?
bool is_dense_on_host(const torch::jit::Stack& arguments) {
  bool dense = true;
  for (const c10::IValue& argument : arguments) {
    if (argument.isDevice()) dense = dense && device::is_host(argument.toDevice());
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      dense = dense && tensor.key_set().has(device::kHostKeys.kernels) && !tensor.key_set().has_any(kFlags);
    });
  }
  return dense;
}

template <class Build>
c10::IValue build_argument(const Program& program, const Argument& argument, Build&& build) {
  switch (argument.kind) {
    case Argument::Kind::kConstant:
      return program.constant(argument);
    case Argument::Kind::kTensor: {
      at::Tensor tensor = build(program.tensors(argument).front());
      return tensor.defined() ? c10::IValue(std::move(tensor)) : c10::IValue();
    }
    case Argument::Kind::kTensorList: {
      c10::List<at::Tensor> list;
      for (const TensorArgument& element : program.tensors(argument)) list.push_back(build(element));
      return list;
    }
    case Argument::Kind::kOptionalTensorList: {
      c10::List<std::optional<at::Tensor>> list;
      for (const TensorArgument& element : program.tensors(argument)) {
        at::Tensor tensor = build(element);
        list.push_back(tensor.defined() ? std::optional<at::Tensor>(std::move(tensor)) : std::nullopt);
      }
      return list;
    }
    case Argument::Kind::kStatistics:
      break;
  }
  if (argument.count == 0) return {};
  const c10::TensorImpl& statistics = *program.opaque(program.tensors(argument).front()).unsafeGetTensorImpl();
  return TensorView(statistics).over(device::copy_of(*storage_of(statistics)));
}

}  // namespace

OperatorCall::OperatorCall(Tape& tape, OperationId id, HeldStorages& held)
    : operation_(tape.program[id]), settings_(tape.program.settings(operation_)) {
  check_threads(tape, operation_, settings_);
  tape.program.for_each_tensor(operation_, [&](const TensorArgument& t, uint32_t) {
    if (t.value != kNoId) check_input(tape, t, held.at(t.value).storage, operation_);
  });
  build_stack(tape, held);
  if (operation_.generator != kNoId) generator_ = tape.program.generator(operation_);
  if (operation_.info->shortcut != nullptr) find_kept(tape);
}

void OperatorCall::run() {
  const AutocastScope autocast(settings_.autocast);
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  const c10::impl::ForceDispatchKeyGuard as_forward(keys.included_,
                                                    passed_by(operation_, settings_.autocast, keys.excluded_));
  const OperatorInfo& info = *operation_.info;
  const KernelSettingsScope settings_of_then(settings_, {.switches = info.switches,
                                                         .products = info.products,
                                                         .attention = info.foreign,
                                                         .default_type = operation_.reads_default_type});
  const c10::AutoGradMode grad_mode(operation_.grad_mode);
  const SilentWarnings silent;  // forward has warned
  std::optional<GeneratorRestorer> restorer;
  if (generator_.state.defined()) restorer.emplace(generator_);
  // The shortcut gives the bits of the kernel that was recorded; where that was replaced, call_kernel() sees to it.
  if (kept_.empty() || !info.is_current() || !info.shortcut->repeat(stack_, kept_)) call_kernel();
  if (restorer && !restorer->has_drawn_the_same()) {
    raise(Error("[replay] " + operation_.info->name +
                " drew other random numbers than in the forward pass: another thread used the same generator "
                "meanwhile, or the operator does not repeat; give threads generators of their own"));
  }
}

/// The one that was recorded, whatever has been registered since.
void OperatorCall::call_kernel() {
  const OperatorInfo& info = *operation_.info;
  const Recorder* const recorder = Recorder::current();
  const auto inner_calls = [&] { return recorder == nullptr ? 0 : recorder->inner_calls_that_run_once(); };
  const uint64_t before = inner_calls();
  if (info.is_current()) {
    info.handle.callBoxed(stack_);
  } else if (!info.registered || !is_dense_on_host(stack_) || !info.kernels.call_on_host(info.handle, stack_)) {
    refuse_replaced(info);
  }
  if (inner_calls() != before && !info.is_declared_repeatable()) refuse_replaced(info);
}

/// Finds what the operator's shortcut reads: all of it, or nothing.
void OperatorCall::find_kept(Tape& tape) {
  const Shortcut& shortcut = *operation_.info->shortcut;
  if (operation_.value_count != operation_.info->result_count) return;
  for (uint32_t result = shortcut.first; result < shortcut.first + shortcut.count; ++result) {
    const ValueId id = operation_.first_value + result;
    kept_.push_back(tape.values.readable(id));
    if (kept_.back() && tape.values[id].result == result) continue;
    kept_.clear();
    return;
  }
}

void OperatorCall::build_stack(const Tape& tape, HeldStorages& held) {
  // First what is written to: an argument that reads the same storage has to see the writes.
  ska::flat_hash_map<ValueId, StoragePtr> rewritten;
  tape.program.for_each_tensor(operation_, [&](const TensorArgument& t, uint32_t position) {
    if (!operation_.info->writes(position)) return;
    if (t.blank) written_.push_back(empty_storage(t.view));
    if (t.value == kNoId) return;
    auto [entry, first] = rewritten.emplace(t.value, StoragePtr());
    if (first) entry->second = to_write(held.at(t.value));
    written_.push_back(entry->second);
  });
  size_t blanks = 0;
  const auto build = [&](const TensorArgument& t) {
    if (t.blank) {
      while (written_[blanks]->nbytes() > 0) ++blanks;  // those that stand for values come with contents
      return t.view.over(written_[blanks++]);
    }
    if (t.shape_only) return t.view.shape_over(empty_storage(t.view));
    if (t.value == kNoId) return t.opaque == kNoId ? at::Tensor() : opaque_of(tape, t, *operation_.info);
    const auto entry = rewritten.find(t.value);
    return t.view.over(entry != rewritten.end() ? entry->second : held.at(t.value).storage);
  };
  for (const Argument& argument : tape.program.arguments(operation_)) {
    stack_.push_back(build_argument(tape.program, argument, build));
  }
}

}  // namespace remat
