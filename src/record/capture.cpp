// What an operator reads, and what it is about to write to: taken down before it runs.
#include <ATen/record_function.h>

#include "memory/ledger.h"
#include "record/checksum.h"
#include "record/generator_state.h"
#include "record/read_checksum.h"
#include "record/recorder.h"
#include "record/trace.h"

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

c10::Device device_of(c10::ArrayRef<const c10::IValue> inputs) {
  for (const auto& input : inputs) {
    if (input.isTensor() && input.toTensor().defined()) return input.toTensor().device();
    if (input.isDevice()) return input.toDevice();
  }
  return c10::kCPU;
}

}  // namespace

void Recorder::capture_argument(Pending& pending, size_t position, const c10::IValue& value) {
  Program& program = tape_->program;
  const OperatorInfo& info = *pending.info;
  const Program::Mark before = program.mark();
  const bool statistics = info.updates_statistics(pending.fn->inputs()) &&
                          (position == info.statistics[0] || position == info.statistics[1]);
  if (statistics) {
    // A replay does without them, and kernels choose by their layout too.
    if (value.isTensor() && !value.toTensor().is_contiguous()) pending.repeatable = false;
    if (!info.statistics_optional) program.add_tensor().opaque = program.add_opaque(history_free(value.toTensor()));
    program.add_tensor_argument(Argument::Kind::kStatistics, before);
  } else if (value.isTensor()) {
    capture_tensor(pending, value.toTensor(), info.writes(position));
    program.add_tensor_argument(Argument::Kind::kTensor, before);
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& element : value.toListRef()) {
      capture_tensor(pending, element.isTensor() ? element.toTensor() : at::Tensor(), info.writes(position));
    }
    program.add_tensor_argument(
        value.isTensorList() ? Argument::Kind::kTensorList : Argument::Kind::kOptionalTensorList, before);
  } else if (is_constant(value)) {
    // A list that TorchScript holds too may be changed by the script later.
    const bool shared = value.isPtrType() && value.isList() && value.use_count() > 1;
    program.add_constant_argument(shared ? value.deepcopy() : value);
  } else {
    pending.repeatable = false;
  }
}

void Recorder::capture_tensor(Pending& pending, const at::Tensor& tensor, bool written) {
  Tape& tape = *tape_;
  TensorArgument& argument = tape.program.add_tensor();
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
    argument.opaque = tape.program.add_opaque(history_free(tensor));
    argument.version = impl.version_counter().current_version();
    argument.checksum = checksum_of_parts(tensor);
    return;
  }
  const bool overwritten = written && pending.info->overwrites;
  for (const auto& outer : pending_) {  // which writes to it later, and nobody will know what this operator read
    if (!overwritten && outer.writes_unrecorded(storage_of(tensor))) pending.repeatable = false;
  }
  pending.reads = pending.reads || !overwritten;
  argument.value = read(tensor, overwritten);
  argument.view = TensorView(impl);
  if (!overwritten && tape.may_change_unseen(argument.value, tensor))
    argument.checksum = read_checksum(impl, tape.step);
  if (written) watch_write(pending, impl, argument.value);
}

void Recorder::watch_write(Pending& pending, const c10::TensorImpl& impl, ValueId before) {
  pending.writes.push_back({StoragePtr::reclaim_copy(storage_of(impl)), before, impl.version_counter(),
                            impl.version_counter().current_version()});
}

ValueId Recorder::read(const at::Tensor& tensor, bool overwritten) {
  Tape& tape = *tape_;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  c10::StorageImpl* const storage = storage_of(impl);
  ValueId id = tape.find(storage);
  if (id != kNone) {
    Value& value = tape.values[id];
    const bool recomputed = value.producer != kNone && !value.raw;
    const bool emptied = !value.is_in_place(*storage) && !tape.is_restored(id);
    if ((recomputed && tape.is_handed_out(id, *storage)) || (emptied && (recomputed || value.saved > 0))) {
      if (!recomputed) value.loss = Loss::kEmptied;
      id = tape.make_leaf(id, StoragePtr::reclaim_copy(storage), impl);
      tape.values[id].scope = root_scope_;
      return id;
    }
    if (!emptied && !value.written_unseen() && static_cast<int64_t>(storage->nbytes()) == value.bytes) {
      if (value.raw && !overwritten) {  // somebody has filled it through a pointer
        value.raw = false;
        value.producer = kNone;
        tape.hold_leaf(id, StoragePtr::reclaim_copy(storage));
      }
      const bool from_outside = root_scope_ != 0 && value.scope != root_scope_;
      if (from_outside && value.producer != kNone) tape.hold_anchor(root_scope_, id, StoragePtr::reclaim_copy(storage));
      return id;
    }
    // Somebody wrote to it unseen, or emptied it. What was there cannot be read again.
    if (value.producer == kNone) value.loss = emptied ? Loss::kEmptied : Loss::kWrittenUnseen;
    value.kept.reset();
    tape.unhome(id);
  }
  StoragePtr held = StoragePtr::reclaim_copy(storage);
  if (tape.ledger != nullptr) tape.adopted_bytes += tape.ledger->adopt(*storage);
  id = tape.add_value(held, impl);
  tape.hold_leaf(id, held);
  tape.values[id].scope = root_scope_;
  tape.values[id].last_contents = memory::watch_contents(*storage);
  // Products read a transposed view of a weight.
  const at::TensorBase& parameter = tensor.is_view() ? tensor._base() : tensor;
  if (parameter.is_leaf() && parameter.requires_grad()) {
    tape.values[id].parameter = true;
    tape.parameter_bytes += tape.values[id].bytes;
    tape.parameters.emplace_back(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(parameter.unsafeGetTensorImpl()));
    const at::Tensor& gradient = parameter.unsafeGetTensorImpl()->grad();
    if (gradient.defined() && gradient.has_storage()) {
      tape.gradient_bytes += static_cast<int64_t>(gradient.storage().nbytes());
      c10::StorageImpl& older = *storage_of(gradient);
      if (tape.ledger != nullptr && gradient.device() == parameter.device())
        tape.adopted_bytes += tape.ledger->adopt(older);
    }
  }
  return id;
}

