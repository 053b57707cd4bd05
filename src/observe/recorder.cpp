#include "observe/recorder.h"

#include <array>
#include <exception>
#include <string_view>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/util/strides.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include "device/allocation.h"
#include "memory/ledger.h"
#include "pytorch/tensors_of.h"
#include "tape/generator_state.h"
#include "tape/trace.h"

namespace remat {
namespace {

/// What may be included in dispatch without changing results: PyTorch's own keys, those of Python's modes and of
/// torch.func, which is_plain() and dispatch_mode_enabled() look at.
constexpr c10::DispatchKeySet kKnownKeys =
    c10::default_included_set | c10::autocast_dispatch_keyset |
    c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                         c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                         c10::DispatchKey::FuncTorchDynamicLayerBackMode, c10::DispatchKey::FuncTorchVmapMode,
                         c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});

/// Does a dispatch mode, of Python's or a key with a fallback of the user's, stand between the caller and the kernel?
/// It may give other results than the operator, and replays run without it.
bool under_dispatch_mode() {
  return c10::impl::dispatch_mode_enabled() ||
         !(c10::impl::tls_local_dispatch_key_set().included_ - kKnownKeys).empty();
}

/// Does a tensor among the inputs, on `device`, need a gradient?
bool differentiates(c10::ArrayRef<const c10::IValue> inputs, std::optional<c10::Device> device) {
  if (!c10::GradMode::is_enabled()) return false;
  bool any = false;
  for (const c10::IValue& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& t) {
      any = any || (t.defined() && t.requires_grad() && (!device || t.device() == *device));
    });
  }
  return any;
}

bool below_autograd() {
  const auto excluded = c10::impl::tls_local_dispatch_key_set().excluded_;
  return excluded.has(c10::DispatchKey::ADInplaceOrView) || excluded.has(c10::DispatchKey::AutogradFunctionality);
}

/// Calls `visit` for every tensor that an operator writes to, or may write to.
template <class Visit>
void for_each_written(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs, Visit&& visit) {
  if (info.writes_arguments()) {
    for (const c10::IValue& input : inputs) for_each_tensor(input, visit);
    return;
  }
  for (const auto position : info.written) for_each_tensor(inputs[position], visit);
}

/// Does an operator read `storage`, besides writing to it?
bool reads(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs, const c10::StorageImpl* storage) {
  bool found = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (info.writes(i)) continue;
    for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      found = found || (tensor.defined() && tensor.has_storage() && storage_of(tensor) == storage);
    });
  }
  return found;
}

/// Is any input a tensor that wraps others (DTensor)? The operators that its class calls for their parts are recorded
/// then, and this one is not.
bool has_wrapper(c10::ArrayRef<const c10::IValue> inputs) {
  constexpr c10::DispatchKeySet kFunctorch(
      {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  bool found = false;
  for (const c10::IValue& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
      found = found || impl.is_python_dispatch() || impl.key_set().has_any(kFunctorch);
    });
  }
  return found;
}

/// Nodes of autograd's graph that only call the operator.
constexpr std::array<std::string_view, 2> kReusingNodes = {"LogSoftmaxBackward0", "SoftmaxBackward0"};

/// Held while a kernel of the meta device runs.
struct MetaKernel final : at::ObserverContext {};

}  // namespace

void Recorder::announce_write(const at::Tensor& tensor) {
  const std::lock_guard lock(tape_->mutex);
  before_write(tensor);
}

void Recorder::begin_compiled() {
  const std::lock_guard lock(tape_->mutex);
  if (++compiled_ == 1) first_compiled_ = tape_->values.size();
}

void Recorder::end_compiled() {
  if (--compiled_ == 0) first_compiled_ = SIZE_MAX;
}

void Recorder::count(c10::ArrayRef<const c10::IValue> values) {
  if (tape_->values.ledger == nullptr) return;
  const auto adopt = [&](const at::Tensor& tensor) {
    if (tensor.defined() && is_plain(tensor))
      tape_->counts.adopted_bytes += tape_->values.ledger->adopt(*storage_of(tensor));
  };
  for (const auto& value : values) for_each_tensor(value, adopt);
}

