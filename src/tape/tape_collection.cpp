// Garbage collection: operations that no saved tensor needs any more go, and their values become leaves.
#include <algorithm>
#include <utility>

#include "pytorch/autograd_engine.h"
#include "tape/tape.h"

namespace remat {

std::vector<bool> Tape::made_of(ValueId leaf) const {
  std::vector<bool> made(values.size(), false);
  made[leaf] = true;
  for (const Operation& operation : program) {  // in the order in which they ran
    if (operation.info == nullptr) continue;
    bool reads = false;
    program.for_each_value(operation, [&](ValueId input) { reads = reads || made[input]; });
    if (reads) std::fill_n(made.begin() + operation.first_value, operation.value_count, true);
  }
  return made;
}

std::vector<bool> Tape::reachable(bool living, uint32_t stamp, ValueId leaf, bool settles) {
  std::vector<bool> needed(values.size(), false);
  const std::vector<bool> passed_over = leaf == kNoId ? std::vector<bool>(values.size(), false) : made_of(leaf);
  std::vector<ValueId> stack;
  const auto need = [&](ValueId id) {
    if (id != kNoId && !needed[id]) {
      needed[id] = true;
      stack.push_back(id);
    }
  };
  for (ValueId id = 0; id < values.size(); ++id) {
    const Value& value = values[id];
    const bool lives = living && !passed_over[id] && value.is_in_hands();
    if (value.needs.saved > 0 || value.needs.wanted > 0 || id >= captured_values || lives) need(id);
  }
  program.for_each_tensor_from(captured_tensors, [&](const TensorArgument& t) { need(t.value); });
  while (!stack.empty()) {
    const Value& value = values[stack.back()];
    stack.pop_back();
    need(value.successor);
    if (settles && value.kept) continue;
    if (value.producer == kNoId || program.is_stamped(value.producer, stamp)) continue;
    program.stamp(value.producer) = stamp;
    program.for_each_value(program[value.producer], need);
  }
  return needed;
}

void Tape::forget_unread(OperationId id) {
  if (captured_tensors != SIZE_MAX) return;  // an operator that is running may be about to read a result
  const Operation& operation = program[id];
  const ValueId end = operation.first_value + operation.value_count;
  for (ValueId made = operation.first_value; made < end; ++made) {
    const Value& value = values[made];
    if (value.is_needed() || value.kept || value.home.storage.use_count() > 0) return;
  }
  std::vector<ValueId> inputs;
  program.for_each_value(operation, [&](ValueId input) {
    inputs.push_back(input);
    values.remove_reader(input);
  });
  for (ValueId made = operation.first_value; made < end; ++made) values.forget_producer(made);
  program.forget(id);
  std::vector<StoragePtr> freed;
  for (const ValueId input : inputs) {
    if (!values[input].is_needed() && values[input].producer == kNoId) values.reset(input, freed);
  }
}

void Tape::collect() {
  const uint32_t stamp = program.next_stamp();
  release_all_but(reachable(/*living=*/false, stamp), stamp);
  released_since_collect_ = 0;
  left_by_collect_ = reachable_;
}

void Tape::collect_unreachable() {
  const uint32_t stamp = program.next_stamp();
  release_all_but(reachable(/*living=*/true, stamp), stamp);
}

void Tape::collect_before_write(ValueId leaf) {
  const uint32_t stamp = program.next_stamp();
  release_all_but(reachable(/*living=*/true, stamp, leaf), stamp);
}

bool Tape::collect_to_free(bool spare_living) {
  const uint32_t stamp = program.next_stamp();
  return free_all_but(reachable(/*living=*/spare_living, stamp), stamp, /*forgets=*/!spare_living);
}

bool Tape::settle() {
  const uint32_t stamp = program.next_stamp();
  return free_all_but(reachable(/*living=*/false, stamp, kNoId, /*settles=*/true), stamp, /*forgets=*/true);
}

bool Tape::free_all_but(const std::vector<bool>& needed, uint32_t stamp, bool forgets) {
  if (!would_free(needed, stamp)) return false;
  if (forgets) note_forgotten();
  release_all_but(needed, stamp);
  return true;
}

bool Tape::would_free(const std::vector<bool>& needed, uint32_t stamp) const {
  for (ValueId id = 0; id < values.size(); ++id) {
    if (needed[id]) continue;
    if (values[id].packed.contents || (values[id].kept && !values[id].is_in_use())) return true;
  }
  // What operations hold is little each, but where gradients are the peak it may be all that is left.
  for (OperationId id = 0; id < program.size(); ++id) {
    if (!program.is_stamped(id, stamp) && program.holds_memory(id)) return true;
  }
  return false;
}

int64_t Tape::release_unused_generators() {
  if (!std::exchange(released_since_look_, false) || !program.has_generators()) return 0;
  const uint32_t stamp = program.next_stamp();
  reachable(/*living=*/true, stamp);
  int64_t bytes = 0;
  for (OperationId id = 0; id < program.size(); ++id) {
    if (!program.is_stamped(id, stamp)) bytes += program.release_generator(id);
  }
  return bytes;
}

void Tape::release_all_but(const std::vector<bool>& needed, uint32_t stamp) {
  reachable_ = 0;
  collected_at_ = program.size();
  std::vector<StoragePtr> freed;  // freed after the arrays are consistent again
  values.clear_readers();
  for (OperationId id = 0; id < program.size(); ++id) {
    if (program[id].info == nullptr) continue;
    if (program.is_stamped(id, stamp)) {
      ++reachable_;
      program.for_each_value(program[id], [&](ValueId input) { values.add_reader(input); });
    } else {
      program.forget(id);
    }
  }
  for (ValueId id = 0; id < values.size(); ++id) {
    const OperationId producer = values[id].producer;
    if (producer != kNoId && program[producer].info == nullptr) values.forget_producer(id);
    if (!needed[id]) values.reset(id, freed);
  }
  for (Scope& scope : scopes_) std::erase_if(scope.anchors, [&](ValueId anchor) { return !needed[anchor]; });
}

void Tape::collect_if_due() {
  // After the last of an ended step nothing can be asked for: whoever still holds the step holds no memory by it.
  const bool is_over = closed && live_ == 0;
  if (is_over || released_since_collect_ > collection_threshold(/*rebuilding=*/in_nested_backward(), left_by_collect_))
    collect();
  release_checksums();
}

void Tape::release_checksums() {
  if (closed && live_ == 0) values.checksums.deferred.clear();
}

}  // namespace remat
