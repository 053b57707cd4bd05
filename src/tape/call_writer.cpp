// What a call reads, and what it is about to write to: taken down before it runs.
#include "tape/call_writer.h"

#include "device/device.h"
#include "memory/ledger.h"
#include "pytorch/tensors_of.h"
#include "tape/checksum.h"
#include "tape/default_type.h"
#include "tape/read_checksum.h"
#include "tape/trace.h"

namespace remat {
namespace {

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

bool is_parameter(const at::Tensor& tensor) {
  const at::TensorBase& base = base_of(tensor);
  return base.is_leaf() && base.requires_grad();
}

/// Does whoever gave the memory (torch::from_blob without a deleter) keep it alive, and nobody else?
bool is_externally_owned(const c10::StorageImpl& storage) {
  const c10::DataPtr& memory = storage.data_ptr();
  return memory.get() != nullptr && memory.get_context() == nullptr;
}

/// Does a tensor among the inputs, on `device`, need a gradient?
bool differentiates(c10::ArrayRef<const c10::IValue> inputs, std::optional<c10::Device> device) {
  bool any = false;
  for (const c10::IValue& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& t) {
      any = any || (t.defined() && t.requires_grad() && (!device || t.device() == *device));
    });
  }
  return any;
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

Call::Write& watch_write(Call& call, const c10::TensorImpl& impl, ValueId before) {
  call.writes.push_back({.storage = StoragePtr::reclaim_copy(storage_of(impl)),
                         .before = before,
                         .version_counter = impl.version_counter(),
                         .version = impl.version_counter().current_version(),
                         .strip = {}});
  return call.writes.back();
}

}  // namespace

void count_older(Tape& tape, c10::ArrayRef<const c10::IValue> values) {
  if (tape.values.ledger == nullptr) return;
  const auto adopt = [&](const at::Tensor& tensor) {
    if (tensor.defined() && is_plain(tensor))
      tape.counts.adopted_bytes += tape.values.ledger->adopt(*storage_of(tensor));
  };
  for (const auto& value : values) for_each_tensor(value, adopt);
}

void CallWriter::begin(CallSite site) {
  if (site.no_room_for_generator) tape_.note_forgotten();
  tape_.drop_idle();
  const bool outermost = calls_.empty();
  const bool may_be_repeated = !writes_leaf(site, outermost);
  before_writing_statistics(*site.info, site.inputs);
  Call& call = calls_.emplace_back();
  call.repeatable = may_be_repeated;
  try {
    begin(call, site, outermost);
  } catch (...) {
    calls_.pop_back();
    throw;
  }
}

/// An operator that writes to a leaf is not recorded: what it leaves behind is another leaf.
bool CallWriter::writes_leaf(const CallSite& site, bool outermost) {
  const OperatorInfo& info = *site.info;
  bool any = false;
  for_each_written(info, site.inputs, [&](const at::Tensor& tensor) {
    if (!tensor.defined() || is_blank(tensor)) return;
    const ValueId id = is_plain(tensor) ? tape_.values.find(storage_of(tensor)) : kNoId;
    const bool known = id != kNoId && !tape_.values[id].is_written_unseen();
    // Inside of another operator memory may be scratch, the rest of which that one fills through a pointer.
    const bool overwrites = known && info.overwrites && (outermost || covers_storage(tensor)) &&
                            !reads(info, site.inputs, storage_of(tensor));
    any = any || !known || !tape_.values.accept_write(id, tensor, overwrites);
  });
  return any;
}

