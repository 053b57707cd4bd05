// What an operator reads, and what it is about to write to: taken down before it runs.
#include <ATen/record_function.h>

#include "device/device.h"
#include "memory/ledger.h"
#include "observe/recorder.h"
#include "pytorch/tensors_of.h"
#include "tape/checksum.h"
#include "tape/generator_state.h"
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
bool is_borrowed(const c10::StorageImpl& storage) {
  const c10::DataPtr& memory = storage.data_ptr();
  return memory.get() != nullptr && memory.get_context() == nullptr;
}

c10::Device device_of(c10::ArrayRef<const c10::IValue> inputs) {
  std::optional<c10::Device> device;
  for (const auto& input : inputs) {
    if (input.isDevice()) return input.toDevice();
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (tensor.defined() && !device) device = tensor.device();
    });
    if (device) return *device;
  }
  return device::kHost;
}

}  // namespace

void Recorder::capture_argument(Pending& pending, size_t position, const c10::IValue& value) {
  Program& program = tape_->program;
  const OperatorInfo& info = *pending.info;
  const Program::Mark before = program.mark();
  const bool statistics =
      pending.updates_statistics && (position == info.statistics[0] || position == info.statistics[1]);
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
    watch_write(pending, impl, kNone).whole = pending.info->overwrites;
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
  if (pending.info->factory && !written) {
    argument.shape_only = true;
    argument.view = TensorView(impl);
    return;
  }
  const bool overwritten = written && pending.info->overwrites;
  for (const auto& outer : pending_) {  // which writes to it later, and nobody will know what this operator read
    if (!overwritten && outer.writes_unrecorded(storage_of(tensor))) pending.repeatable = false;
  }
  pending.reads = pending.reads || !overwritten;
  argument.value = read(tensor, overwritten);
  if (tape.values[argument.value].unheld) pending.unheld.push_back(argument.value);
  argument.view = TensorView(impl);
  const bool in_hands = !pending.inside_wrapper && argument.value < first_compiled_;
  if (in_hands && tape.values[argument.value].compiled && !tensor.requires_grad()) {
    tape.values.leave_compiled(argument.value);
  }
  if (!overwritten && in_hands && tape.may_change_unseen(argument.value, tensor)) {
    const Value& value = tape.values[argument.value];
    const ByteRange reach = reach_of(impl);
    const bool known = value.filled && value.checksum != 0 && reach.begin == 0 && reach.end == value.extent;
    if (known) {
      argument.checksum = value.checksum;
    } else if (device::is_host(tensor.device())) {
      argument.checksum = read_checksum(impl, tape.step);
    } else {  // of frozen weights a sample
      const bool sample = value.producer == kNone && may_be_constant(impl);
      argument.checksum = tape.values.checksums.take(*storage_of(impl), reach, sample);
    }
  }
  if (!written) return;
  Write& write = watch_write(pending, impl, argument.value);
  write.whole = overwritten && covers_storage(tensor);
  if (overwritten && tape.values[argument.value].is_of_factory()) write.strip = strip_of(impl);
}

Recorder::Write& Recorder::watch_write(Pending& pending, const c10::TensorImpl& impl, ValueId before) {
  pending.writes.push_back({.storage = StoragePtr::reclaim_copy(storage_of(impl)),
                            .before = before,
                            .version_counter = impl.version_counter(),
                            .version = impl.version_counter().current_version(),
                            .strip = {}});
  return pending.writes.back();
}

ValueId Recorder::read(const at::Tensor& tensor, bool overwritten) {
  Tape& tape = *tape_;
  Residency& values = tape.values;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const auto storage = StoragePtr::reclaim_copy(storage_of(impl));
  const ValueId id = values.find(storage.get());
  if (id == kNone) values.streams.forget(*storage);
  values.streams.used(*storage);
  if (id != kNone) {
    if (values[id].unheld && is_parameter(tensor)) {  // its layer's replays may read what a collective has gathered
      values.detach(id);
      return read_new(tensor, storage);
    }
    const Value& value = values[id];
    const bool emptied = !value.is_in_place(*storage) && !values.is_restored(id);
    const bool handed_out =
        value.recomputable() && (value.is_handed_out(*storage) || values.is_overwritten(id, *storage));
    if (handed_out || (emptied && (value.recomputable() || value.saved > 0))) {
      if (!value.recomputable()) values.lose(id, Loss::kEmptied);
      const ValueId leaf = values.hand_over(id, storage, impl);
      tape.hold_leaf(leaf, storage);
      values.set_policy(leaf, root_scope_, /*drop=*/false);
      return leaf;
    }
    if (!emptied && !value.written_unseen() && static_cast<int64_t>(storage->nbytes()) == value.bytes) {
      const bool undefined =
          !overwritten && (!values.is_defined(id, impl) || (value.raw && !values.accept_filled(id, *storage)));
      if (undefined) {
        tape.make_leaf(id, storage);
      } else if (value.recomputable() && tape.needs_lost_leaf(id)) {
        tape.make_unrepeatable(id, storage);
      }
      if (value.producer == kNone) note_leaf_read(*storage);
      const bool from_outside = root_scope_ != 0 && value.scope != root_scope_;
      if (from_outside && value.producer != kNone) tape.hold_anchor(root_scope_, id, storage);
      return id;
    }
    // Somebody wrote to it unseen, or emptied it. Its contents cannot be read again.
    values.lose(id, emptied ? Loss::kEmptied : Loss::kWrittenUnseen);
  }
  return read_new(tensor, storage);
}

