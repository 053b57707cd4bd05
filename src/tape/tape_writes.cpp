// Writes that are no recorded operator's: what becomes of the values that are written over.
#include <algorithm>
#include <cstring>

#include "device/device.h"
#include "memory/ledger.h"
#include "tape/call.h"
#include "tape/tape.h"

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

/// Each is a reference to a count, which has no public address.
bool are_one_counter(const c10::VariableVersion& a, const c10::VariableVersion& b) {
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*));
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): one pointer
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

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
  if (values[leaf].needs.readers > 0) collect_before_write(leaf);
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
    replaced_[impl].push_back({impl->version_counter(), saves});
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
    if (values[gathered].producer != kNoId) forget_unread(values[gathered].producer);
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

bool Tape::is_replaced(const c10::TensorImpl* tensor, const c10::VariableVersion& counter, int64_t saved_at) const {
  if (replaced_.empty()) return false;
  const auto found = replaced_.find(tensor);
  return found != replaced_.end() &&
         std::any_of(found->second.begin(), found->second.end(), [&](const Replacement& replacement) {
           return saved_at <= replacement.saves && are_one_counter(counter, replacement.counter);
         });
}

}  // namespace remat
