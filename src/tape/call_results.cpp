// What a call has done, when it has run.
#include <algorithm>

#include "device/device.h"
#include "memory/ledger.h"
#include "pytorch/tensors_of.h"
#include "tape/call_writer.h"
#include "tape/default_type.h"
#include "tape/trace.h"

namespace remat {
namespace {

constexpr int64_t kLeastPacked = 64;  // bytes: less is not worth it

/// An `out` that had another size than the result was resized: the operator has not overwritten what it reached before.
void forget_resized(Call& call, c10::ArrayRef<const c10::IValue> outputs) {
  for (Call::Write& write : call.writes) {
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

}  // namespace

void CallWriter::end(CallEnd end) {
  Call call = std::move(calls_.back());
  calls_.pop_back();
  call.operation.seconds = end.seconds;
  this->end(call, end);
}

bool CallWriter::settle_generator(Call& call, uint64_t drawn) {
  if (call.operation.generator == kNoId) return true;
  GeneratorRecord& record = tape_.program.generator(call.operation.generator);
  if (!call.draws_are_uncertain || drawn != record.drawn) {
    record.drawn = drawn;
    return true;
  }
  const memory::FrozenPlain frozen;
  const auto bytes = static_cast<int64_t>(record.state.nbytes());
  tape_.counts.generator_bytes -= bytes;
  if (tape_.trace != nullptr && tape_.values.is_on_device(device::kHost)) tape_.trace->held(-bytes);
  record = GeneratorRecord();
  call.operation.generator = kNoId;
  return !call.info->random;
}

bool CallWriter::is_recorded(const Call& call, const CallEnd& end) {
  if (!call.repeatable || !end.alone || end.failed) return false;
  bool recorded = true;
  // A result that is not plain cannot be told from its contents: then nothing of this operator is recomputed.
  for_each_result(end.outputs,
                  [&](const at::Tensor& t) { recorded = recorded && (!t.defined() || is_plain(t) || is_empty(t)); });
  for (const Call::Write& write : call.writes) {
    recorded = recorded && (write.before == kNoId ||
                            static_cast<int64_t>(write.storage->nbytes()) == tape_.values[write.before].bytes);
  }
  const auto any_is = [&](auto origin) {
    return std::ranges::any_of(call.unavailable, [&](ValueId read) { return origin(tape_.values[read]); });
  };
  if (!recorded || !any_is([](const Value& value) { return value.is_unavailable(); })) return recorded;
  // Where only externally owned memory was read, the results are copies of it, and leaves like others.
  if (!any_is([](const Value& value) { return value.origin == Origin::kUnavailable; })) return false;
  for_each_result(end.outputs, [&](const at::Tensor& t) {
    if (t.defined() && t.has_storage() && !is_empty(t)) add_unavailable(t);
  });
  return false;
}

void CallWriter::add_results(const Call& call, c10::ArrayRef<const c10::IValue> outputs, OperationId id) {
  Residency& values = tape_.values;
  uint32_t result = 0;
  for_each_result(outputs, [&](const at::Tensor& t) {
    const uint32_t index = result++;
    if (!t.defined() || t.unsafeGetTensorImpl()->unsafe_storage().nbytes() == 0) return;
    const auto* const storage = storage_of(t);
    if (call.writes_to(storage)) return;
    if (const ValueId known = values.find(storage); known != kNoId) {
      // A view, or a result of an operator inside; but what that left without contents, this one has filled.
      if (known < call.values) return;
      if (call.makes_unread_factory()) {  // what is in it may be written through a pointer
        values.set_unread_factory(known, !values[known].is_leaf());
        if (values[known].is_unread_factory()) note_filled(call, known, *storage);
        return;
      }
      if (!values[known].is_unread_factory() || !tape_.program[values[known].producer].info->factory) return;
      values.detach(known);
    }
    values.add_result(t, id, index, *call.info, /*watch=*/!call.inside_wrapper);
  });
}

void CallWriter::end(Call& call, CallEnd& end) {
  Tape& tape = tape_;
  const bool drew_as_kept = settle_generator(call, end.drawn);
  count_older(tape, end.outputs);  // memory that is not the allocator's: files
  if (!end.contradictions.empty()) {
    call.repeatable = false;
    tape.contradicted(*call.info, end.contradictions);
  }
  if (!end.failed && call.info->collective) leave_unavailable(call, end.outputs);
  const auto id = static_cast<OperationId>(tape.program.size());
  const auto first_value = static_cast<ValueId>(tape.values.size());
  settle_default_type(call, end, tape.program);
  const bool recorded = drew_as_kept && is_recorded(call, end);
  if (recorded) add_results(call, end.outputs, id);
  forget_resized(call, end.outputs);
  finish_writes(call, recorded ? id : kNoId);
  if (calls_.empty()) tape.set_captured(SIZE_MAX, SIZE_MAX);
  const auto value_count = tape.values.size() - first_value;
  if (!recorded || value_count == 0) {
    tape.program.erase(call.before, call.after);
    if (tape.trace != nullptr) tape.trace->operator_skipped();
    bind_saved(call);
    return;
  }
  Operation& operation = call.operation;
  operation.first_value = first_value;
  operation.value_count = static_cast<uint32_t>(value_count);
  const bool unread = call.makes_unread_factory();
  for (ValueId value = first_value; value < tape.values.size(); ++value) {
    tape.values.set_policy(value, scope_, end.evicted_by_policy);
    tape.values.set_unread_factory(value, unread);
    if (compiled_ > 0) tape.values.set_compiled(value);
    if (unread) note_filled(call, value, *tape.values[value].home.storage._unsafe_get_target());
  }
  tape.program.for_each_value(operation, [&](ValueId input) { tape.values.add_reader(input); });
  mark_packable(operation, end.outputs);
  tape.program.add(operation);
  tape.follow_plan();
  if (tape.times) tape.times->add(id, std::move(call.began), std::move(end.ended));
  if (tape.trace != nullptr) tape.trace->operator_ended(tape.program, tape.values, id);
  for (ValueId value = first_value; value < tape.values.size(); ++value) {  // saved before it was written to
    if (tape.values[value].needs.saved > 0) tape.retain(value, tape.values[value].home.storage.lock());
  }
  bind_saved(call);
}

void CallWriter::note_filled(const Call& call, ValueId id, const c10::StorageImpl& storage) {
  // Inside of another operator it may be scratch, which that one fills through a pointer.
  if (!calls_.empty() || (call.writes.empty() ? !call.info->fills_result : call.info->factory)) return;
  const uint32_t generator = call.operation.generator;
  const size_t state = generator == kNoId ? 0 : tape_.program.generator(generator).state.nbytes();
  if (storage.nbytes() > state) tape_.values.note_filled(id, storage);
}

/// Notes which results may take fewer bytes than they seem to. A hope: pack() looks at the contents.
void CallWriter::mark_packable(const Operation& operation, c10::ArrayRef<const c10::IValue> outputs) {
  Tape& tape = tape_;
  if (!tape.pack_values) return;
  bool few = operation.info->two_valued;
  if (operation.info->elementwise) {
    uint32_t inputs = 0, packable = 0;
    tape.program.for_each_value(operation, [&](ValueId input) {
      ++inputs;
      packable += tape.values[input].form.element_bytes > 0 ? 1 : 0;
    });
    few = inputs == 1 && packable == 1;
  }
  for_each_result(outputs, [&](const at::Tensor& t) {
    if (!t.defined() || !t.has_storage()) return;
    const bool likely = few || t.scalar_type() == at::kBool || t.scalar_type() == at::kLong;
    const ValueId id = likely ? tape.values.find(storage_of(t)) : kNoId;
    if (id != kNoId && id >= operation.first_value && tape.values[id].bytes >= kLeastPacked && t.itemsize() <= 8) {
      tape.values.mark_packable(id, t.itemsize());
    }
  });
}

void CallWriter::add_unavailable(const at::Tensor& tensor) {
  Residency& values = tape_.values;
  if (values.find(storage_of(tensor)) != kNoId) return;
  values.become_unavailable(values.add(StoragePtr::reclaim_copy(storage_of(tensor)), *tensor.unsafeGetTensorImpl()));
}

void CallWriter::leave_unavailable(const Call& call, c10::ArrayRef<const c10::IValue> outputs) {
  Residency& values = tape_.values;
  const auto leave = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !is_plain(tensor)) return;
    add_unavailable(tensor);
    const ValueId id = values.find(storage_of(tensor));
    const Value& value = values[id];
    if (value.producer == kNoId && value.needs.saved == 0 && value.needs.readers == 0) values.become_unavailable(id);
  };
  for_each_result(outputs, leave);
  for (const at::Tensor& tensor : call.communicated) leave(tensor);
}

void CallWriter::finish_writes(Call& call, OperationId producer) {
  Tape& tape = tape_;
  for (size_t i = 0; i < call.writes.size(); ++i) {
    const Call::Write& write = call.writes[i];
    // The same storage twice, or an operator that it called has done (and recorded) the writing.
    if (tape.values.find(write.storage.get()) != write.before) continue;
    if (write.storage->nbytes() == 0) continue;
    const ValueId after = tape.values.supersede(write.before, write.storage);
    tape.values.set_writer(after, producer, static_cast<uint32_t>(i), write.version_counter);
    if (producer == kNoId) {
      tape.hold_leaf(after, write.storage);
    } else if (write.before != kNoId) {
      tape.values.note_written(write.before, after, *write.storage, write.strip);
    }
  }
}

bool CallWriter::bind_later(UnboundSave& saved, const c10::TensorImpl& tensor) {
  if (calls_.empty()) return false;
  Call& call = calls_.back();
  const auto* const storage = storage_of(tensor);
  bool running = tape_.values.find(storage) == kNoId;
  for (const auto& write : call.writes) {
    running = running || (write.storage.get() == storage && write.version_counter.current_version() != write.version);
  }
  if (running) call.saved.push_back(&saved);
  return running;
}

void CallWriter::forget(UnboundSave& saved) {
  for (auto& call : calls_) std::erase(call.saved, &saved);
}

void CallWriter::bind_saved(Call& call) {
  for (UnboundSave* const saved : call.saved) saved->bind();
  call.saved.clear();
}

}  // namespace remat
