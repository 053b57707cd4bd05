// Writes that are no recorded operator's: what becomes of the values that are written over.
#include "memory/ledger.h"
#include "record/tape.h"

namespace remat {
namespace {

/// Null where there is no room.
StoragePtr copy_for_replays(const c10::StorageImpl& contents) {
  try {
    const memory::FrozenPlain frozen;
    return copy_of(contents);
  } catch (...) {  // a replay that needs it will say so
    return {};
  }
}

}  // namespace

void Tape::before_write(const StoragePtr& storage) {
  const ValueId id = values.find(storage.get());
  if (id == kNone) return;
  if (values[id].raw) {
    values.detach(id);
  } else if (!values[id].recomputable()) {
    // What was emptied before cannot be copied. It may be about to be filled again, with the same contents.
    if (!values.emptied(id)) save_leaf(id, /*intact=*/true);
  } else {
    // What follows is a leaf, to be held where a saved tensor may look at it.
    hold_leaf(values.supersede(id, storage), storage);
  }
}

void Tape::after_write(const StoragePtr& storage) {
  const ValueId id = values.find(storage.get());
  if (id == kNone) return;
  if (values[id].raw || values[id].recomputable()) {
    before_write(storage);  // the old contents need no copy
  } else {
    save_leaf(id, /*intact=*/false);
  }
}

void Tape::save_leaf(ValueId leaf, bool intact) {
  if (values[leaf].readers > 0) collect_before_write(leaf);
  const StoragePtr original = values[leaf].kept;
  if (original == nullptr) return;  // overwritten before, unseen
  StoragePtr copy;
  if (values[leaf].readers > 0 && intact) copy = copy_for_replays(*original);
  if (values[leaf].readers == 0) {  // to make room for the copy, its readers were released
    const memory::FrozenPlain frozen;
    copy.reset();
  }
  if (values[leaf].saved > 0) hold_leaf(values.supersede(leaf, original), original);
  values.move_to_copy(leaf, copy);
}

void Tape::replace_data(const at::TensorBase& tensor) {
  if (!tensor.has_storage()) return;
  // Leaves of autograd's graph are saved themselves, where the record cannot evict them.
  const ValueId id = values.find(storage_of(tensor));
  if (tensor.is_leaf() && (id == kNone || !values[id].recomputable())) return;
  replaced_[tensor.unsafeGetTensorImpl()] = saves;
}

bool Tape::is_replaced(const c10::TensorImpl* tensor, int64_t saved_at) const {
  if (replaced_.empty()) return false;
  const auto found = replaced_.find(tensor);
  return found != replaced_.end() && saved_at <= found->second;
}

}  // namespace remat
