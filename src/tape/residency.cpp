#include "tape/residency.h"

#include <optional>
#include <string>
#include <utility>

#include <remat/error.h>

#include "device/device.h"
#include "memory/ledger.h"
#include "pytorch/tensor_view.h"
#include "tape/checksum.h"

namespace remat {
Residency::Residency(StepCounts& counts) : checksums(streams), counts_(counts) {
  checksums.takes_memory = [this](c10::Device of, int64_t bytes) {
    if (!is_on_device(of)) return;
    counts_.checksum_bytes += bytes;
    if (observer != nullptr) observer->held(bytes);
  };
}

Residency::~Residency() {
  for (Value& value : values_) {
    release_kept(value);
    if (value.account == PlainAccount::kPlainOnly) forget_plain(value);
  }
}

ValueId Residency::find(const c10::StorageImpl* storage) const {
  const auto it = by_storage_.find(storage);
  return it == by_storage_.end() ? kNone : it->second;
}

ValueId Residency::latest(ValueId id) const {
  while (values_[id].successor != kNone) id = values_[id].successor;
  return id;
}

StoragePtr Residency::alive(ValueId id) const {
  const Value& value = values_[id];
  if (value.recomputable() && value.written_unseen()) return {};
  StoragePtr storage = value.kept ? value.kept : value.home.lock();
  if (storage && !value.is_in_place(*storage)) return {};
  return storage;
}

StoragePtr Residency::emptied(ValueId id) const {
  const Value& value = values_[id];
  StoragePtr storage = value.kept ? value.kept : value.home.lock();
  if (storage && value.is_in_place(*storage)) return {};
  return storage;
}

StoragePtr Residency::readable(ValueId id) {
  StoragePtr storage = alive(id);
  if (!storage && is_restored(id)) storage = alive(id);
  if (storage && values_[id].recomputable() && values_[id].is_handed_out(*storage)) return {};
  return storage;
}

int64_t Residency::bytes_of_arrays() const {
  return static_cast<int64_t>(values_.capacity() * sizeof(Value) +
                              by_storage_.size() * (sizeof(void*) + sizeof(ValueId)) * 2);
}

void Residency::validate_homes() const {
  for (const auto& [storage, id] : by_storage_) {
    if (id < values_.size() && values_[id].home._unsafe_get_target() == storage) continue;
    throw InternalError("[tape] broken invariant: the table has a home that is none; please report this");
  }
}

// ---- Values come and change. ----

void Residency::set_home(ValueId id, const StoragePtr& storage) {
  Value& value = values_[id];
  value.home = c10::weak_intrusive_ptr<c10::StorageImpl>(storage);
  value.allocation = memory::allocation_of(*storage);
  value.last_contents.reset();
  value.elsewhere = !is_on_device(storage->device());
  value.pinned = value.pinned || value.elsewhere;
  by_storage_[storage.get()] = id;
}

ValueId Residency::add(const StoragePtr& storage, const c10::TensorImpl& seen_through) {
  const auto id = static_cast<ValueId>(values_.size());
  Value& value = values_.emplace_back();
  value.bytes = static_cast<int64_t>(storage->nbytes());
  value.extent = reach_of(seen_through).end;
  value.version_counter = seen_through.version_counter();
  value.version = value.version_counter.current_version();
  set_home(id, storage);
  return id;
}

ValueId Residency::add_result(const at::Tensor& tensor, OperationId producer, uint32_t result, const OperatorInfo& info,
                              bool watch) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const ValueId id = add(StoragePtr::reclaim_copy(storage_of(impl)), impl);
  streams.made(*storage_of(impl));
  Value& value = values_[id];
  value.producer = producer;
  value.result = result;
  value.workspace = static_cast<int>(result) == info.workspace_result;
  value.watched = watch && !tensor.requires_grad() && !info.random && !value.workspace;
  value.pinned = value.pinned || (info.batch_norm && result > 0);  // some bytes that spare a replay two passes
  return id;
}

void Residency::move_saved(ValueId from, ValueId to) {
  Value& before = values_[from];
  Value& after = values_[to];
  before.successor = to;
  after.saved = std::exchange(before.saved, 0);
  after.pending = std::exchange(before.pending, 0);
  after.round = before.round;
}

