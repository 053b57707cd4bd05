#include "tape/residency.h"

#include <optional>
#include <string>
#include <utility>

#include <remat/error.h>

#include "device/device.h"
#include "memory/ledger.h"
#include "pytorch/tensor_view.h"
#include "tape/checksum.h"
#include "tape/packing.h"
#include "tape/value_rules.h"

namespace remat {

using value_rules::check;
using value_rules::Event;

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
  return it == by_storage_.end() ? kNoId : it->second;
}

ValueId Residency::latest(ValueId id) const {
  while (values_[id].successor != kNoId) id = values_[id].successor;
  return id;
}

StoragePtr Residency::alive(ValueId id) const {
  const Value& value = values_[id];
  if (value.is_recomputable() && value.is_written_unseen()) return {};
  StoragePtr storage = value.kept ? value.kept : value.home.storage.lock();
  if (storage && !value.is_in_place(*storage)) return {};
  return storage;
}

StoragePtr Residency::emptied(ValueId id) const {
  const Value& value = values_[id];
  StoragePtr storage = value.kept ? value.kept : value.home.storage.lock();
  if (storage && value.is_in_place(*storage)) return {};
  return storage;
}

StoragePtr Residency::readable(ValueId id) {
  StoragePtr storage = alive(id);
  if (!storage && is_restored(id)) storage = alive(id);
  if (storage && values_[id].is_recomputable() && values_[id].is_exported(*storage)) return {};
  return storage;
}

int64_t Residency::bytes_of_arrays() const {
  return static_cast<int64_t>(values_.capacity() * sizeof(Value) +
                              by_storage_.size() * (sizeof(void*) + sizeof(ValueId)) * 2);
}

// ---- Values come and change. ----

void Residency::set_home(ValueId id, const StoragePtr& storage) {
  Value& value = values_[id];
  value.home.storage = c10::weak_intrusive_ptr<c10::StorageImpl>(storage);
  value.home.allocation = memory::allocation_of(*storage);
  value.home.last_contents.reset();
  value.traits.elsewhere = !is_on_device(storage->device());
  if (value.traits.elsewhere) pin(id);
  by_storage_[storage.get()] = id;
}

ValueId Residency::add(const StoragePtr& storage, const c10::TensorImpl& seen_through) {
  const auto id = static_cast<ValueId>(values_.size());
  Value& value = values_.emplace_back();
  value.bytes = static_cast<int64_t>(storage->nbytes());
  value.extent = reach_of(seen_through).end;
  value.watch.counter = seen_through.version_counter();
  value.watch.version = value.watch.counter.current_version();
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
  value.traits.workspace = static_cast<int>(result) == info.workspace_result;
  if (watch && !tensor.requires_grad() && !info.random && !value.traits.workspace)
    value.watch.access = PointerAccess::kUsers;
  if (info.shortcut != nullptr && info.shortcut->reads(result)) pin(id);  // some bytes that spare a replay time
  return id;
}

void Residency::move_saved(ValueId from, ValueId to) {
  Value& before = values_[from];
  Value& after = values_[to];
  before.successor = to;
  after.needs.saved = std::exchange(before.needs.saved, 0);
  after.needs.pending = std::exchange(before.needs.pending, 0);
  after.needs.round = before.needs.round;
}

ValueId Residency::supersede(ValueId before, const StoragePtr& storage) {
  const auto after = static_cast<ValueId>(values_.size());
  Value& value = values_.emplace_back();
  value.bytes = value.extent = static_cast<int64_t>(storage->nbytes());
  if (before != kNoId) {
    check(Event::kSupersede, values_[before]);
    value.extent = values_[before].extent;
    values_[before].kept.reset();
    detach(before);
    if (values_[before].needs.saved > 0) move_saved(before, after);
    if (observer != nullptr) observer->superseded(before);
  }
  set_home(after, storage);
  return after;
}

ValueId Residency::hand_over(ValueId before, const StoragePtr& storage, const c10::TensorImpl& seen_through) {
  check(Event::kHandOver, values_[before]);
  values_[before].kept.reset();
  detach(before);
  const ValueId leaf = add(storage, seen_through);
  move_saved(before, leaf);
  return leaf;
}

void Residency::set_writer(ValueId id, OperationId producer, uint32_t written, const c10::VariableVersion& version) {
  Value& value = values_[id];
  value.watch.counter = version;
  value.watch.version = version.current_version();
  value.producer = producer;
  value.result = Value::kWritten + written;
}

