// What the recorder does when an operator has run: its results become values, what it wrote to becomes other values,
// and tensors that autograd saved meanwhile are bound to them.
#include <algorithm>
#include <exception>

#include "device/device.h"
#include "memory/ledger.h"
#include "observe/recorder.h"
#include "observe/step_extent.h"
#include "pytorch/tensors_of.h"
#include "tape/generator_state.h"
#include "tape/trace.h"

namespace remat {
namespace {

constexpr int64_t kLeastPacked = 64;  // bytes: less is not worth it

}  // namespace

void Recorder::end(Pending& pending, c10::ArrayRef<const c10::IValue> outputs) {
  Tape& tape = *tape_;
  // As in begin(): before the tape is locked.
  const uint64_t drawn = pending.generator.defined() ? state_checksum(pending.generator) : 0;
  const at::Generator& second = pending.default_generator;  // whose state is not kept
  const bool alone = (pending.draws == nullptr || pending.draws->is_alone()) &&
                     (!pending.generator.defined() || drawn != 0) &&
                     (!second.defined() || state_checksum(second) == pending.default_drawn);
  pending.draws.reset();
  bool draws_unseen = false;
  const std::lock_guard lock(tape.mutex);
  const bool failed = std::uncaught_exceptions() > pending.exceptions;
  if (pending.generator.defined()) {
    auto& record = tape.program.generator(pending.operation.generator);
    if (!pending.suspect_random) {
      record.drawn = drawn;
    } else if (drawn != record.drawn) {
      pending.suspect_random = false;
      record.drawn = drawn;
    } else {
      const memory::FrozenPlain frozen;
      const auto bytes = static_cast<int64_t>(record.state.nbytes());
      tape.counts.generator_bytes -= bytes;
      if (tape.trace != nullptr && tape.values.is_on_device(device::kHost)) tape.trace->held(-bytes);
      record = GeneratorRecord();
      pending.operation.generator = kNone;
      draws_unseen = pending.info->random;
    }
  }
  count(outputs);  // of memory that is not the allocator's: files
  if (!failed) check_trial(pending, outputs);
  if (!failed && pending.info->collective) leave_unheld(pending, outputs);
  const auto id = static_cast<OperationId>(tape.program.size());
  const auto first_value = static_cast<ValueId>(tape.values.size());
  settle_default_type(pending, outputs);
  bool recorded = pending.repeatable && alone && !draws_unseen && !failed;
  if (recorded) {
    // A result that is not plain cannot be told from its contents: then nothing of this operator is recomputed.
    for_each_result(outputs,
                    [&](const at::Tensor& t) { recorded = recorded && (!t.defined() || is_plain(t) || is_empty(t)); });
  }
  for (const auto& write : pending.writes) {
    recorded = recorded && (write.before == kNone ||
                            static_cast<int64_t>(write.storage->nbytes()) == tape.values[write.before].bytes);
  }
  const bool unheld = std::ranges::any_of(pending.unheld, [&](ValueId read) { return tape.values[read].unheld; });
  if (recorded && unheld) {
    recorded = false;
    // Where only borrowed memory was read, the results are copies of it, and leaves like others.
    const bool spreads = std::ranges::any_of(
        pending.unheld, [&](ValueId read) { return tape.values[read].unheld && !tape.values[read].borrowed; });
    for_each_result(outputs, [&](const at::Tensor& t) {
      if (spreads && t.defined() && t.has_storage() && !is_empty(t)) add_unheld(t);
    });
  }
  if (recorded) {
    uint32_t result = 0;
    for_each_result(outputs, [&](const at::Tensor& t) {
      const uint32_t index = result++;
      if (!t.defined() || t.unsafeGetTensorImpl()->unsafe_storage().nbytes() == 0) return;
      const auto* const storage = storage_of(t);
      if (pending.writes_to(storage)) return;
      if (const ValueId known = tape.values.find(storage); known != kNone) {
        // A view, or a result of an operator inside; but what that left without contents, this one has filled.
        if (known < pending.values) return;
        if (pending.makes_raw()) {  // what is in it may be written through a pointer
          tape.values.set_raw(known, tape.values[known].producer != kNone);
          if (tape.values[known].raw) note_filled(pending, known, *storage);
          return;
        }
        if (!tape.values[known].raw || !tape.program[tape.values[known].producer].info->factory) return;
        tape.values.detach(known);
      }
      tape.values.add_result(t, id, index, *pending.info, /*watch=*/!pending.inside_wrapper);
    });
  }
  forget_resized(pending, outputs);
  finish_writes(pending, recorded ? id : kNone);
  if (pending_.empty()) tape.captured_values = tape.captured_tensors = SIZE_MAX;
  const auto value_count = tape.values.size() - first_value;
  if (!recorded || value_count == 0) {
    tape.program.erase(pending.before, pending.after);
    if (tape.trace != nullptr) tape.trace->operator_skipped();
    bind_saved(pending);
    return;
  }
  Operation& operation = pending.operation;
  operation.first_value = first_value;
  operation.value_count = static_cast<uint32_t>(value_count);
  const bool raw = pending.makes_raw();
  const Policy::Rules* const policy = scopes_.rules();
  const bool drop = policy != nullptr && !policy->keeps(*pending.info);
  for (ValueId value = first_value; value < tape.values.size(); ++value) {
    tape.values.set_policy(value, root_scope_, drop);
    tape.values.set_raw(value, raw);
    if (compiled_ > 0) tape.values.set_compiled(value);
    if (raw) note_filled(pending, value, *tape.values[value].home._unsafe_get_target());
  }
  tape.program.for_each_value(operation, [&](ValueId input) { tape.values.add_reader(input); });
  mark_packable(operation, outputs);
  tape.program.add(operation);
  tape.follow_plan();
  if (tape.times) tape.times->add(id, std::move(pending.began), std::move(pending.ended));
  if (tape.trace != nullptr) tape.trace->operator_ended(tape.program, tape.values, id);
  for (ValueId value = first_value; value < tape.values.size(); ++value) {
    if (tape.values[value].saved > 0)
      tape.retain(value, tape.values[value].home.lock());  // saved before it was written to
  }
  bind_saved(pending);
}

void Recorder::note_filled(const Pending& pending, ValueId id, const c10::StorageImpl& storage) {
  // Inside of another operator it may be scratch, which that one fills through a pointer.
  if (!pending_.empty() || (pending.writes.empty() ? !pending.info->fills_result : pending.info->factory)) return;
  const uint32_t generator = pending.operation.generator;
  const size_t state = generator == kNone ? 0 : tape_->program.generator(generator).state.nbytes();
  if (storage.nbytes() > state) tape_->values.note_filled(id, storage);
}

/// Notes which results may take fewer bytes than they seem to. A hope: pack() looks at the contents.
void Recorder::mark_packable(const Operation& operation, c10::ArrayRef<const c10::IValue> outputs) {
  Tape& tape = *tape_;
  if (!tape.pack_values) return;
  bool few = operation.info->two_valued;
  if (operation.info->elementwise) {
    uint32_t inputs = 0, packable = 0;
    tape.program.for_each_value(operation, [&](ValueId input) {
      ++inputs;
      packable += tape.values[input].element_bytes > 0 ? 1 : 0;
    });
    few = inputs == 1 && packable == 1;
  }
  for_each_result(outputs, [&](const at::Tensor& t) {
    if (!t.defined() || !t.has_storage()) return;
    const bool likely = few || t.scalar_type() == at::kBool || t.scalar_type() == at::kLong;
    const ValueId id = likely ? tape.values.find(storage_of(t)) : kNone;
    if (id != kNone && id >= operation.first_value && tape.values[id].bytes >= kLeastPacked && t.itemsize() <= 8) {
      tape.values.mark_packable(id, t.itemsize());
    }
  });
}

void Recorder::add_unheld(const at::Tensor& tensor) {
  Residency& values = tape_->values;
  if (values.find(storage_of(tensor)) != kNone) return;
  values.become_unheld(values.add(StoragePtr::reclaim_copy(storage_of(tensor)), *tensor.unsafeGetTensorImpl()));
}

void Recorder::leave_unheld(const Pending& pending, c10::ArrayRef<const c10::IValue> outputs) {
  Residency& values = tape_->values;
  const auto leave = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !is_plain(tensor)) return;
    add_unheld(tensor);
    const ValueId id = values.find(storage_of(tensor));
    const Value& value = values[id];
    if (value.producer == kNone && value.saved == 0 && value.readers == 0) values.become_unheld(id);
  };
  for_each_result(outputs, leave);
  for (const at::Tensor& tensor : pending.communicated) leave(tensor);
}