ValueId Residency::supersede(ValueId before, const StoragePtr& storage) {
  const auto after = static_cast<ValueId>(values_.size());
  Value& value = values_.emplace_back();
  value.bytes = value.extent = static_cast<int64_t>(storage->nbytes());
  if (before != kNone) {
    value.extent = values_[before].extent;
    values_[before].kept.reset();
    detach(before);
    if (values_[before].saved > 0) move_saved(before, after);
    if (observer != nullptr) observer->superseded(before);
  }
  set_home(after, storage);
  return after;
}

ValueId Residency::hand_over(ValueId before, const StoragePtr& storage, const c10::TensorImpl& seen_through) {
  values_[before].kept.reset();
  detach(before);
  const ValueId leaf = add(storage, seen_through);
  move_saved(before, leaf);
  return leaf;
}

void Residency::set_writer(ValueId id, OperationId producer, uint32_t written, const c10::VariableVersion& version) {
  Value& value = values_[id];
  value.version_counter = version;
  value.version = version.current_version();
  value.producer = producer;
  value.result = Value::kWritten + written;
}

void Residency::become_leaf(ValueId id) {
  Value& value = values_[id];
  if (std::exchange(value.filled, false)) value.checksum = 0;
  value.coverage.reset();
  value.raw = false;
  value.producer = kNone;
}

void Residency::become_unheld(ValueId id) {
  become_leaf(id);
  values_[id].kept.reset();
  values_[id].unheld = true;
}

void Residency::become_borrowed(ValueId id) {
  become_unheld(id);
  values_[id].borrowed = true;
}

void Residency::reset(ValueId id, std::vector<StoragePtr>& freed) {
  Value& value = values_[id];
  if (value.account == PlainAccount::kReplaysOnly) release(id, /*for_replays=*/true);
  if (value.kept) {
    streams.freed(*value.kept);
    freed.push_back(std::move(value.kept));
  }
  detach(id);
  const ValueId successor = value.successor;  // saved tensors may still come by
  value = Value();
  value.successor = successor;
}

// ---- Who needs it. ----

void Residency::clear_readers() {
  for (Value& value : values_) value.readers = 0;
}

void Residency::add_saved(ValueId id, bool now) {
  Value& value = values_[id];
  if (value.saved == 0) {
    ++counts_.saved_values;
    counts_.saved_bytes += value.counted_bytes();
  }
  ++value.saved;
  if (now) ++value.pending;
}

bool Residency::remove_saved(ValueId id, bool pending) {
  Value& value = values_[id];
  if (pending) --value.pending;
  return --value.saved == 0;
}

void Residency::begin_round(ValueId id) {
  Value& value = values_[id];
  ++value.round;
  value.made = 0;
  value.pending = value.saved;
}

bool Residency::add_anchor(ValueId id, uint32_t scope) {
  Value& value = values_[id];
  if (value.anchor_of == scope) return false;
  value.anchor_of = scope;
  ++value.held_for;
  return true;
}

// ---- Contents come and go. ----

void Residency::attach(ValueId id, const StoragePtr& storage) {
  detach(id);
  Value& value = values_[id];
  set_home(id, storage);
  value.version_counter = c10::VariableVersion(c10::VariableVersion::DISABLED);  // that was the old home's
  value.lent = false;
  if (observer != nullptr && value.saved > 0) observer->holds(id, *storage);
}

void Residency::detach(ValueId id) {
  Value& value = values_[id];
  const auto* const storage = value.home._unsafe_get_target();
  if (storage == nullptr) return;
  if (const auto it = by_storage_.find(storage); it != by_storage_.end() && it->second == id) by_storage_.erase(it);
  value.home = c10::weak_intrusive_ptr<c10::StorageImpl>(StoragePtr());
}

void Residency::lose(ValueId id, Loss loss) {
  if (values_[id].producer == kNone) values_[id].loss = loss;
  values_[id].kept.reset();
  detach(id);
}