void Residency::set_unread_factory(ValueId id, bool unread) {
  Value& value = values_[id];
  if (unread) {
    value.origin = value.is_filled() ? Origin::kFilled : Origin::kUndefined;
  } else if (value.is_unread_factory()) {
    value.origin = value.is_filled() ? Origin::kFilledAndRead : Origin::kComputed;
  }
}

void Residency::become_leaf(ValueId id) {
  check(Event::kBecomeLeaf, values_[id]);
  Value& value = values_[id];
  if (value.is_filled()) value.watch.checksum = 0;
  value.coverage.reset();
  value.origin = Origin::kComputed;
  forget_producer(id);
}

void Residency::become_unavailable(ValueId id) {
  check(Event::kBecomeUnavailable, values_[id]);
  become_leaf(id);
  values_[id].kept.reset();
  values_[id].origin = Origin::kUnavailable;
}

void Residency::become_externally_owned(ValueId id) {
  become_unavailable(id);
  values_[id].origin = Origin::kExternallyOwned;
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
  for (Value& value : values_) value.needs.readers = 0;
}

void Residency::add_saved(ValueId id, bool now) {
  check(Event::kSave, values_[id]);
  Value& value = values_[id];
  if (value.needs.saved == 0) {
    ++counts_.saved_values;
    counts_.saved_bytes += value.counted_bytes();
  }
  ++value.needs.saved;
  if (now) ++value.needs.pending;
}

bool Residency::remove_saved(ValueId id, bool pending) {
  check(Event::kEndSaved, values_[id]);
  Value& value = values_[id];
  if (pending) --value.needs.pending;
  return --value.needs.saved == 0;
}

void Residency::begin_round(ValueId id) {
  check(Event::kBeginRound, values_[id]);
  Value& value = values_[id];
  ++value.needs.round;
  value.needs.recompute_count = 0;
  value.needs.pending = value.needs.saved;
}

void Residency::remove_reader(ValueId id) {
  check(Event::kEndRead, values_[id]);
  --values_[id].needs.readers;
}

void Residency::stop_wanting(ValueId id) {
  check(Event::kEndWanted, values_[id]);
  --values_[id].needs.wanted;
}

bool Residency::note_unpacked(ValueId id) {
  check(Event::kUnpack, values_[id]);
  return --values_[id].needs.pending == 0;
}

bool Residency::remove_anchor(ValueId id) {
  check(Event::kEndAnchor, values_[id]);
  return --values_[id].needs.held_for == 0;
}

bool Residency::add_anchor(ValueId id, uint32_t scope) {
  Value& value = values_[id];
  if (value.policy.anchor_of == scope) return false;
  value.policy.anchor_of = scope;
  ++value.needs.held_for;
  return true;
}

// ---- Contents come and go. ----

void Residency::keep(ValueId id, const StoragePtr& storage) {
  check(Event::kKeep, values_[id]);
  values_[id].kept = storage;
}

void Residency::attach(ValueId id, const StoragePtr& storage) {
  detach(id);
  Value& value = values_[id];
  set_home(id, storage);
  value.watch.counter = c10::VariableVersion(c10::VariableVersion::DISABLED);  // that was the old home's
  value.watch.exported = Exported::kNo;
  if (observer != nullptr && value.needs.saved > 0) observer->holds(id, *storage);
}

void Residency::detach(ValueId id) {
  Value& value = values_[id];
  const auto* const storage = value.home.storage._unsafe_get_target();
  if (storage == nullptr) return;
  if (const auto it = by_storage_.find(storage); it != by_storage_.end() && it->second == id) by_storage_.erase(it);
  value.home.storage = c10::weak_intrusive_ptr<c10::StorageImpl>(StoragePtr());
}

void Residency::lose(ValueId id, Loss loss) {
  check(Event::kLose, values_[id]);
  if (values_[id].producer == kNoId) values_[id].home.loss = loss;
  values_[id].kept.reset();
  detach(id);
}

void Residency::move_to_copy(ValueId id, const StoragePtr& copy) {
  check(Event::kMoveToCopy, values_[id]);
  detach(id);
  Value& value = values_[id];
  value.watch.counter = c10::VariableVersion(c10::VariableVersion::DISABLED);
  value.kept = copy;
  if (copy) {
    value.home.allocation = memory::allocation_of(*copy);
    value.home.last_contents.reset();
    value.account = PlainAccount::kReplaysOnly;
    streams.made(*copy, /*by_record=*/true);
    if (observer != nullptr) observer->held(value.counted_bytes());
  } else if (value.needs.readers > 0) {
    value.home.loss = Loss::kNoRoom;
  }
}

