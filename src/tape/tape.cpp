#include "tape/tape.h"

#include "device/device.h"
#include "tape/trace.h"

namespace remat {

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

}  // namespace remat