void Recorder::offer_gradient(c10::ArrayRef<const c10::IValue> inputs) {
  offered_ = nullptr;
  const at::Tensor& gradient = inputs[0].toTensor();
  if (!is_plain(gradient) || !covers_storage(gradient) || under_dispatch_mode()) return;
  if (gradient.scalar_type() != inputs[3].toScalarType()) return;
  // Plain's result has these, and kernels that read it may look at the strides of dimensions of size 1, too.
  if (gradient.strides() != c10::contiguous_strides(gradient.sizes())) return;
  // A function of the user's that calls the operator may go on to use the gradient.
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr || std::ranges::find(kReusingNodes, node->name()) == kReusingNodes.end()) return;
  const std::lock_guard lock(tape_->mutex);
  const c10::StorageImpl* const storage = storage_of(gradient);
  if (tape_->values.find(storage) != kNone) return;
  if (!tape_->meta) {
    // Memory that is a user's may be read again, or not writable.
    if (memory::is_own_memory(*storage)) offered_ = storage;
  } else if (tape_->trace != nullptr && gradient.use_count() <= 3 && gradient.storage().use_count() == 1) {
    // `inputs` has it, too, and Python's object where the meta device's kernel before was in Python.
    tape_->trace->reused(static_cast<int64_t>(storage->nbytes()), storage->data());
  }
}

bool Recorder::reuses(const at::Tensor& gradient) {
  const c10::StorageImpl* const offered = std::exchange(offered_, nullptr);
  if (offered == nullptr || is_suspended() || storage_of(gradient) != offered) return false;
  if (gradient.use_count() != 1 || gradient.storage().use_count() != 1) return false;
  const auto bytes = static_cast<int64_t>(offered->nbytes());
  const std::lock_guard lock(tape_->mutex);
  if (tape_->values.ledger != nullptr) tape_->values.ledger->plain_rises(bytes);
  if (tape_->trace != nullptr) tape_->trace->reused(bytes, nullptr);
  return true;
}

bool Recorder::begins_to_write() {
  Recorder* writer = nullptr;
  return tape_->writer.load(std::memory_order_relaxed) == this || tape_->writer.compare_exchange_strong(writer, this);
}

void Recorder::end_writing() noexcept {
  Recorder* writer = this;
  if (pending_.empty()) tape_->writer.compare_exchange_strong(writer, nullptr);
}

std::unique_ptr<at::ObserverContext> Recorder::on_start(const at::RecordFunction& fn) {
  Recorder* recorder = current();
  if (recorder == nullptr) {
    join_backward();
    recorder = current();
  }
  // Backward has put the callback of a step back that ended in it (Python's calls do not come by left_backward()).
  if (recorder == nullptr && torch::autograd::get_current_graph_task_id() == -1) left_backward();
  if (recorder == nullptr) return nullptr;
  // The C++ factories (torch::randn ...) call their operators below autograd: at the outermost level those count too.
  if (recorder->suspended_ > 0 || (below_autograd() && !recorder->pending_.empty())) {
    recorder->note_inner_call(fn);
    return nullptr;
  }
  const Suspension own_calls_pass(recorder);  // detaching a sparse tensor calls operators
  const OperatorInfo* const info = operator_info(fn);
  if (info == nullptr) return nullptr;
  const auto inputs = info->arguments(fn);
  const bool inside = !recorder->pending_.empty();
  if (inside && info->spoils_outer(inputs, at::get_num_threads())) recorder->keep_outer();
  if (info->reshapes) return recorder->begin_reshape(inputs[0].toTensor());
  const StepExtent* const extent = recorder->tape_->extent.get();
  // An evaluation while a result waits for its backward pass: nothing of it is worth a record.
  const bool evaluates = extent != nullptr && extent->is_between_calls() && !c10::GradMode::is_enabled();
  // With create_graph backward is a forward pass for another one.
  const bool in_backward = torch::autograd::get_current_graph_task_id() != -1 && !c10::GradMode::is_enabled();
  const bool unrecorded = in_backward || evaluates || recorder->opaque_ > 0 || !recorder->begins_to_write();
  if (info->never_recorded || unrecorded) recorder->count(inputs);
  if (info->never_recorded) return nullptr;
  if (unrecorded) {
    if (in_backward && info->reuses_gradient) recorder->offer_gradient(inputs);
    if (!info->written.empty() || info->writes_arguments() || info->updates_statistics(inputs)) {
      const std::lock_guard lock(recorder->tape_->mutex);
      recorder->before_writes(*info, inputs);
    }
    return nullptr;
  }
  if (!has_wrapper(inputs)) recorder->begin(fn, *info, inputs);
  return nullptr;
}

