#include "record/recorder.h"

#include <exception>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include "memory/ledger.h"
#include "record/checksum.h"
#include "record/generator_state.h"
#include "record/saved_tensor.h"
#include "record/trace.h"

namespace remat {
namespace {

thread_local std::unique_ptr<Recorder> t_recorder;

constexpr int64_t kLeastPacked = 64;  // bytes: less is not worth it

bool below_autograd() {
  const auto excluded = c10::impl::tls_local_dispatch_key_set().excluded_;
  return excluded.has(c10::DispatchKey::ADInplaceOrView) || excluded.has(c10::DispatchKey::AutogradFunctionality);
}

/// Calls `visit` for every tensor among an operator's results.
template <class Visit>
void for_each_result(const std::vector<c10::IValue>& outputs, Visit&& visit) {
  for (const auto& output : outputs) {
    if (output.isTensor()) {
      visit(output.toTensor());
    } else if (output.isTensorList()) {
      for (const at::Tensor& tensor : output.toTensorVector()) visit(tensor);
    }
  }
}

/// Values that a replay can pass again as they are.
bool is_constant(const c10::IValue& value) {
  if (value.isNone() || value.isScalar() || value.isBool() || value.isString() || value.isDevice() ||
      value.isGenerator() || value.isIntList() || value.isDoubleList() || value.isBoolList()) {
    return true;
  }
  if (!value.isList()) return false;
  for (const c10::IValue& element : value.toListRef()) {
    if (!element.isNone() && !element.isScalar() && !element.isBool() && !element.isString()) return false;
  }
  return true;
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

/// Does the tensor reach every byte of its storage?
bool covers_storage(const at::Tensor& tensor) {
  const auto& impl = *tensor.unsafeGetTensorImpl();
  return impl.is_non_overlapping_and_dense() &&
         static_cast<size_t>(impl.numel()) * impl.itemsize() == impl.unsafe_storage().nbytes();
}

/// Calls `visit` for every tensor that an operator writes to.
template <class Visit>
void for_each_written(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs, Visit&& visit) {
  for (const auto position : info.written) {
    if (inputs[position].isTensor()) visit(inputs[position].toTensor());
    if (inputs[position].isTensorList()) {
      for (const at::Tensor& tensor : inputs[position].toTensorVector()) visit(tensor);
    }
  }
}

/// Held while a kernel of the meta device runs.
struct MetaKernel final : at::ObserverContext {};

c10::Device device_of(c10::ArrayRef<const c10::IValue> inputs) {
  for (const auto& input : inputs) {
    if (input.isTensor() && input.toTensor().defined()) return input.toTensor().device();
    if (input.isDevice()) return input.toDevice();
  }
  return c10::kCPU;
}

}  // namespace

Recorder* Recorder::current() {
  if (t_recorder != nullptr && t_recorder->tape_->closed.load(std::memory_order_relaxed)) {
    // Another thread has ended the step. An operator that is still running goes first.
    if (t_recorder->pending_.empty() && t_recorder->suspended_ == 0) stop();
    return nullptr;
  }
  return t_recorder.get();
}

void Recorder::start(std::shared_ptr<Tape> tape) {
  choose_plain_tensors(tape->meta);
  t_recorder = std::make_unique<Recorder>(std::move(tape));
  // First, so that a kernel has ended before its operator is written down.
  if (t_recorder->tape_->meta) {
    t_recorder->meta_callback_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(on_meta_kernel_start, on_meta_kernel_end).scopes({at::RecordScope::FUNCTION}));
  }
  watch_operators(true);
}

void Recorder::stop() {
  choose_plain_tensors(/*meta=*/false);
  watch_operators(false);
  if (t_recorder->tape_->meta) at::removeCallback(t_recorder->meta_callback_);
  const std::shared_ptr<Tape> tape = t_recorder->tape_;
  t_recorder.reset();
  const std::lock_guard lock(tape->mutex);
  tape->collect();
  tape->stop_watching();
}

void Recorder::left_backward() { watch_operators(t_recorder != nullptr); }

/// Looks at what is there: a backward call brings back the callback of a step that ended in it, or takes away that of
/// one that began in it.
void Recorder::watch_operators(bool watch) {
  const auto& callbacks = at::get_record_function_tls_().sorted_tls_callbacks_;
  const auto mine = std::find_if(callbacks.begin(), callbacks.end(),
                                 [](const auto& entry) { return entry.callback_.start() == &Recorder::on_start; });
  if (watch == (mine != callbacks.end())) return;
  if (watch) {
    at::addThreadLocalCallback(at::RecordFunctionCallback(on_start, on_end)
                                   .needsInputs(true)
                                   .needsOutputs(true)
                                   .scopes({at::RecordScope::FUNCTION}));
  } else {
    at::removeCallback(mine->handle_);
  }
}

void Recorder::push_scope(std::shared_ptr<const Policy::Rules> rules) {
  if (scopes_.empty()) root_scope_ = ++root_scopes_seen_;
  scopes_.push_back(std::move(rules));
}

void Recorder::pop_scope() {
  scopes_.pop_back();
  if (scopes_.empty()) root_scope_ = 0;
}

std::unique_ptr<at::ObserverContext> Recorder::on_start(const at::RecordFunction& fn) {
  Recorder* const recorder = current();
  if (recorder == nullptr || recorder->suspended_ > 0) return nullptr;
  // The C++ factories (torch::randn ...) call their operators below autograd: at the outermost level those count too.
  if (below_autograd() && !recorder->pending_.empty()) return nullptr;
  const Suspension own_calls_pass(recorder);  // detaching a sparse tensor calls operators
  const OperatorInfo* const info = operator_info(fn);
  if (info == nullptr) return nullptr;
  if (info->reshapes) return recorder->begin_reshape(fn.inputs()[0].toTensor());
  if (info->never_recorded) return nullptr;
  const bool in_backward = torch::autograd::get_current_graph_task_id() != -1;
  if (in_backward || recorder->opaque_ > 0) {
    if (!info->written.empty()) {
      const std::lock_guard lock(recorder->tape_->mutex);
      for_each_written(*info, fn.inputs(), [&](const at::Tensor& tensor) { recorder->before_write(tensor); });
    }
    return nullptr;
  }
  recorder->begin(fn, *info);
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
  pending.operation.seconds = std::chrono::duration<float>(now - pending.begin).count();
  recorder->end(pending, fn.outputs());
}

void Recorder::begin(const at::RecordFunction& fn, const OperatorInfo& info) {
  Tape& tape = *tape_;
  const std::lock_guard lock(tape.mutex);
  tape.drop_idle();

  const auto inputs = fn.inputs();
  // An operator that writes to a leaf is not recorded: what it leaves behind is another leaf.
  bool writes_leaf = false;
  for_each_written(info, inputs, [&](const at::Tensor& tensor) {
    if (!tensor.defined() || is_blank(tensor)) return;
    const ValueId id = is_plain(tensor) ? tape.find(storage_of(tensor)) : kNone;
    const bool known = id != kNone && !tape.values[id].written_unseen();
    const bool fills = known && tape.values[id].raw && info.overwrites && covers_storage(tensor);
    writes_leaf = writes_leaf || !known || !(tape.recomputable(id) || fills);
  });
  if (info.updates_statistics(inputs)) {
    for (const auto s : info.statistics) {
      if (inputs[s].isTensor()) before_write(inputs[s].toTensor());
    }
  }

  Pending& pending = pending_.emplace_back();
  pending.fn = &fn;
  pending.info = &info;
  pending.exceptions = std::uncaught_exceptions();
  pending.before = tape.mark();
  pending.values = tape.values.size();
  if (pending_.size() == 1) {
    tape.captured_values = pending.values;
    tape.captured_tensors = pending.before.tensors;
  }
  pending.operation.info = &info;
  pending.operation.first_argument = static_cast<uint32_t>(tape.arguments.size());
  pending.operation.scope = root_scope_;
  pending.operation.grad_mode = c10::GradMode::is_enabled();
  pending.operation.settings = tape.settings_now(info);
  // A dispatch mode of the user's may give other results than the operator, and replays run without it.
  pending.repeatable = info.deterministic && !writes_leaf && !c10::impl::dispatch_mode_enabled();
  try {
    for (size_t i = 0; i < inputs.size() && pending.repeatable; ++i) capture_argument(pending, i, inputs[i]);
    if (pending.repeatable && (info.random || info.foreign)) capture_generator_of(pending, inputs);
  } catch (...) {  // no memory for a copy or a generator's state: do without them
    pending.repeatable = false;
  }
  if (!pending.repeatable) {
    for_each_written(info, inputs, [&](const at::Tensor& tensor) {
      before_write(tensor);
      if (tensor.defined() && tensor.has_storage()) pending.unrecorded.push_back(storage_of(tensor));
    });
  }
  pending.operation.argument_count = static_cast<uint32_t>(tape.arguments.size()) - pending.operation.first_argument;
  pending.after = tape.mark();
  if (tape.trace != nullptr) tape.trace->operator_begins();
  pending.begin = std::chrono::steady_clock::now();
}

void Recorder::capture_argument(Pending& pending, size_t position, const c10::IValue& value) {
  Tape& tape = *tape_;
  const OperatorInfo& info = *pending.info;
  Argument argument;
  const bool statistics = info.updates_statistics(pending.fn->inputs()) &&
                          (position == info.statistics[0] || position == info.statistics[1]);
  if (statistics) {
    argument.kind = Argument::Kind::kStatistics;
    // A replay does without them, and kernels choose by their layout too.
    if (value.isTensor() && !value.toTensor().is_contiguous()) pending.repeatable = false;
    if (!info.statistics_optional) {
      argument.first = static_cast<uint32_t>(tape.tensors.size());
      argument.count = 1;
      auto& held = tape.tensors.emplace_back();
      held.opaque = static_cast<uint32_t>(tape.opaque.size());
      tape.opaque.push_back(history_free(value.toTensor()));
    }
  } else if (value.isTensor()) {
    argument.kind = Argument::Kind::kTensor;
    argument.first = static_cast<uint32_t>(tape.tensors.size());
    argument.count = 1;
    capture_tensor(pending, value.toTensor(), info.writes(position));
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    argument.kind = value.isTensorList() ? Argument::Kind::kTensorList : Argument::Kind::kOptionalTensorList;
    argument.first = static_cast<uint32_t>(tape.tensors.size());
    for (const c10::IValue& element : value.toListRef()) {
      capture_tensor(pending, element.isTensor() ? element.toTensor() : at::Tensor(), info.writes(position));
      ++argument.count;
    }
  } else if (is_constant(value)) {
    argument.first = static_cast<uint32_t>(tape.constants.size());
    tape.constants.push_back(value);
  } else {
    pending.repeatable = false;
  }
  tape.arguments.push_back(argument);
}

void Recorder::capture_tensor(Pending& pending, const at::Tensor& tensor, bool written) {
  Tape& tape = *tape_;
  TensorArgument& argument = tape.tensors.emplace_back();
  if (!tensor.defined()) return;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (written && is_blank(tensor)) {
    argument.blank = true;
    argument.view = TensorView(impl);
    watch_write(pending, impl, kNone);
    return;
  }
  if (!is_plain(tensor)) {
    // Held whole: sparse, quantized, empty, a number in disguise. Inference tensors change without a trace, and
    // subclasses may do anything: what is computed from those is not recomputed.
    if (written || tensor.is_inference() || impl.is_python_dispatch()) pending.repeatable = false;
    if (!pending.repeatable) return;
    pending.reads = pending.reads || !impl.is_wrapped_number();
    argument.opaque = static_cast<uint32_t>(tape.opaque.size());
    argument.version = impl.version_counter().current_version();
    tape.opaque.push_back(history_free(tensor));
    return;
  }
  const bool overwritten = written && pending.info->overwrites;
  for (const auto& outer : pending_) {  // which writes to it later, and nobody will know what this operator read
    if (!overwritten && outer.writes_unrecorded(storage_of(tensor))) pending.repeatable = false;
  }
  pending.reads = pending.reads || !overwritten;
  argument.value = read(tensor, overwritten);
  argument.view = TensorView(impl);
  if (!overwritten && tape.may_change_unseen(argument.value, tensor)) argument.checksum = checksum(impl);
  if (written) watch_write(pending, impl, argument.value);
}

void Recorder::watch_write(Pending& pending, const c10::TensorImpl& impl, ValueId before) {
  pending.writes.push_back({StoragePtr::reclaim_copy(impl.unsafe_storage().unsafeGetStorageImpl()), before,
                            impl.version_counter(), impl.version_counter().current_version()});
}

ValueId Recorder::read(const at::Tensor& tensor, bool overwritten) {
  Tape& tape = *tape_;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  c10::StorageImpl* const storage = impl.unsafe_storage().unsafeGetStorageImpl();
  ValueId id = tape.find(storage);
  if (id != kNone) {
    Value& value = tape.values[id];
    if (value.producer != kNone && !value.raw && is_handed_out(*storage)) {
      id = tape.make_leaf(id, StoragePtr::reclaim_copy(storage), impl);
      tape.values[id].scope = root_scope_;
      return id;
    }
    if (!value.written_unseen() && static_cast<int64_t>(storage->nbytes()) == value.bytes) {
      if (value.raw && !overwritten) {  // somebody has filled it through a pointer
        value.raw = false;
        value.producer = kNone;
        tape.hold_leaf(id, StoragePtr::reclaim_copy(storage));
      }
      const bool from_outside = root_scope_ != 0 && value.scope != root_scope_;
      if (from_outside && value.producer != kNone && !value.anchor) {
        value.anchor = true;
        if (!value.kept) value.kept = StoragePtr::reclaim_copy(storage);
        tape.uncount_when_idle(id);
      }
      return id;
    }
    // Somebody wrote to it unseen. What was there cannot be read again.
    value.lost = value.producer == kNone;
    value.kept.reset();
    tape.unhome(id);
  }
  StoragePtr held = StoragePtr::reclaim_copy(storage);
  if (tape.ledger != nullptr) tape.adopted_bytes += tape.ledger->adopt(*storage);
  id = tape.add_value(held, impl);
  tape.hold_leaf(id, held);
  tape.values[id].scope = root_scope_;
  if (tensor.is_leaf() && tensor.requires_grad()) {
    tape.parameter_bytes += tape.values[id].bytes;
    const at::Tensor& gradient = tensor.grad();
    if (gradient.defined() && gradient.has_storage()) {
      tape.gradient_bytes += static_cast<int64_t>(gradient.storage().nbytes());
    }
  }
  return id;
}

void Recorder::capture_generator_of(Pending& pending, c10::ArrayRef<const c10::IValue> inputs) {
  at::Generator generator;
  const int16_t position = pending.info->generator_argument;
  if (position >= 0 && inputs[static_cast<size_t>(position)].isGenerator()) {
    generator = inputs[static_cast<size_t>(position)].toGenerator();
  } else {
    generator = default_generator(device_of(inputs));
  }
  if (!generator.defined()) {
    pending.repeatable = pending.repeatable && !pending.info->random;
    return;
  }
  const memory::FrozenPlain frozen;  // plain keeps no such states
  pending.suspect_random = !pending.info->random;
  pending.operation.generator = static_cast<uint32_t>(tape_->generators.size());
  tape_->generators.push_back(capture_generator(generator));
  if (tape_->trace != nullptr) tape_->trace->held(static_cast<int64_t>(tape_->generators.back().state.nbytes()));
}

void Recorder::before_write(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const c10::Storage& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  const ValueId id = tape_->find(storage.unsafeGetStorageImpl());
  if (id == kNone) return;
  if (tape_->values[id].raw) {
    tape_->unhome(id);
  } else if (!tape_->recomputable(id)) {
    save_leaf(id);
  } else {
    // What follows is a leaf, to be held where a saved tensor may look at it.
    const ValueId after = tape_->supersede(id, StoragePtr::reclaim_copy(storage.unsafeGetStorageImpl()));
    tape_->hold_leaf(after, StoragePtr::reclaim_copy(storage.unsafeGetStorageImpl()));
  }
}

void Recorder::save_leaf(ValueId leaf) {
  Tape& tape = *tape_;
  if (tape.values[leaf].readers > 0) tape.collect();
  Value& value = tape.values[leaf];
  const StoragePtr original = std::move(value.kept);
  value.kept.reset();
  if (original == nullptr) return;  // overwritten before, unseen
  value.version_counter = c10::VariableVersion(c10::VariableVersion::DISABLED);
  if (value.readers > 0) {
    value.lost = true;
    try {
      const memory::FrozenPlain frozen;
      value.kept = copy_of(*original);
      value.extra = true;
      value.lost = false;
      if (tape.trace != nullptr) tape.trace->held(value.bytes);
    } catch (...) {  // no room for the copy: a replay that needs it will say so
    }
  }
  if (value.saved > 0) {
    const StoragePtr copy = std::move(value.kept);
    const ValueId after = tape.supersede(leaf, original);
    tape.hold_leaf(after, original);
    tape.values[leaf].kept = copy;
  }
  tape.unhome(leaf);
}

void Recorder::end(Pending& pending, const std::vector<c10::IValue>& outputs) {
  Tape& tape = *tape_;
  const std::lock_guard lock(tape.mutex);
  const bool failed = std::uncaught_exceptions() > pending.exceptions;
  if (pending.suspect_random) {
    const memory::FrozenPlain frozen;
    if (!same_state(tape.generators[pending.operation.generator])) {
      pending.suspect_random = false;  // it does draw random numbers
    } else {
      const auto bytes = static_cast<int64_t>(tape.generators[pending.operation.generator].state.nbytes());
      if (tape.trace != nullptr) tape.trace->held(-bytes);
      tape.generators[pending.operation.generator] = GeneratorRecord();
      pending.operation.generator = kNone;
    }
  }
  const auto id = static_cast<OperationId>(tape.operations.size());
  const auto first_value = static_cast<ValueId>(tape.values.size());
  bool recorded = pending.repeatable && !failed;
  if (recorded) {
    // A result that is not plain cannot be told from its contents: then nothing of this operator is recomputed.
    for_each_result(outputs, [&](const at::Tensor& t) {
      recorded = recorded && (!t.defined() || is_plain(t) || (t.has_storage() && t.storage().nbytes() == 0));
    });
  }
  for (const auto& write : pending.writes) {
    recorded = recorded && (write.before == kNone ||
                            static_cast<int64_t>(write.storage->nbytes()) == tape.values[write.before].bytes);
  }
  if (recorded) {
    uint16_t result = 0;
    for_each_result(outputs, [&](const at::Tensor& t) {
      const uint16_t index = result++;
      if (!t.defined() || t.unsafeGetTensorImpl()->unsafe_storage().nbytes() == 0) return;
      const c10::TensorImpl& impl = *t.unsafeGetTensorImpl();
      c10::StorageImpl* const storage = impl.unsafe_storage().unsafeGetStorageImpl();
      if (pending.writes_to(storage)) return;
      if (const ValueId known = tape.find(storage); known != kNone) {
        // A view, or a result of an operator inside; but what that left without contents, this one has filled.
        if (known < pending.values) return;
        if (pending.makes_raw()) {  // what is in it may be written through a pointer
          tape.values[known].raw = tape.values[known].producer != kNone;
          return;
        }
        if (!tape.values[known].raw || !tape.operations[tape.values[known].producer].info->factory) return;
        tape.unhome(known);
      }
      const ValueId value = tape.add_value(StoragePtr::reclaim_copy(storage), impl);
      tape.values[value].producer = id;
      tape.values[value].result = index;
      tape.values[value].data = !t.requires_grad();
      tape.values[value].pinned = pending.info->batch_norm && index > 0;  // some bytes that spare a replay two passes
    });
  }
  finish_writes(pending, recorded ? id : kNone);
  if (pending_.empty()) tape.captured_values = tape.captured_tensors = SIZE_MAX;
  const auto value_count = tape.values.size() - first_value;
  if (!recorded || value_count == 0) {
    tape.erase(pending.before, pending.after);
    if (tape.trace != nullptr) tape.trace->operator_skipped();
    bind_saved(pending);
    return;
  }
  Operation& operation = pending.operation;
  operation.first_value = first_value;
  operation.value_count = static_cast<uint16_t>(value_count);
  const bool raw = pending.makes_raw();
  const bool drop = !scopes_.empty() && !scopes_.back()->keeps(*pending.info);
  for (ValueId value = first_value; value < tape.values.size(); ++value) {
    tape.values[value].scope = root_scope_;
    tape.values[value].drop = drop;
    tape.values[value].raw = raw;
  }
  tape.for_each_tensor(operation, [&](const TensorArgument& t, uint32_t) {
    if (t.value != kNone) ++tape.values[t.value].readers;
  });
  mark_packable(operation, outputs);
  tape.operations.push_back(operation);
  tape.follow_schedules();
  if (tape.trace != nullptr) tape.trace->operator_ended(tape, id);
  for (ValueId value = first_value; value < tape.values.size(); ++value) {
    if (tape.values[value].saved > 0)
      tape.retain(value, tape.values[value].home.lock());  // saved before it was written to
  }
  bind_saved(pending);
}

/// Notes which results may take fewer bytes than they seem to. A hope: pack() looks at the contents.
void Recorder::mark_packable(const Operation& operation, const std::vector<c10::IValue>& outputs) {
  Tape& tape = *tape_;
  if (!tape.pack_values) return;
  bool few = operation.info->two_valued;
  if (operation.info->elementwise) {
    uint32_t inputs = 0, packable = 0;
    tape.for_each_tensor(operation, [&](const TensorArgument& t, uint32_t) {
      if (t.value == kNone) return;
      ++inputs;
      packable += tape.values[t.value].element_bytes > 0 ? 1 : 0;
    });
    few = inputs == 1 && packable == 1;
  }
  for_each_result(outputs, [&](const at::Tensor& t) {
    if (!t.defined() || !t.has_storage()) return;
    const bool likely = few || t.scalar_type() == at::kBool || t.scalar_type() == at::kLong;
    const ValueId id = likely ? tape.find(storage_of(t)) : kNone;
    if (id != kNone && id >= operation.first_value && tape.values[id].bytes >= kLeastPacked && t.itemsize() <= 8) {
      tape.values[id].element_bytes = static_cast<uint8_t>(t.itemsize());
    }
  });
}

void Recorder::finish_writes(Pending& pending, OperationId producer) {
  Tape& tape = *tape_;
  for (size_t i = 0; i < pending.writes.size(); ++i) {
    const Write& write = pending.writes[i];
    // The same storage twice, or an operator that it called has done (and recorded) the writing.
    if (tape.find(write.storage.get()) != write.before) continue;
    if (write.storage->nbytes() == 0) continue;
    const ValueId after = tape.supersede(write.before, write.storage);
    Value& value = tape.values[after];
    value.version_counter = write.version_counter;
    value.version = write.version_counter.current_version();
    value.producer = producer;
    value.result = static_cast<uint16_t>(kWritten + i);
    if (producer == kNone) tape.hold_leaf(after, write.storage);
  }
}

bool Recorder::bind_later(SavedTensor& saved, const c10::TensorImpl& tensor) {
  if (pending_.empty()) return false;
  Pending& pending = pending_.back();
  const auto* const storage = tensor.unsafe_storage().unsafeGetStorageImpl();
  bool running = tape_->find(storage) == kNone;
  for (const auto& write : pending.writes) {
    running = running || (write.storage.get() == storage && write.version_counter.current_version() != write.version);
  }
  if (running) pending.saved.push_back(&saved);
  return running;
}

void Recorder::forget(SavedTensor& saved) {
  for (auto& pending : pending_) std::erase(pending.saved, &saved);
}

void Recorder::bind_saved(Pending& pending) {
  for (SavedTensor* const saved : pending.saved) saved->bind();
  pending.saved.clear();
}

}  // namespace remat