void CallWriter::begin(Call& call, CallSite& site, bool outermost) {
  Tape& tape = tape_;
  const OperatorInfo& info = *site.info;
  call.info = &info;
  call.updates_statistics = info.updates_statistics(site.inputs);
  call.inside_wrapper = site.below_autograd && compiled_ == 0;
  call.before = tape.program.mark();
  call.values = tape.values.size();
  if (outermost) {
    tape.set_captured(call.values, call.before.tensors);
  }
  call.operation.info = &info;
  call.operation.first_argument = static_cast<uint32_t>(call.before.arguments);
  call.operation.grad_mode = site.grad_mode;
  call.operation.below_autograd = site.below_autograd;
  call.operation.below_views = site.below_views;
  call.operation.settings = tape.program.add_settings(info);
  const int threads = tape.program.settings(call.operation).threads.kernels;
  if (site.under_mode && site.grad_mode) ++tape.counts.under_mode;
  if (site.grad_mode) {
    tape.counts.differentiates = tape.counts.differentiates || differentiates(site.inputs, tape.values.device);
  }
  call.repeatable = call.repeatable && site.generator && info.repeats(site.inputs, threads) && !site.under_mode;
  // Other threads would see what a replay sets.
  if (site.several_threads && tape.program.reads_changed_switches(call.operation)) call.repeatable = false;
  find_default_type(call, site.inputs);
  try {
    for (size_t i = 0; i < site.inputs.size() && call.repeatable; ++i) capture_argument(call, i, site.inputs[i]);
    if (!call.unavailable.empty() && !call.writes.empty()) call.repeatable = false;
    if (call.repeatable && site.generator->state.defined()) keep_generator(call, std::move(*site.generator));
  } catch (...) {  // no memory for a copy or a generator's state: do without them
    call.repeatable = false;
    tape.note_forgotten();
  }
  {
    const memory::FrozenPlain frozen;  // as it was made
    site.generator.reset();
  }
  if (!call.repeatable) {
    count_older(tape, site.inputs);
    for_each_written(info, site.inputs, [&](const at::Tensor& tensor) {
      before_write(tensor);
      if (tensor.defined() && tensor.has_storage()) call.unrecorded.push_back(storage_of(tensor));
    });
  }
  if (info.collective) {
    for_each_written(info, site.inputs, [&](const at::Tensor& tensor) { call.communicated.push_back(tensor); });
  }
  call.after = tape.program.mark();
  call.operation.argument_count = static_cast<uint32_t>(call.after.arguments - call.before.arguments);
  if (tape.trace != nullptr) tape.trace->operator_begins();
  if (tape.times) call.began = tape.times->mark();
}

void CallWriter::capture_argument(Call& call, size_t position, const c10::IValue& value) {
  Program& program = tape_.program;
  const OperatorInfo& info = *call.info;
  const Program::Mark before = program.mark();
  const bool statistics = call.updates_statistics && (position == info.statistics[0] || position == info.statistics[1]);
  if (statistics) {
    // A replay does without them, and kernels choose by their layout too.
    if (value.isTensor() && !value.toTensor().is_contiguous()) call.repeatable = false;
    if (!info.statistics_optional) program.add_tensor().opaque = program.add_opaque(history_free(value.toTensor()));
    program.add_tensor_argument(Argument::Kind::kStatistics, before);
  } else if (value.isTensor()) {
    capture_tensor(call, value.toTensor(), info.writes(position));
    program.add_tensor_argument(Argument::Kind::kTensor, before);
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& element : value.toListRef()) {
      capture_tensor(call, element.isTensor() ? element.toTensor() : at::Tensor(), info.writes(position));
    }
    program.add_tensor_argument(
        value.isTensorList() ? Argument::Kind::kTensorList : Argument::Kind::kOptionalTensorList, before);
  } else if (is_constant(value)) {
    // A list that TorchScript holds too may be changed by the script later.
    const bool shared = value.isPtrType() && value.isList() && value.use_count() > 1;
    program.add_constant_argument(shared ? value.deepcopy() : value);
  } else {
    call.repeatable = false;
  }
}

