#include "observe/recorder.h"

#include <exception>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include "device/allocation.h"
#include "memory/ledger.h"
#include "observe/reshape.h"
#include "pytorch/known_modes.h"
#include "pytorch/tensors_of.h"
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
  return (c10::impl::dispatch_mode_enabled() && c10::impl::TorchDispatchModeTLS::stack_len() > known_modes()) ||
         !(c10::impl::tls_local_dispatch_key_set().included_ - kKnownKeys).empty();
}

bool below_autograd() {
  const auto excluded = c10::impl::tls_local_dispatch_key_set().excluded_;
  return excluded.has(c10::DispatchKey::ADInplaceOrView) || excluded.has(c10::DispatchKey::AutogradFunctionality);
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

/// Held while a kernel of the meta device runs.
struct MetaKernel final : at::ObserverContext {};

}  // namespace

void Recorder::announce_write(const at::Tensor& tensor) {
  const std::lock_guard lock(tape_->mutex);
  calls_.before_write(tensor);
}

void Recorder::begin_compiled() {
  const std::lock_guard lock(tape_->mutex);
  calls_.begin_compiled();
}

void Recorder::end_compiled() {
  const std::lock_guard lock(tape_->mutex);
  calls_.end_compiled();
}

void Recorder::offer_gradient(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs) {
  offered_ = nullptr;
  const at::Tensor& gradient = inputs[0].toTensor();
  if (!is_plain(gradient) || !covers_storage(gradient) || under_dispatch_mode()) return;
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr || !info.reuses_gradient(inputs, node->name())) return;
  const std::lock_guard lock(tape_->mutex);
  const c10::StorageImpl* const storage = storage_of(gradient);
  if (tape_->values.find(storage) != kNoId) return;
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
  if (running_.empty()) tape_->writer.compare_exchange_strong(writer, nullptr);
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
  if (recorder->suspended_ > 0 || (below_autograd() && !recorder->running_.empty())) {
    recorder->note_inner_call(fn);
    return nullptr;
  }
  const Suspension own_calls_pass(recorder);  // detaching a sparse tensor calls operators
  const OperatorInfo* const info = operator_info(fn);
  if (info == nullptr) return nullptr;
  const auto inputs = info->arguments(fn);
  const bool inside = !recorder->running_.empty();
  if (inside && info->spoils_outer(inputs, at::get_num_threads())) recorder->calls_.keep_running_calls();
  if (info->reshapes) return begin_reshape(*recorder->tape_, inputs[0].toTensor());
  const StepExtent* const extent = recorder->tape_->extent.get();
  // An evaluation while a result waits for its backward pass: nothing of it is worth a record.
  const bool evaluates = extent != nullptr && extent->is_between_calls() && !c10::GradMode::is_enabled();
  // With create_graph backward is a forward pass for another one.
  const bool in_backward = torch::autograd::get_current_graph_task_id() != -1 && !c10::GradMode::is_enabled();
  const bool unrecorded = in_backward || evaluates || recorder->opaque_ > 0 || !recorder->begins_to_write();
  if (info->never_recorded || unrecorded) count_older(*recorder->tape_, inputs);
  if (info->never_recorded) return nullptr;
  if (unrecorded) {
    if (in_backward && info->reuses_gradient != nullptr) recorder->offer_gradient(*info, inputs);
    if (!info->written.empty() || info->writes_arguments() || info->updates_statistics(inputs)) {
      const std::lock_guard lock(recorder->tape_->mutex);
      recorder->calls_.before_writes(*info, inputs);
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
  if (context != nullptr) return end_reshape(*recorder->tape_, *context);
  if (recorder->running_.empty() || recorder->running_.back().fn != &fn) return;
  const Suspension own_calls_pass(recorder);
  Running running = std::move(recorder->running_.back());
  recorder->running_.pop_back();
  const WritingEnds at_last(*recorder);
  recorder->end(std::move(running), recorder->calls_.last().results(fn));
}

void Recorder::begin(const at::RecordFunction& fn, const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs) {
  if (scopes_.follow_modules()) {
    scopes_.enter_module(inputs);
    scopes_changed();
  }
  Running running;
  running.fn = &fn;
  // Before the tape is locked: its caller may hold the generator's mutex, and others wait for that with the tape's.
  if (info.random || info.may_draw()) {
    running.draws = std::make_unique<DrawSection>(info.foreign ? &info.meets_threads : nullptr);
    const std::lock_guard lock(tape_->mutex);
    tape_->drop_idle();  // plain has freed these, and the state's allocation may ask for what is alive
  }
  running.generators = CallGenerators(info, inputs);
  if (tape_->extent != nullptr && tape_->extent->is_between_calls()) running.history = history_of(inputs);
  running.exceptions = std::uncaught_exceptions();
  CallSite site;
  site.info = &info;
  site.inputs = inputs;
  site.grad_mode = c10::GradMode::is_enabled();
  const auto left_out = c10::impl::tls_local_dispatch_key_set().excluded_;
  site.below_autograd = left_out.has(c10::DispatchKey::AutogradFunctionality);
  site.below_views = left_out.has(c10::DispatchKey::ADInplaceOrView);
  site.under_mode = under_dispatch_mode();
  site.several_threads = several_threads_run_operators();
  site.generator = running.generators.take_state();
  site.no_room_for_generator = running.generators.has_no_room();
  const std::lock_guard lock(tape_->mutex);
  calls_.begin(std::move(site));
  if (!calls_.keeps_generator()) running.generators.forget_state();
  if (!tape_->meta && OperatorTrial::is_due(info)) running.trial = OperatorTrial(info, inputs);
  running.begin = std::chrono::steady_clock::now();
  running_.push_back(std::move(running));
}

void Recorder::end(Running running, c10::ArrayRef<const c10::IValue> outputs) {
  CallEnd end;
  end.outputs = outputs;
  end.seconds = std::chrono::duration<float>(std::chrono::steady_clock::now() - running.begin).count();
  if (tape_->times) end.ended = tape_->times->mark();
  // As in begin(): before the tape is locked.
  const bool drawn_alone = running.generators.has_drawn_alone(end.drawn);
  end.alone = drawn_alone && (running.draws == nullptr || running.draws->is_alone());
  running.draws.reset();
  end.several_threads = several_threads_run_operators();
  const Policy::Rules* const policy = scopes_.rules();
  const std::lock_guard lock(tape_->mutex);
  end.failed = std::uncaught_exceptions() > running.exceptions;
  if (!end.failed) end.contradictions = running.trial.contradictions(outputs);
  end.evicted_by_policy = policy != nullptr && !policy->keeps(calls_.last());
  calls_.end(std::move(end));
}

void Recorder::note_inner_call(const at::RecordFunction& fn) {
  const OperatorInfo* const info = operator_info(fn);
  if (info == nullptr || !info->runs_once(info->arguments(fn))) return;
  ++inner_calls_that_run_once_;
  if (suspended_ == 0) calls_.keep_running_calls();
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
  if (region == scope_region_) return;
  scope_region_ = region;
  const std::lock_guard lock(tape_->mutex);
  if (calls_.scope() != 0) tape_->close_scope(calls_.scope());
  calls_.set_scope(region == PolicyScopes::Region() ? 0 : tape_->open_scope());
}

}  // namespace remat