std::unique_ptr<at::ObserverContext> Recorder::on_meta_kernel_start(const at::RecordFunction& fn) {
  Recorder* const recorder = current();
  if (recorder == nullptr || recorder->tape_->trace == nullptr) return nullptr;
  const OperatorInfo* const info = operator_info(fn);
  if (info == nullptr || info->never_recorded) return nullptr;
  recorder->tape_->trace->kernel_begins();
  return std::make_unique<MetaKernel>();
}

void Recorder::on_meta_kernel_end(const at::RecordFunction& /*fn*/, at::ObserverContext* context) {
  Recorder* const recorder = current();
  if (context != nullptr && recorder != nullptr && recorder->tape_->trace != nullptr) {
    recorder->tape_->trace->kernel_ends();
  }
}

void Recorder::on_end(const at::RecordFunction& fn, at::ObserverContext* context) {
  Recorder* const recorder = current();
  if (recorder == nullptr) return;
  if (context != nullptr) return recorder->end_reshape(*context);
  if (recorder->pending_.empty() || recorder->pending_.back().fn != &fn) return;
  const auto now = std::chrono::steady_clock::now();
  const Suspension own_calls_pass(recorder);
  Pending pending = std::move(recorder->pending_.back());
  recorder->pending_.pop_back();
  const WritingEnds at_last(*recorder);
  if (pending.began) pending.ended = recorder->tape_->times->mark();
  pending.operation.seconds = std::chrono::duration<float>(now - pending.begin).count();
  recorder->end(pending, pending.info->results(fn));
}