void CallWriter::capture_tensor(Call& call, const at::Tensor& tensor, bool written) {
  Tape& tape = tape_;
  TensorArgument& argument = tape.program.add_tensor();
  if (!tensor.defined()) return;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (written && is_blank(tensor)) {
    argument.blank = true;
    argument.view = TensorView(impl);
    watch_write(call, impl, kNoId).whole = call.info->overwrites;
    return;
  }
  if (!is_plain(tensor)) {
    // Held whole: sparse, quantized, empty, a number in disguise. Inference tensors change without a trace, and
    // subclasses may do anything: what is computed from those is not recomputed.
    if (written || tensor.is_inference() || impl.is_python_dispatch()) call.repeatable = false;
    if (!call.repeatable) return;
    call.reads = call.reads || !impl.is_wrapped_number();
    argument.opaque = tape.program.add_opaque(history_free(tensor));
    argument.version = impl.version_counter().current_version();
    argument.checksum = checksum_of_parts(tensor);
    return;
  }
  if (call.info->factory && !written) {
    argument.shape_only = true;
    argument.view = TensorView(impl);
    return;
  }
  const bool overwritten = written && call.info->overwrites;
  for (const auto& outer : calls_) {  // which writes to it later, and nobody will know what this operator read
    if (!overwritten && outer.writes_unrecorded(storage_of(tensor))) call.repeatable = false;
  }
  call.reads = call.reads || !overwritten;
  argument.value = read(tensor, overwritten);
  if (tape.values[argument.value].is_unavailable()) call.unavailable.push_back(argument.value);
  argument.view = TensorView(impl);
  const bool in_hands = !call.inside_wrapper && argument.value < first_compiled_;
  if (in_hands && tape.values[argument.value].watch.access == PointerAccess::kCompiledCode && !tensor.requires_grad()) {
    tape.values.leave_compiled(argument.value);
  }
  if (!overwritten && in_hands && tape.may_change_unseen(argument.value, tensor)) {
    const Value& value = tape.values[argument.value];
    const ByteRange reach = reach_of(impl);
    const bool known = value.is_filled() && value.watch.checksum != 0 && reach.begin == 0 && reach.end == value.extent;
    if (known) {
      argument.checksum = value.watch.checksum;
    } else if (device::is_host(tensor.device())) {
      argument.checksum = read_checksum(impl, tape.step);
    } else {  // of frozen weights a sample
      const bool sample = value.producer == kNoId && may_be_constant(impl);
      argument.checksum = tape.values.checksums.take(*storage_of(impl), reach, sample);
    }
  }
  if (!written) return;
  Call::Write& write = watch_write(call, impl, argument.value);
  write.whole = overwritten && covers_storage(tensor);
  if (overwritten && tape.values[argument.value].is_of_factory()) write.strip = strip_of(impl);
}

ValueId CallWriter::read(const at::Tensor& tensor, bool overwritten) {
  Tape& tape = tape_;
  Residency& values = tape.values;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const auto storage = StoragePtr::reclaim_copy(storage_of(impl));
  const ValueId id = values.find(storage.get());
  if (id == kNoId) values.streams.forget(*storage);
  values.streams.used(*storage);
  if (id != kNoId) {
    if (values[id].is_unavailable() &&
        is_parameter(tensor)) {  // its layer's replays may read what a collective has gathered
      values.detach(id);
      return read_new(tensor, storage);
    }
    const Value& value = values[id];
    const bool emptied = !value.is_in_place(*storage) && !values.is_restored(id);
    const bool handed_out =
        value.is_recomputable() && (value.is_exported(*storage) || values.is_overwritten(id, *storage));
    if (handed_out || (emptied && (value.is_recomputable() || value.needs.saved > 0))) {
      if (!value.is_recomputable()) values.lose(id, Loss::kEmptied);
      const ValueId leaf = values.hand_over(id, storage, impl);
      tape.hold_leaf(leaf, storage);
      values.set_policy(leaf, scope_, /*drop=*/false);
      return leaf;
    }
    if (!emptied && !value.is_written_unseen() && static_cast<int64_t>(storage->nbytes()) == value.bytes) {
      const bool undefined = !overwritten && (!values.is_defined(id, impl) ||
                                              (value.is_unread_factory() && !values.accept_filled(id, *storage)));
      if (undefined) {
        tape.make_leaf(id, storage);
      } else if (value.is_recomputable() && tape.needs_lost_leaf(id)) {
        tape.make_unrepeatable(id, storage);
      }
      if (value.producer == kNoId) note_leaf_read(*storage);
      const bool from_outside = scope_ != 0 && value.policy.scope != scope_;
      if (from_outside && value.producer != kNoId) tape.hold_anchor(scope_, id, storage);
      return id;
    }
    // Somebody wrote to it unseen, or emptied it. Its contents cannot be read again.
    values.lose(id, emptied ? Loss::kEmptied : Loss::kWrittenUnseen);
  }
  return read_new(tensor, storage);
}