void Residency::move_to_copy(ValueId id, const StoragePtr& copy) {
  detach(id);
  Value& value = values_[id];
  value.version_counter = c10::VariableVersion(c10::VariableVersion::DISABLED);
  value.kept = copy;
  if (copy) {
    value.allocation = memory::allocation_of(*copy);
    value.last_contents.reset();
    value.account = PlainAccount::kReplaysOnly;
    streams.made(*copy, /*by_record=*/true);
    if (observer != nullptr) observer->held(value.counted_bytes());
  } else if (value.readers > 0) {
    value.loss = Loss::kNoRoom;
  }
}

void Residency::follow(ValueId leaf, const StoragePtr& storage) {
  Value& value = values_[leaf];
  if (!emptied(leaf)) {
    ++freed_homes_;
    if (value.checksum == 0) value.checksum = checksums.take(*value.kept, {0, value.extent});
  }
  const memory::Allocation before = value.allocation;
  detach(leaf);
  set_home(leaf, storage);
  value.allocation = before;
  value.followed = true;
  value.kept = storage;
}

void Residency::evict(ValueId id) {
  Value& value = values_[id];
  value.evicted_while_lent = value.is_handed_out(*value.kept);
  const bool may_be_written_to = value.evicted_while_lent || (value.watched && device::is_on_host(*value.kept));
  if ((verify || may_be_written_to) && value.comparable() && value.checksum == 0) {
    streams.look_at(*value.kept);
    value.checksum = checksum(*value.kept, {0, value.extent});
  }
  ++counts_.evicted_values;
  counts_.evicted_bytes += value.bytes;
  detach(id);
  const memory::FrozenPlain frozen;
  streams.freed(*value.kept);
  value.kept.reset();
  if (value.saved == 0) {
    if (value.account != PlainAccount::kReplaysOnly) leave_plain(id);
  } else {
    value.account = value.account == PlainAccount::kSame ? PlainAccount::kPlainOnly : PlainAccount::kSame;
  }
}

bool Residency::pack(ValueId id) {
  Value& value = values_[id];
  if (value.is_handed_out(*value.kept)) return false;  // replays shall read the contents before somebody wrote to them
  if (value.packed) {
    evict(id);
    return true;
  }
  const std::shared_ptr<Packed> packed = Packed::of(*value.kept, value.extent, value.element_bytes);
  if (packed == nullptr) {
    value.element_bytes = 0;  // do not look again
    return false;
  }
  evict(id);
  // The eviction has just made room for it; if another thread took that, a replay recomputes the value.
  if (ledger == nullptr || !packed->count_in(*ledger)) return true;
  value.packed = packed;
  ++counts_.packed_values;
  counts_.packed_bytes += value.bytes - packed->bytes();
  return true;
}

int64_t Residency::evict_packed(ValueId id) {
  const int64_t bytes = values_[id].packed->bytes();
  values_[id].packed.reset();
  return bytes;
}

void Residency::restore(ValueId id, const StoragePtr& storage) {
  attach(id, storage);
  streams.made(*storage, /*by_record=*/true);
  Value& value = values_[id];
  if (value.saved == 0) return;
  // Where it is not in plain's account, it was overwritten since: there its bytes are those of the value after it.
  value.account = value.account == PlainAccount::kPlainOnly ? PlainAccount::kSame : PlainAccount::kReplaysOnly;
  value.kept = storage;
}

void Residency::return_to_plain(ValueId id) {
  if (values_[id].account == PlainAccount::kPlainOnly) values_[id].account = PlainAccount::kSame;
}

void Residency::release(ValueId id, bool for_replays) {
  if (for_replays && observer != nullptr) observer->forgotten(id, values_[id].counted_bytes());
  release_kept(values_[id]);
  values_[id].packed.reset();
}

void Residency::leave_plain(ValueId id) {
  values_[id].account = PlainAccount::kReplaysOnly;
  forget_plain(values_[id]);
}

void Residency::release_kept(Value& value) {
  std::optional<memory::FrozenPlain> frozen;
  if (value.account != PlainAccount::kSame) frozen.emplace();
  if (value.account == PlainAccount::kReplaysOnly) value.account = PlainAccount::kSame;
  if (value.kept) streams.freed(*value.kept);
  value.kept.reset();
}

void Residency::forget_plain(const Value& value) const {
  if (ledger != nullptr) ledger->forget_plain(value.counted_bytes());
}

}  // namespace remat
