#include "tape/tape.h"

#include <string>
#include <utility>

#include <remat/error.h>

#include "device/device.h"
#include "memory/ledger.h"
#include "tape/call.h"
#include "tape/trace.h"
#include "tape/value_rules.h"

namespace remat {
namespace {

/// Null where there is no room.
StoragePtr copy_for_replays(const c10::StorageImpl& contents) {
  try {
    const memory::FrozenPlain frozen;
    return device::copy_of(contents);
  } catch (...) {  // a replay that needs it will say so
    return {};
  }
}

}  // namespace

void Tape::set_trace(Trace* now) {
  trace = now;
  values.observer = now;
}

bool Tape::may_change_unseen(ValueId id, const at::Tensor& tensor) const {
  if (!device::kind_of(tensor.device()).has_contents()) return false;
  const Value& value = values[id];
  if (value.producer != kNoId) return value.watch.access == PointerAccess::kUsers && !tensor.requires_grad();
  if (!tensor.requires_grad() || value.is_exported(*storage_of(tensor))) return true;
  return !base_of(tensor).is_leaf();
}

bool Tape::needs_lost_leaf(ValueId id) {
  const uint64_t losses = memory::watched_ends() + values.freed_homes();
  if (losses != losses_) {
    losses_ = losses;
    intact_ = program.next_stamp();
  }
  const OperationId producer = values[id].producer;
  if (intact_ == 0 || (producer != kNoId && program.is_stamped(producer, intact_))) return false;
  std::vector<ValueId> stack = {id};
  while (!stack.empty()) {
    const Value& value = values[stack.back()];
    if (values.is_emptied_leaf(stack.back())) {
      intact_ = program.next_stamp();  // some that were stamped on the way here are not
      return true;
    }
    stack.pop_back();
    if (value.producer == kNoId || program.is_stamped(value.producer, intact_)) continue;
    program.stamp(value.producer) = intact_;
    program.for_each_value(program[value.producer], [&](ValueId input) { stack.push_back(input); });
  }
  return false;
}

void Tape::make_leaf(ValueId id, const StoragePtr& storage) {
  values.become_leaf(id);
  hold_leaf(id, storage);
  if (trace != nullptr) trace->holds(id, *storage);
}

void Tape::make_unrepeatable(ValueId id, const StoragePtr& storage) {
  if (values[id].kept) return make_leaf(id, storage);
  values.become_unavailable(id);
}

void Tape::hold_unavailable(ValueId id, const StoragePtr& storage) { make_leaf(id, storage); }

void Tape::retain(ValueId id, const StoragePtr& storage) {
  if (trace != nullptr) trace->holds(id, *storage);
  const Value& value = values[id];
  if (value.kept) return;
  values.keep(id, storage);
  if (value.policy.retention == Retention::kDrop) drop_queue_.push_back(id);
  take_action(id);
  const OperatorInfo* const producer = value.producer == kNoId ? nullptr : program[value.producer].info;
  if (producer != nullptr) values.watch_first(id, *producer);
}

void Tape::take_action(ValueId id) {
  const auto action = actions != nullptr ? actions->action_of(*this, id) : std::nullopt;
  if (!action) return;
  values.set_action(id, *action);
  if (values[id].action.kind != Action::Kind::kKeep && !values[id].is_pinned()) drop_queue_.push_back(id);
}

void Tape::follow_plan() {
  const OperationId first = actions != nullptr ? actions->advance(*this) : kNoId;
  if (first == kNoId) return;
  for (ValueId id = program[first].first_value; id < values.size(); ++id) {
    if ((values[id].needs.saved > 0 || values[id].needs.held_for > 0) && values[id].kept) take_action(id);
  }
}

bool Tape::collect_to_free(bool spare_living) {
  const bool freed = collector_.collect_to_free(spare_living);
  if (freed && !spare_living) note_forgotten();
  return freed;
}

bool Tape::settle() {
  const bool freed = collector_.settle();
  if (freed) note_forgotten();
  return freed;
}

void Tape::release_checksums() {
  if (is_over()) values.checksums.deferred.clear();
}

void Tape::hold_leaf(ValueId leaf, const StoragePtr& storage) {
  values.keep(leaf, storage);
  leaf_queue_.push_back(leaf);
}

uint32_t Tape::open_scope() {
  scopes_.emplace_back().first_saved = static_cast<ValueId>(values.size());
  return static_cast<uint32_t>(scopes_.size());
}

void Tape::close_scope(uint32_t id) {
  Scope& scope = scopes_[id - 1];
  scope.end = static_cast<ValueId>(values.size());
  for (ValueId made = scope.first_saved; made < scope.end; ++made) {
    if (values[made].needs.saved > 0) return;
  }
  for (ValueId made = scope.first_saved; made < scope.end; ++made) {
    if (values[made].is_in_hands()) values.set_policy(made, id, /*drop=*/false);
  }
  release_anchors(scope);
}

void Tape::hold_anchor(uint32_t scope, ValueId anchor, const StoragePtr& storage) {
  if (!values.add_anchor(anchor, scope)) return;
  scopes_[scope - 1].anchors.push_back(anchor);
  if (values[anchor].kept) return;
  hold_leaf(anchor, storage);
  take_action(anchor);
  if (trace != nullptr) trace->holds(anchor, *storage);
}

void Tape::before_write(const StoragePtr& storage) {
  const ValueId id = values.find(storage.get());
  if (id == kNoId) return;
  if (values[id].is_unread_factory() || values[id].is_unavailable()) {
    values.detach(id);
  } else if (!values[id].is_recomputable()) {
    // What was emptied before cannot be copied. It may be about to be filled again, with the same contents.
    if (!values.emptied(id)) save_leaf(id, /*intact=*/true);
  } else {
    // What follows is a leaf, to be held where a saved tensor may look at it.
    hold_leaf(values.supersede(id, storage), storage);
  }
}

void Tape::after_write(const StoragePtr& storage) {
  const ValueId id = values.find(storage.get());
  if (id == kNoId) return;
  if (values[id].is_unread_factory() || values[id].is_unavailable() || values[id].is_recomputable()) {
    before_write(storage);  // the old contents need no copy
  } else {
    save_leaf(id, /*intact=*/false);
  }
}

void Tape::save_leaf(ValueId leaf, bool intact) {
  if (values[leaf].needs.readers > 0) collector_.collect_before_write(leaf);
  const StoragePtr original = values[leaf].kept;
  if (original == nullptr) return;  // overwritten before, unseen
  StoragePtr copy;
  if (values[leaf].needs.readers > 0 && intact) copy = copy_for_replays(*original);
  if (values[leaf].needs.readers == 0) {  // to make room for the copy, its readers were released
    const memory::FrozenPlain frozen;
    copy.reset();
  }
  if (values[leaf].needs.saved > 0) hold_leaf(values.supersede(leaf, original), original);
  values.move_to_copy(leaf, copy);
}

void Tape::contradicted(const OperatorInfo& info, const std::vector<Contradiction>& contradictions) {
  info.contradicted = true;
  for (OperationId op = 0; op < program.size(); ++op) {
    const Operation& operation = program[op];
    if (operation.info != &info) continue;
    for (ValueId id = operation.first_value; id < operation.first_value + operation.value_count; ++id) {
      if (values[id].producer != op) continue;
      const StoragePtr storage = values.alive(id);
      if (storage == nullptr) continue;  // evicted: a replay will say that it cannot run
      make_leaf(id, storage);
    }
  }
  for (const auto& [storage, changed] : contradictions) {
    if (changed) {
      after_write(storage);
    } else {
      before_write(storage);  // the result may be what it will write to until somebody waits for it
    }
  }
}

void Tape::replace_data(const at::TensorBase& tensor, const at::TensorBase& other) {
  if (!tensor.has_storage()) return;
  const ValueId id = values.find(storage_of(tensor));
  if (!tensor.is_leaf() || (id != kNoId && values[id].is_recomputable())) {
    const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
    replaced_.add(*impl, saves);
  } else if (other.has_storage()) {  // leaves of autograd's graph are saved themselves, so that they show it
    replace_leaf(id, *storage_of(tensor), StoragePtr::reclaim_copy(storage_of(other)));
  }
}

void Tape::replace_leaf(ValueId id, const c10::StorageImpl& before, const StoragePtr& after) {
  // What operators have put together for it (a gathered parameter) is freed when it becomes empty, whatever made it.
  const ValueId gathered = values.find(after.get());
  if (gathered != kNoId) {
    if (values[gathered].needs.saved > 0) return;  // an activation's memory
    values.detach(gathered);
    if (values[gathered].producer != kNoId) collector_.forget_unread(values[gathered].producer);
  }
  if (id == kNoId) return;
  // The record's reference, and the tensor's. Where a saved view holds the memory too, emptying the tensor frees none.
  const StoragePtr& kept = values[id].kept;
  const bool frees = after->nbytes() == 0 && kept && owners(kept) == 2;
  const bool fills = before.nbytes() == 0;
  if (frees || fills) values.follow(id, after);
}

void Tape::let_go(const c10::TensorImpl& parameter) {
  if (parameters.erase(&parameter) == 0) return;
  const at::Tensor& gradient = parameter.grad();
  if (gradient.defined() && gradient.has_storage()) {
    gradients_of_others.emplace_back(StoragePtr::reclaim_copy(storage_of(gradient)));
  }
}

void Tape::validate() const {
  const auto check = [](bool holds, const char* what) {
    if (!holds) throw InternalError(std::string("[tape] broken invariant: ") + what + "; please report this");
  };
  std::vector<uint32_t> readers(values.size(), 0);
  program.validate();
  for (const Operation& operation : program) {
    if (operation.info == nullptr) continue;
    check(operation.first_value + operation.value_count <= values.size(), "results out of range");
    program.for_each_value(operation, [&](ValueId input) { ++readers[input]; });
  }
  std::vector<uint32_t> held_for(values.size(), 0);
  for (const Scope& scope : scopes_) {
    for (const ValueId anchor : scope.anchors) ++held_for[anchor];
  }
  for (ValueId v = 0; v < values.size(); ++v) {
    const Value& value = values[v];
    check(value.needs.pending <= value.needs.saved, "more pending than saved");
    check(value.needs.readers == readers[v], "a value has not the readers that it counts");
    check(value.needs.held_for == held_for[v], "a value is not the anchor of the scopes that it counts");
    check(value.successor == kNoId || value.successor > v, "a value has a successor that is older");
    if (value.producer != kNoId) {
      check(value.producer < program.size(), "producer out of range");
      const Operation& made = program[value.producer];
      check(made.info != nullptr, "the producer of a value is gone");
      check(made.first_value <= v && v < made.first_value + made.value_count, "a value is not its producer's result");
    }
    const auto* const home = value.home.storage._unsafe_get_target();
    check(home == nullptr || values.find(home) == v, "home not in the table");
    check(home == nullptr || !value.kept || value.kept.get() == home, "a value lives in one storage and holds another");
    const char* const broken = value_rules::broken_rule(value_rules::facts_of(value));
    check(broken == nullptr, broken);
  }
  values.validate_homes();
}

}  // namespace remat