void Residency::follow(ValueId leaf, const StoragePtr& storage) {
  check(Event::kFollow, values_[leaf]);
  Value& value = values_[leaf];
  if (!emptied(leaf)) {
    ++freed_homes_;
    if (value.watch.checksum == 0) value.watch.checksum = checksums.take(*value.kept, {0, value.extent});
  }
  const memory::Allocation before = value.home.allocation;
  detach(leaf);
  set_home(leaf, storage);
  value.home.allocation = before;
  value.home.kind = Value::Home::Kind::kFollowed;
  value.kept = storage;
}

void Residency::evict(ValueId id) {
  check(Event::kEvict, values_[id]);
  Value& value = values_[id];
  value.watch.exported = value.is_exported(*value.kept) ? Exported::kBeforeEviction : Exported::kNo;
  const bool may_be_written_to = value.watch.exported == Exported::kBeforeEviction ||
                                 (value.watch.access == PointerAccess::kUsers && device::is_on_host(*value.kept));
  if ((verify || may_be_written_to) && value.is_comparable() && value.watch.checksum == 0) {
    streams.look_at(*value.kept);
    value.watch.checksum = checksum(*value.kept, {0, value.extent});
  }
  ++counts_.evicted_values;
  counts_.evicted_bytes += value.bytes;
  detach(id);
  const memory::FrozenPlain frozen;
  streams.freed(*value.kept);
  value.kept.reset();
  if (value.needs.saved == 0) {
    if (value.account != PlainAccount::kReplaysOnly) leave_plain(id);
  } else {
    value.account = value.account == PlainAccount::kSame ? PlainAccount::kPlainOnly : PlainAccount::kSame;
  }
}

bool Residency::pack(ValueId id) {
  check(Event::kPack, values_[id]);
  Value& value = values_[id];
  if (value.is_exported(*value.kept)) return false;  // replays shall read the contents before somebody wrote to them
  if (value.form.is_packed()) {
    evict(id);
    return true;
  }
  const std::shared_ptr<Packed> packed = Packed::of(*value.kept, value.extent, value.form.element_bytes);
  if (packed == nullptr) {
    value.form.element_bytes = 0;  // do not look again
    return false;
  }
  evict(id);
  // The eviction has just made room for it; if another thread took that, a replay recomputes the value.
  if (ledger == nullptr || !packed->count_in(*ledger)) return true;
  value.form.contents = packed;
  ++counts_.packed_values;
  counts_.packed_bytes += value.bytes - packed->bytes();
  return true;
}

void Residency::hold(ValueId id, std::shared_ptr<HeldContents> contents) {
  check(Event::kHold, values_[id]);
  values_[id].form.contents = std::move(contents);
}

int64_t Residency::drop_form(ValueId id) {
  check(Event::kDropForm, values_[id]);
  const int64_t bytes = values_[id].form.contents->bytes();
  values_[id].form.contents.reset();
  return bytes;
}

void Residency::restore(ValueId id, const StoragePtr& storage) {
  check(Event::kRestore, values_[id]);
  attach(id, storage);
  streams.made(*storage, /*by_record=*/true);
  Value& value = values_[id];
  if (value.needs.saved == 0) return;
  // Where it is not in plain's account, it was overwritten since: there its bytes are those of the value after it.
  value.account = value.account == PlainAccount::kPlainOnly ? PlainAccount::kSame : PlainAccount::kReplaysOnly;
  value.kept = storage;
}

void Residency::return_to_plain(ValueId id) {
  if (values_[id].account == PlainAccount::kPlainOnly) values_[id].account = PlainAccount::kSame;
}

void Residency::release(ValueId id, bool for_replays) {
  check(Event::kRelease, values_[id]);
  if (for_replays && observer != nullptr) observer->forgotten(id, values_[id].counted_bytes());
  release_kept(values_[id]);
}

void Residency::leave_plain(ValueId id) {
  check(Event::kLeavePlain, values_[id]);
  values_[id].account = PlainAccount::kReplaysOnly;
  forget_plain(values_[id]);
}

void Residency::release_kept(Value& value) {
  value.form.contents.reset();  // it may have a reference to what is kept, which is freed as the account says
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