void Recorder::note_leaf_read(c10::StorageImpl& storage) {
  if (tape_->trace == nullptr) return;
  const auto kept = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage);
  tape_->leaf_reads.push_back(
      {c10::weak_intrusive_ptr<c10::StorageImpl>(kept), static_cast<OperationId>(tape_->program.size())});
}

/// A tensor that the step was not known to hold.
ValueId Recorder::read_new(const at::Tensor& tensor, const StoragePtr& storage) {
  Tape& tape = *tape_;
  const auto adopt = [&](c10::StorageImpl& older) {
    if (tape.values.ledger != nullptr) tape.counts.adopted_bytes += tape.values.ledger->adopt(older);
  };
  adopt(*storage);
  const ValueId id = tape.values.add(storage, *tensor.unsafeGetTensorImpl());
  if (is_borrowed(*storage) && !is_parameter(tensor)) {
    tape.values.become_borrowed(id);
  } else {
    tape.hold_leaf(id, storage);
  }
  tape.values.set_policy(id, root_scope_, /*drop=*/false);
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

std::optional<GeneratorRecord> Recorder::generator_before(const OperatorInfo& info,
                                                          c10::ArrayRef<const c10::IValue> inputs, bool& no_room) {
  if (!info.random && !info.foreign) return GeneratorRecord();
  at::Generator generator;
  const int16_t position = info.generator_argument;
  if (position >= 0 && inputs[static_cast<size_t>(position)].isGenerator()) {
    generator = inputs[static_cast<size_t>(position)].toGenerator();
  } else {
    const c10::Device device = device_of(inputs);
    generator = device::kind_of(device).default_generator(device);
  }
  if (!generator.defined()) return info.random ? std::nullopt : std::optional(GeneratorRecord());
  if (!info.random && !is_free(generator)) return std::nullopt;
  const memory::FrozenPlain frozen;  // plain keeps no generator states
  try {
    GeneratorRecord record = capture_generator(generator);
    // To be told by it whether anything was drawn. Kernels of devices may draw from elsewhere.
    if (!info.random || !device::is_host(generator.device())) record.drawn = state_checksum(generator);
    return record;
  } catch (...) {  // do without
    no_room = true;
    return std::nullopt;
  }
}

at::Generator Recorder::second_generator(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs) {
  const c10::Device device = device_of(inputs);
  // A device without a kernel for an operator has the CPU's compute it, which draws there.
  if (device::has_streams(device) && (info.random || info.foreign)) {
    return device::kind_of(device::kHost).default_generator(device::kHost);
  }
  if (!info.foreign || info.generator_argument < 0) return {};
  const c10::IValue& given = inputs[static_cast<size_t>(info.generator_argument)];
  if (!given.isGenerator()) return {};
  at::Generator generator = device::kind_of(device).default_generator(device);
  return generator == given.toGenerator() ? at::Generator() : generator;
}

void Recorder::keep_generator(Pending& pending, GeneratorRecord generator) {
  pending.suspect_random = !pending.info->random || !device::is_host(generator.generator.device());
  pending.generator = generator.generator;
  const auto bytes = static_cast<int64_t>(generator.state.nbytes());
  pending.operation.generator = tape_->program.add_generator(std::move(generator));
  tape_->counts.generator_bytes += bytes;
  if (tape_->trace != nullptr && tape_->values.is_on_device(device::kHost))
    tape_->trace->held(bytes);  // where states are
}

void Recorder::before_write(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  tape_->before_write(StoragePtr::reclaim_copy(storage_of(tensor)));
}

}  // namespace remat
