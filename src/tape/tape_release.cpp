// What the tape does when values are saved, unpacked and released: it evicts and packs them, and frees what nothing
// needs.
#include <algorithm>
#include <utility>

#include "tape/tape.h"
#include "tape/trace.h"

namespace remat {
namespace {

constexpr size_t kMostLooks = 32;

}  // namespace

uint32_t Tape::add_saved(ValueId id, const StoragePtr& storage) {
  const Value& value = values[id];
  if (value.needs.saved == 0) ++live_;
  const bool for_later = value.needs.pending < value.needs.saved;
  const uint32_t unpacked_in = for_later ? value.needs.round : 0;
  if (for_later && value.needs.pending == 0) again_queue_.push_back(id);
  values.add_saved(id, /*now=*/!for_later);
  retain(id, storage);
  return unpacked_in;
}

void Tape::note_unpacked(ValueId id, bool again) {
  if (values.note_unpacked(id) && again) again_queue_.push_back(id);
}

void Tape::remove_saved(ValueId bound, uint32_t unpacked_in) {
  const ValueId id = values.latest(bound);
  if (!values.remove_saved(id, /*pending=*/unpacked_in != values[id].needs.round)) return;
  --live_;
  end_saved(id);
  collector_.note_released();
  // After the last of an ended step nothing can be asked for: whoever still holds the step holds no memory by it.
  if (is_over()) {
    collector_.collect();
  } else {
    collector_.collect_if_due();
  }
  release_checksums();
}

void Tape::drop_idle() {
  if (trace != nullptr) trace->find_idle(values);
  collector_.collect_while_recording(/*traced=*/trace != nullptr);
  std::erase_if(drop_queue_, [&](ValueId id) {
    if (values[id].is_in_use()) return false;
    apply_action(id);
    return true;
  });
  std::erase_if(again_queue_, [&](ValueId id) {
    if (values[id].needs.saved == 0) return true;
    if (values[id].is_in_use()) return false;
    values.begin_round(id);
    if (trace != nullptr) trace->idle_again(values, id);
    apply_action(id);
    return true;
  });
  // Long-lived leaves may be many: a slice at a time.
  for (size_t looks = std::min(leaf_queue_.size(), kMostLooks); looks > 0; --looks) {
    if (next_look_ >= leaf_queue_.size()) next_look_ = 0;
    const ValueId id = leaf_queue_[next_look_];
    if (values[id].is_in_use()) {
      ++next_look_;
      continue;
    }
    leaf_queue_[next_look_] = leaf_queue_.back();
    leaf_queue_.pop_back();
    apply_action(id);
  }
}

void Tape::apply_action(ValueId id) {
  const Value& value = values[id];
  if (!value.kept || values.emptied(id)) return;  // what is not there cannot be evicted
  const bool by_policy = value.policy.retention == Retention::kDrop && value.policy.anchor_of == 0;
  const bool chosen =
      (by_policy || value.action.kind != Action::Kind::kKeep) && value.is_recomputable() && !value.is_pinned();
  // Where somebody has written to it unseen, plain's saved tensors see that: then it stays.
  if (chosen && values.is_as_watched(id)) {
    if (by_policy || value.action.kind != Action::Kind::kHold) {
      values.evict(id);
    } else if (value.action.form == Form::kMoved) {
      if (moves) moves->leave(id);
    } else if (value.form.element_bytes > 0) {
      values.pack(id);
    }
  } else if (value.needs.saved == 0 && value.account != PlainAccount::kReplaysOnly) {
    values.leave_plain(id);
  }
}

void Tape::end_saved(ValueId id) {
  const Value& value = values[id];
  const bool evicted = value.account == PlainAccount::kPlainOnly;
  if (evicted) values.leave_plain(id);
  if (value.producer == kNoId || value.is_pinned() || value.needs.held_for > 0) {
    values.set_action(id, Action::kKeep);  // the plan has had its say
    if (value.kept) leaf_queue_.push_back(id);
  } else {
    values.release(id, /*for_replays=*/evicted);
  }
  if (value.policy.scope != 0) release_anchors(scopes_[value.policy.scope - 1]);
}

void Tape::release_anchors(Scope& scope) {
  if (scope.end == kNoId) return;
  while (scope.first_saved < scope.end && values[scope.first_saved].needs.saved == 0) ++scope.first_saved;
  if (scope.first_saved < scope.end) return;
  for (const ValueId anchor : std::exchange(scope.anchors, {})) {
    const Value& value = values[anchor];
    const bool last = values.remove_anchor(anchor);
    if (last && value.needs.saved == 0 && !value.is_pinned()) {
      values.release(anchor, /*for_replays=*/value.account == PlainAccount::kReplaysOnly);
    }
  }
}

}  // namespace remat