void Recorder::forget_resized(Pending& pending, c10::ArrayRef<const c10::IValue> outputs) {
  for (Write& write : pending.writes) {
    if (!write.strip) continue;
    bool found = false, same = false;
    for_each_result(outputs, [&](const at::Tensor& t) {
      if (!t.defined() || !t.has_storage() || storage_of(t) != write.storage.get()) return;
      found = true;
      same = same || strip_of(*t.unsafeGetTensorImpl()) == write.strip;
    });
    if (found && !same) write.strip.reset();
  }
}

void Recorder::finish_writes(Pending& pending, OperationId producer) {
  Tape& tape = *tape_;
  for (size_t i = 0; i < pending.writes.size(); ++i) {
    const Write& write = pending.writes[i];
    // The same storage twice, or an operator that it called has done (and recorded) the writing.
    if (tape.values.find(write.storage.get()) != write.before) continue;
    if (write.storage->nbytes() == 0) continue;
    const ValueId after = tape.values.supersede(write.before, write.storage);
    tape.values.set_writer(after, producer, static_cast<uint32_t>(i), write.version_counter);
    if (producer == kNone) {
      tape.hold_leaf(after, write.storage);
    } else if (write.before != kNone) {
      tape.values.note_written(write.before, after, *write.storage, write.strip);
    }
  }
}

bool Recorder::bind_later(UnboundSave& saved, const c10::TensorImpl& tensor) {
  if (pending_.empty()) return false;
  Pending& pending = pending_.back();
  const auto* const storage = storage_of(tensor);
  bool running = tape_->values.find(storage) == kNone;
  for (const auto& write : pending.writes) {
    running = running || (write.storage.get() == storage && write.version_counter.current_version() != write.version);
  }
  if (running) pending.saved.push_back(&saved);
  return running;
}

void Recorder::forget(UnboundSave& saved) {
  for (auto& pending : pending_) std::erase(pending.saved, &saved);
}

void Recorder::bind_saved(Pending& pending) {
  for (UnboundSave* const saved : pending.saved) saved->bind();
  pending.saved.clear();
}

}  // namespace remat