std::optional<GeneratorRecord> Recorder::generator_before(const OperatorInfo& info,
                                                          c10::ArrayRef<const c10::IValue> inputs) {
  if (!info.random && !info.foreign) return GeneratorRecord();
  at::Generator generator;
  const int16_t position = info.generator_argument;
  if (position >= 0 && inputs[static_cast<size_t>(position)].isGenerator()) {
    generator = inputs[static_cast<size_t>(position)].toGenerator();
  } else {
    generator = default_generator(device_of(inputs));
  }
  if (!generator.defined()) return info.random ? std::nullopt : std::optional(GeneratorRecord());
  if (!info.random && !is_free(generator)) return std::nullopt;
  const memory::FrozenPlain frozen;  // plain keeps no such states
  try {
    GeneratorRecord record = capture_generator(generator);
    if (!info.random) record.drawn = state_checksum(generator);  // to be told by it whether anything was drawn
    return record;
  } catch (...) {  // no memory for it: do without
    return std::nullopt;
  }
}

void Recorder::keep_generator(Pending& pending, GeneratorRecord generator) {
  pending.suspect_random = !pending.info->random;
  pending.generator = generator.generator;
  const auto bytes = static_cast<int64_t>(generator.state.nbytes());
  pending.operation.generator = tape_->program.add_generator(std::move(generator));
  if (tape_->trace != nullptr) tape_->trace->held(bytes);
}

void Recorder::before_write(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  before_write(StoragePtr::reclaim_copy(storage_of(tensor)));
}

void Recorder::before_write(const StoragePtr& storage) {
  const ValueId id = tape_->find(storage.get());
  if (id == kNone) return;
  if (tape_->values[id].raw) {
    tape_->unhome(id);
  } else if (!tape_->recomputable(id)) {
    // What was emptied before cannot be copied. It may be about to be filled again, with the same contents.
    if (!tape_->emptied(id)) save_leaf(id);
  } else {
    // What follows is a leaf, to be held where a saved tensor may look at it.
    const ValueId after = tape_->supersede(id, storage);
    tape_->hold_leaf(after, storage);
  }
}

void Recorder::copy_leaf(Value& leaf, const c10::StorageImpl& contents) {
  try {
    const memory::FrozenPlain frozen;
    leaf.kept = copy_of(contents);
    leaf.allocation = memory::allocation_of(*leaf.kept);
    leaf.extra = true;
    leaf.loss = Loss::kIntact;
    if (tape_->trace != nullptr) tape_->trace->held(leaf.bytes);
  } catch (...) {  // no room for the copy: a replay that needs it will say so
  }
}

void Recorder::save_leaf(ValueId leaf, bool intact) {
  Tape& tape = *tape_;
  if (tape.values[leaf].readers > 0) tape.collect_before_write(leaf);
  Value& value = tape.values[leaf];
  const StoragePtr original = std::move(value.kept);
  value.kept.reset();
  if (original == nullptr) return;  // overwritten before, unseen
  value.version_counter = c10::VariableVersion(c10::VariableVersion::DISABLED);
  if (value.readers > 0) {
    value.loss = Loss::kNoRoom;
    if (intact) copy_leaf(value, *original);
  }
  if (value.saved > 0) {
    const StoragePtr copy = std::move(value.kept);
    const ValueId after = tape.supersede(leaf, original);
    tape.hold_leaf(after, original);
    tape.values[leaf].kept = copy;
  }
  tape.unhome(leaf);
}

}  // namespace remat