void Recorder::begin(const at::RecordFunction& fn, const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs) {
  Tape& tape = *tape_;
  if (scopes_.follow_modules()) {
    scopes_.enter_module(inputs);
    scopes_changed();
  }
  // Before the tape is locked: its caller may hold the generator's mutex, and others wait for that with the tape's.
  std::unique_ptr<DrawSection> draws;
  if (info.random || info.may_draw()) {
    draws = std::make_unique<DrawSection>(info.foreign ? &info.meets_threads : nullptr);
    const std::lock_guard lock(tape.mutex);
    tape.drop_idle();  // plain has freed these, and the state's allocation may ask for what is alive
  }
  bool no_room = false;
  auto generator = generator_before(info, inputs, no_room);
  at::Generator second = second_generator(info, inputs);
  if (second.defined() && !is_free(second)) generator.reset();
  const uint64_t second_state = generator && second.defined() ? state_checksum(second) : 0;
  const std::lock_guard lock(tape.mutex);
  if (no_room) tape.note_forgotten();
  tape.drop_idle();

  // An operator that writes to a leaf is not recorded: what it leaves behind is another leaf.
  bool writes_leaf = false;
  for_each_written(info, inputs, [&](const at::Tensor& tensor) {
    if (!tensor.defined() || is_blank(tensor)) return;
    const ValueId id = is_plain(tensor) ? tape.values.find(storage_of(tensor)) : kNone;
    const bool known = id != kNone && !tape.values[id].written_unseen();
    // Inside of another operator memory may be scratch, the rest of which that one fills through a pointer.
    const bool overwrites = known && info.overwrites && (pending_.empty() || covers_storage(tensor)) &&
                            !reads(info, inputs, storage_of(tensor));
    writes_leaf = writes_leaf || !known || !tape.values.accept_write(id, tensor, overwrites);
  });
  before_writing_statistics(info, inputs);

  Pending& pending = pending_.emplace_back();
  if (tape.extent != nullptr && tape.extent->is_between_calls()) pending.history = history_of(inputs);
  pending.fn = &fn;
  pending.info = &info;
  pending.updates_statistics = info.updates_statistics(inputs);
  pending.draws = std::move(draws);
  if (second_state != 0) pending.default_generator = std::move(second);
  pending.default_drawn = second_state;
  pending.inside_wrapper = below_autograd() && compiled_ == 0;
  pending.exceptions = std::uncaught_exceptions();
  pending.before = tape.program.mark();
  pending.values = tape.values.size();
  if (pending_.size() == 1) {
    tape.captured_values = pending.values;
    tape.captured_tensors = pending.before.tensors;
  }
  pending.operation.info = &info;
  pending.operation.first_argument = static_cast<uint32_t>(pending.before.arguments);
  pending.operation.grad_mode = c10::GradMode::is_enabled();
  const auto left_out = c10::impl::tls_local_dispatch_key_set().excluded_;
  pending.operation.below_autograd = left_out.has(c10::DispatchKey::AutogradFunctionality);
  pending.operation.below_views = left_out.has(c10::DispatchKey::ADInplaceOrView);
  pending.operation.settings = tape.program.add_settings(info);
  const int threads = tape.program.settings(pending.operation).threads.kernels;
  const bool under_mode = under_dispatch_mode();
  if (under_mode && pending.operation.grad_mode) ++tape.counts.under_mode;
  tape.counts.differentiates = tape.counts.differentiates || differentiates(inputs, tape.values.device);
  pending.repeatable = generator && info.repeats(inputs, threads) && !writes_leaf && !under_mode;
  // Other threads would see what a replay sets.
  if (several_threads_run_operators() && tape.program.reads_changed_switches(pending.operation)) {
    pending.repeatable = false;
  }
  find_default_type(pending, inputs);
  try {
    for (size_t i = 0; i < inputs.size() && pending.repeatable; ++i) capture_argument(pending, i, inputs[i]);
    if (!pending.unheld.empty() && !pending.writes.empty()) pending.repeatable = false;
    if (pending.repeatable && generator->state.defined()) keep_generator(pending, std::move(*generator));
  } catch (...) {  // no memory for a copy or a generator's state: do without them
    pending.repeatable = false;
    tape.note_forgotten();
  }
  {
    const memory::FrozenPlain frozen;  // as it was made
    generator.reset();
  }
  if (!pending.repeatable) {
    count(inputs);
    for_each_written(info, inputs, [&](const at::Tensor& tensor) {
      before_write(tensor);
      if (tensor.defined() && tensor.has_storage()) pending.unrecorded.push_back(storage_of(tensor));
    });
  }
  if (info.collective) {
    for_each_written(info, inputs, [&](const at::Tensor& tensor) { pending.communicated.push_back(tensor); });
  }
  if (!tape.meta && OperatorTrial::is_due(info)) pending.trial = OperatorTrial(info, inputs);
  pending.after = tape.program.mark();
  pending.operation.argument_count = static_cast<uint32_t>(pending.after.arguments - pending.before.arguments);
  if (tape.trace != nullptr) tape.trace->operator_begins();
  if (tape.times) pending.began = tape.times->mark();
  pending.begin = std::chrono::steady_clock::now();
}

void Recorder::note_inner_call(const at::RecordFunction& fn) {
  const OperatorInfo* const info = operator_info(fn);
  if (info == nullptr || !info->runs_once(info->arguments(fn))) return;
  ++inner_calls_that_run_once_;
  if (suspended_ == 0) keep_outer();
}

void Recorder::keep_outer() {
  for (Pending& outer : pending_) outer.repeatable = outer.repeatable && outer.info->is_declared_repeatable();
}

PolicyScopes::Id Recorder::push_scope(PolicyRules rules) {
  const PolicyScopes::Id id = scopes_.open(std::move(rules));
  scopes_changed();
  return id;
}

PolicyScopes::Id Recorder::push_scope(ModulePlaces modules) { return scopes_.open(std::move(modules)); }

void Recorder::pop_scope(PolicyScopes::Id id) {
  scopes_.close(id);
  scopes_changed();
}

void Recorder::scopes_changed() {
  const PolicyScopes::Region region = scopes_.outermost();
  if (region == root_region_) return;
  root_region_ = region;
  const std::lock_guard lock(tape_->mutex);
  if (root_scope_ != 0) tape_->close_scope(root_scope_);
  root_scope_ = region == PolicyScopes::Region() ? 0 : tape_->open_scope();
}

void Recorder::before_writes(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs) {
  for_each_written(info, inputs, [&](const at::Tensor& tensor) { before_write(tensor); });
  before_writing_statistics(info, inputs);
}

void Recorder::before_writing_statistics(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs) {
  if (!info.updates_statistics(inputs)) return;
  for (const auto s : info.statistics) {
    if (inputs[s].isTensor()) before_write(inputs[s].toTensor());
  }
}

}  // namespace remat
