// What the tape lets go of when saved tensors are released or asked for, and what it drops then.
#include <algorithm>
#include <utility>

#include "memory/ledger.h"
#include "record/checksum.h"
#include "record/tape.h"
#include "record/trace.h"

namespace remat {
namespace {

constexpr size_t kMostLooks = 32;

}  // namespace

void Tape::release_anchors(Scope& scope) {
  if (scope.end == kNone) return;
  while (scope.first_saved < scope.end && values[scope.first_saved].saved == 0) ++scope.first_saved;
  if (scope.first_saved < scope.end) return;
  for (const ValueId anchor : std::exchange(scope.anchors, {})) {
    Value& value = values[anchor];
    const bool last = --value.held_for == 0;
    if (last && value.saved == 0 && !value.pinned) release(anchor, /*for_replays=*/value.extra);
  }
}

void Tape::release(ValueId id, bool for_replays) {
  Value& value = values[id];
  if (for_replays && trace != nullptr) trace->forgotten(id, value.bytes);
  release_kept(value);
  value.packed.reset();
}

void Tape::drop_idle() {
  if (trace != nullptr) trace->find_idle(*this);
  std::erase_if(drop_queue_, [&](ValueId id) {
    if (is_in_use(id)) return false;
    settle(id);
    return true;
  });
  std::erase_if(again_queue_, [&](ValueId id) {
    Value& value = values[id];
    if (value.saved == 0) return true;
    if (is_in_use(id)) return false;
    ++value.round;
    value.made = 0;
    value.pending = value.saved;
    if (trace != nullptr) trace->idle_again(*this, id);
    settle(id);
    return true;
  });
  // Long-lived leaves may be many: a slice at a time.
  for (size_t looks = std::min(leaf_queue_.size(), kMostLooks); looks > 0; --looks) {
    if (next_look_ >= leaf_queue_.size()) next_look_ = 0;
    const ValueId id = leaf_queue_[next_look_];
    if (is_in_use(id)) {
      ++next_look_;
      continue;
    }
    leaf_queue_[next_look_] = leaf_queue_.back();
    leaf_queue_.pop_back();
    settle(id);
  }
}

bool Tape::repeatable_now(ValueId id) const {
  if (watched_ends_ == memory::watched_ends()) return true;  // no leaf of any tape was emptied since
  bool all_there = true;
  program.for_each_value(program[values[id].producer], [&](ValueId input) {
    all_there = all_there && (values[input].producer != kNone || emptied(input) == nullptr);
  });
  return all_there;
}

bool Tape::is_in_use(ValueId id) const {
  const Value& value = values[id];
  return value.kept && value.kept.use_count() > 1;
}

void Tape::settle(ValueId id) {
  Value& value = values[id];
  if (!value.kept || emptied(id)) return;  // what is not there cannot be given up
  const bool by_policy = value.drop && value.anchor_of == 0;
  const bool chosen = (by_policy || value.action.kind != Action::Kind::kKeep) && recomputable(id) && !value.pinned;
  const bool goes = chosen && repeatable_now(id);
  // Else plain would see what was written since.
  const auto as_watched = [&] {
    return value.checksum == 0 || checksum(*value.kept, {0, value.extent}) == value.checksum;
  };
  if (goes && as_watched()) {
    if (by_policy || value.action.kind != Action::Kind::kPack) {
      give_up(id);
    } else if (value.element_bytes > 0) {
      pack(id);
    }
  } else if (value.saved == 0 && !value.extra) {
    leave_plain(value);
  }
}

void Tape::let_go(ValueId id) {
  Value& value = values[id];
  const bool absent = std::exchange(value.absent, false);
  if (absent) leave_plain(value);
  if (value.producer == kNone || value.pinned || value.held_for > 0) {
    value.action = Action::kKeep;  // the plan has had its say
    if (value.kept) uncount_when_idle(id);
  } else {
    release(id, /*for_replays=*/absent);
  }
  if (value.scope != 0) release_anchors(scopes_[value.scope - 1]);
}

void Tape::leave_plain(Value& value) const {
  value.extra = true;
  forget_plain(value);
}

void Tape::forget_plain(const Value& value) const {
  if (ledger != nullptr) ledger->forget_plain(value.bytes);
}

void Tape::release_saved(ValueId bound, uint32_t asked_in) {
  const ValueId id = latest(bound);
  Value& value = values[id];
  --value.saved;
  if (asked_in != value.round) --value.pending;
  if (value.saved > 0) return;
  --live_;
  let_go(id);
  ++released_since_collect_;
  released_since_look_ = true;
  collect_if_due();
}

}  // namespace remat