void CallWriter::note_leaf_read(c10::StorageImpl& storage) {
  if (tape_.trace == nullptr) return;
  const auto kept = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage);
  tape_.leaf_reads.push_back(
      {c10::weak_intrusive_ptr<c10::StorageImpl>(kept), static_cast<OperationId>(tape_.program.size())});
}

/// A tensor that the step was not known to hold.
ValueId CallWriter::read_new(const at::Tensor& tensor, const StoragePtr& storage) {
  Tape& tape = tape_;
  const auto adopt = [&](c10::StorageImpl& older) {
    if (tape.values.ledger != nullptr) tape.counts.adopted_bytes += tape.values.ledger->adopt(older);
  };
  adopt(*storage);
  const ValueId id = tape.values.add(storage, *tensor.unsafeGetTensorImpl());
  if (is_externally_owned(*storage) && !is_parameter(tensor)) {
    tape.values.become_externally_owned(id);
  } else {
    tape.hold_leaf(id, storage);
  }
  tape.values.set_policy(id, scope_, /*drop=*/false);
  tape.values.watch_contents(id, *storage);
  note_leaf_read(*storage);
  if (!is_parameter(tensor)) return id;
  const at::TensorBase& parameter = base_of(tensor);
  tape.values.mark_parameter(id);
  c10::TensorImpl* const counted = parameter.unsafeGetTensorImpl();
  if (!tape.parameters.emplace(counted, c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(counted)).second) return id;
  tape.counts.parameter_bytes += tape.values[id].bytes;
  const at::Tensor& gradient = counted->grad();
  if (gradient.defined() && gradient.has_storage()) {
    tape.counts.gradient_bytes += static_cast<int64_t>(gradient.storage().nbytes());
    if (gradient.device() == parameter.device()) adopt(*storage_of(gradient));
  }
  return id;
}

void CallWriter::keep_generator(Call& call, GeneratorRecord generator) {
  call.draws_are_uncertain = !call.info->random || !device::is_host(generator.generator.device());
  const auto bytes = static_cast<int64_t>(generator.state.nbytes());
  call.operation.generator = tape_.program.add_generator(std::move(generator));
  tape_.counts.generator_bytes += bytes;
  if (tape_.trace != nullptr && tape_.values.is_on_device(device::kHost)) tape_.trace->held(bytes);  // where states are
}

void CallWriter::before_write(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  tape_.before_write(StoragePtr::reclaim_copy(storage_of(tensor)));
}

void CallWriter::before_writes(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs) {
  for_each_written(info, inputs, [&](const at::Tensor& tensor) { before_write(tensor); });
  before_writing_statistics(info, inputs);
}

void CallWriter::before_writing_statistics(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs) {
  if (!info.updates_statistics(inputs)) return;
  for (const auto s : info.statistics) {
    if (inputs[s].isTensor()) before_write(inputs[s].toTensor());
  }
}

void CallWriter::keep_running_calls() {
  for (Call& call : calls_) call.repeatable = call.repeatable && call.info->is_declared_repeatable();
}

void CallWriter::begin_compiled() {
  if (++compiled_ == 1) first_compiled_ = tape_.values.size();
}

void CallWriter::end_compiled() {
  if (--compiled_ == 0) first_compiled_ = SIZE_MAX;
}

}  // namespace remat
