#include "tape/collector.h"

#include <algorithm>
#include <utility>

#include <c10/core/GradMode.h>

#include "pytorch/autograd_engine.h"

namespace remat {

std::vector<bool> Collector::made_of(ValueId leaf) const {
  std::vector<bool> made(values_.size(), false);
  made[leaf] = true;
  for (const Operation& operation : program_) {  // in the order in which they ran
    if (operation.info == nullptr) continue;
    bool reads = false;
    program_.for_each_value(operation, [&](ValueId input) { reads = reads || made[input]; });
    if (reads) std::fill_n(made.begin() + operation.first_value, operation.value_count, true);
  }
  return made;
}

std::vector<bool> Collector::reachable(bool living, uint32_t stamp, ValueId leaf, bool settles) {
  std::vector<bool> needed(values_.size(), false);
  const std::vector<bool> passed_over = leaf == kNoId ? std::vector<bool>(values_.size(), false) : made_of(leaf);
  std::vector<ValueId> stack;
  const auto need = [&](ValueId id) {
    if (id != kNoId && !needed[id]) {
      needed[id] = true;
      stack.push_back(id);
    }
  };
  for (ValueId id = 0; id < values_.size(); ++id) {
    const Value& value = values_[id];
    const bool lives = living && !passed_over[id] && value.is_in_hands();
    if (value.needs.saved > 0 || value.needs.wanted > 0 || id >= captured_values || lives) need(id);
  }
  program_.for_each_tensor_from(captured_tensors, [&](const TensorArgument& t) { need(t.value); });
  while (!stack.empty()) {
    const Value& value = values_[stack.back()];
    stack.pop_back();
    need(value.successor);
    if (settles && value.kept) continue;
    if (value.producer == kNoId || program_.is_stamped(value.producer, stamp)) continue;
    program_.stamp(value.producer) = stamp;
    program_.for_each_value(program_[value.producer], need);
  }
  return needed;
}

void Collector::forget_unread(OperationId id) {
  if (captured_tensors != SIZE_MAX) return;  // an operator that is running may be about to read a result
  const Operation& operation = program_[id];
  const ValueId end = operation.first_value + operation.value_count;
  for (ValueId made = operation.first_value; made < end; ++made) {
    const Value& value = values_[made];
    if (value.is_needed() || value.kept || value.home.storage.use_count() > 0) return;
  }
  std::vector<ValueId> inputs;
  program_.for_each_value(operation, [&](ValueId input) {
    inputs.push_back(input);
    values_.remove_reader(input);
  });
  for (ValueId made = operation.first_value; made < end; ++made) values_.forget_producer(made);
  program_.forget(id);
  std::vector<StoragePtr> freed;
  for (const ValueId input : inputs) {
    if (!values_[input].is_needed() && values_[input].producer == kNoId) values_.reset(input, freed);
  }
}

void Collector::collect() {
  const uint32_t stamp = program_.next_stamp();
  release_all_but(reachable(/*living=*/false, stamp), stamp);
  released_since_collect_ = 0;
  left_by_collect_ = reachable_;
}

void Collector::collect_unreachable() {
  const uint32_t stamp = program_.next_stamp();
  release_all_but(reachable(/*living=*/true, stamp), stamp);
}

void Collector::collect_before_write(ValueId leaf) {
  const uint32_t stamp = program_.next_stamp();
  release_all_but(reachable(/*living=*/true, stamp, leaf), stamp);
}

bool Collector::collect_to_free(bool spare_living) {
  const uint32_t stamp = program_.next_stamp();
  return free_all_but(reachable(/*living=*/spare_living, stamp), stamp);
}

bool Collector::settle() {
  const uint32_t stamp = program_.next_stamp();
  return free_all_but(reachable(/*living=*/false, stamp, kNoId, /*settles=*/true), stamp);
}

bool Collector::free_all_but(const std::vector<bool>& needed, uint32_t stamp) {
  if (!would_free(needed, stamp)) return false;
  release_all_but(needed, stamp);
  return true;
}

bool Collector::would_free(const std::vector<bool>& needed, uint32_t stamp) const {
  for (ValueId id = 0; id < values_.size(); ++id) {
    if (needed[id]) continue;
    if (values_[id].form.contents || (values_[id].kept && !values_[id].is_in_use())) return true;
  }
  // What operations hold is little each, but where gradients are the peak it may be all that is left.
  for (OperationId id = 0; id < program_.size(); ++id) {
    if (!program_.is_stamped(id, stamp) && program_.holds_memory(id)) return true;
  }
  return false;
}

int64_t Collector::release_unused_generators() {
  if (!std::exchange(released_since_look_, false) || !program_.has_generators()) return 0;
  const uint32_t stamp = program_.next_stamp();
  reachable(/*living=*/true, stamp);
  int64_t bytes = 0;
  for (OperationId id = 0; id < program_.size(); ++id) {
    if (!program_.is_stamped(id, stamp)) bytes += program_.release_generator(id);
  }
  return bytes;
}

void Collector::release_all_but(const std::vector<bool>& needed, uint32_t stamp) {
  reachable_ = 0;
  collected_at_ = program_.size();
  std::vector<StoragePtr> freed;  // freed after the arrays are consistent again
  values_.clear_readers();
  for (OperationId id = 0; id < program_.size(); ++id) {
    if (program_[id].info == nullptr) continue;
    if (program_.is_stamped(id, stamp)) {
      ++reachable_;
      program_.for_each_value(program_[id], [&](ValueId input) { values_.add_reader(input); });
    } else {
      program_.forget(id);
    }
  }
  for (ValueId id = 0; id < values_.size(); ++id) {
    const OperationId producer = values_[id].producer;
    if (producer != kNoId && program_[producer].info == nullptr) values_.forget_producer(id);
    if (!needed[id]) values_.reset(id, freed);
  }
  for (Scope& scope : scopes_) std::erase_if(scope.anchors, [&](ValueId anchor) { return !needed[anchor]; });
}

void Collector::collect_if_due() {
  if (released_since_collect_ > threshold(/*rebuilding=*/in_nested_backward(), left_by_collect_)) collect();
}

void Collector::collect_while_recording(bool traced) {
  const bool rebuilding = c10::GradMode::is_enabled() && in_backward_that_frees();
  if ((!traced || rebuilding) && program_.size() > collected_at_ + threshold(rebuilding, reachable_)) {
    collect_unreachable();
  }
}

}  // namespace remat
