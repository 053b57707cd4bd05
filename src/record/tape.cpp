#include "record/tape.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "memory/ledger.h"
#include "record/checksum.h"
#include "record/tapes.h"
#include "record/trace.h"

namespace remat {
Tape::Tape() { Tapes::all().add(*this); }

Tape::~Tape() {
  Tapes::all().remove(*this);
  for (auto& value : values) {
    release_kept(value);
    if (value.absent) forget_plain(value);
  }
}

ValueId Tape::find(const c10::StorageImpl* storage) const {
  const auto it = by_storage_.find(storage);
  return it == by_storage_.end() ? kNone : it->second;
}

ValueId Tape::add_value(const StoragePtr& storage, const c10::TensorImpl& seen_through) {
  const auto id = static_cast<ValueId>(values.size());
  Value& value = values.emplace_back();
  value.home = c10::weak_intrusive_ptr<c10::StorageImpl>(storage);
  value.bytes = static_cast<int64_t>(storage->nbytes());
  value.extent = reach_of(seen_through).end;
  value.version_counter = seen_through.version_counter();
  value.version = value.version_counter.current_version();
  value.allocation = memory::allocation_of(*storage);
  by_storage_[storage.get()] = id;
  return id;
}

ValueId Tape::supersede(ValueId before, const StoragePtr& storage) {
  const bool saved = before != kNone && values[before].saved > 0;
  if (before != kNone) {
    values[before].kept.reset();
    unhome(before);
  }
  const auto after = static_cast<ValueId>(values.size());
  Value& value = values.emplace_back();
  value.home = c10::weak_intrusive_ptr<c10::StorageImpl>(storage);
  value.bytes = static_cast<int64_t>(storage->nbytes());
  value.extent = before != kNone ? values[before].extent : value.bytes;
  value.allocation = memory::allocation_of(*storage);
  by_storage_[storage.get()] = after;
  if (saved) {
    values[before].successor = after;
    value.saved = std::exchange(values[before].saved, 0);
    value.pending = std::exchange(values[before].pending, 0);
    value.round = values[before].round;
  }
  if (before != kNone && trace != nullptr) trace->superseded(before);
  return after;
}

ValueId Tape::latest(ValueId id) const {
  while (values[id].successor != kNone) id = values[id].successor;
  return id;
}

void Tape::rehome(ValueId id, const StoragePtr& storage) {
  unhome(id);
  values[id].home = c10::weak_intrusive_ptr<c10::StorageImpl>(storage);
  values[id].version_counter = c10::VariableVersion(c10::VariableVersion::DISABLED);  // that was the old home's
  values[id].allocation = memory::allocation_of(*storage);
  values[id].lent = false;
  by_storage_[storage.get()] = id;
  if (trace != nullptr && values[id].saved > 0) trace->holds(id, *storage);
}

void Tape::unhome(ValueId id) {
  Value& value = values[id];
  const auto* const storage = value.home._unsafe_get_target();
  if (storage == nullptr) return;
  if (const auto it = by_storage_.find(storage); it != by_storage_.end() && it->second == id) by_storage_.erase(it);
  value.home = c10::weak_intrusive_ptr<c10::StorageImpl>(StoragePtr());
}

StoragePtr Tape::alive(ValueId id) const {
  const Value& value = values[id];
  if (recomputable(id) && value.written_unseen()) return {};
  StoragePtr storage = value.kept ? value.kept : value.home.lock();
  if (storage && !value.is_in_place(*storage)) return {};
  return storage;
}

StoragePtr Tape::emptied(ValueId id) const {
  const Value& value = values[id];
  StoragePtr storage = value.kept ? value.kept : value.home.lock();
  if (storage && value.is_in_place(*storage)) return {};
  return storage;
}

bool Tape::is_restored(ValueId id) {
  Value& value = values[id];
  const StoragePtr storage = emptied(id);
  if (!storage || value.producer != kNone || value.last_contents == nullptr) return false;
  if (static_cast<int64_t>(storage->nbytes()) != value.bytes) return false;
  if (value.last_contents->checksum() != checksum(*storage, {0, value.bytes})) return false;
  value.allocation = memory::allocation_of(*storage);
  value.last_contents = memory::watch_contents(*storage);
  return true;
}

StoragePtr Tape::readable(ValueId id) {
  StoragePtr storage = alive(id);
  if (!storage && is_restored(id)) storage = alive(id);
  if (storage && recomputable(id) && is_handed_out(id, *storage)) return {};
  return storage;
}

void Tape::hand_out(const c10::StorageImpl& storage) {
  const ValueId id = find(&storage);
  if (id == kNone) return;
  Value& value = values[id];
  value.lent = true;
  const bool as_read = !value.written_unseen() && value.is_in_place(storage);
  if (value.producer == kNone && value.readers > 0 && value.checksum == 0 && as_read) {
    value.checksum = checksum(storage, {0, value.extent});
  }
}

void Tape::replace_data(const at::TensorBase& tensor) {
  if (!tensor.has_storage()) return;
  // Leaves of autograd's graph are saved themselves, where they are not the tape's to drop.
  const ValueId id = find(storage_of(tensor));
  if (tensor.is_leaf() && (id == kNone || !recomputable(id))) return;
  replaced_[tensor.unsafeGetTensorImpl()] = saves;
}

bool Tape::is_replaced(const c10::TensorImpl* tensor, int64_t saved_at) const {
  if (replaced_.empty()) return false;
  const auto found = replaced_.find(tensor);
  return found != replaced_.end() && saved_at <= found->second;
}

bool Tape::is_comparable(ValueId id) const {
  const Value& value = values[id];
  return value.producer == kNone || static_cast<int>(value.result) != program[value.producer].info->workspace_result;
}

ValueId Tape::make_leaf(ValueId before, const StoragePtr& storage, const c10::TensorImpl& seen_through) {
  values[before].kept.reset();
  unhome(before);
  const ValueId leaf = add_value(storage, seen_through);
  values[before].successor = leaf;
  values[leaf].saved = std::exchange(values[before].saved, 0);
  values[leaf].pending = std::exchange(values[before].pending, 0);
  values[leaf].round = values[before].round;
  hold_leaf(leaf, storage);
  return leaf;
}

void Tape::give_up(ValueId id) {
  Value& value = values[id];
  value.handed_out = is_handed_out(id, *value.kept);
  if ((verify || value.handed_out) && is_comparable(id) && value.checksum == 0)
    value.checksum = checksum(*value.kept, {0, value.extent});
  ++drops;
  dropped_bytes += value.bytes;
  const bool saved = value.saved > 0;
  if (!saved && !value.extra) leave_plain(value);
  value.absent = saved && !value.extra;
  unhome(id);
  release_kept(value);
  value.extra = !saved;
}

bool Tape::pack(ValueId id) {
  Value& value = values[id];
  if (is_handed_out(id, *value.kept)) return false;  // replays shall read what was there before somebody wrote to it
  if (value.packed) {
    give_up(id);
    return true;
  }
  const std::shared_ptr<Packed> packed = Packed::of(*value.kept, value.extent, value.element_bytes);
  if (packed == nullptr) {
    value.element_bytes = 0;  // do not look again
    return false;
  }
  give_up(id);
  // Room for it has just been made; if another thread was faster, a replay brings the value back.
  if (ledger == nullptr || !packed->count_in(*ledger)) return true;
  value.packed = packed;
  ++packs;
  packed_bytes += value.bytes - packed->bytes();
  return true;
}

void Tape::release_kept(Value& value) {
  std::optional<memory::FrozenPlain> frozen;
  if (value.absent || value.extra) frozen.emplace();  // plain would hold it on, or does not have it
  value.extra = false;
  value.kept.reset();
}

bool Tape::may_change_unseen(ValueId id, const at::Tensor& tensor) const {
  if (!tensor.is_cpu()) return false;
  const OperationId producer = values[id].producer;
  if (producer == kNone) {
    if (!tensor.requires_grad() || is_handed_out(id, *storage_of(tensor))) return true;
    return !(tensor.is_view() ? tensor._base() : tensor).is_leaf();  // products read a transposed view of a weight
  }
  return values[id].data && !program[producer].info->random && is_comparable(id);
}

void Tape::stop_watching() {
  for (ValueId id = 0; id < values.size(); ++id) {
    Value& value = values[id];
    if (value.raw || value.checksum != 0 || !is_comparable(id)) continue;
    if (value.producer == kNone && value.readers == 0) continue;  // a leaf that no replay will read
    const StoragePtr storage = alive(id);
    const bool in_hands = storage && storage.use_count() > (value.kept ? 2U : 1U);
    if (in_hands && storage->device_type() == c10::kCPU) value.checksum = checksum(*storage, {0, value.extent});
  }
}

void Tape::retain(ValueId id, const StoragePtr& storage) {
  Value& value = values[id];
  if (trace != nullptr) trace->holds(id, *storage);
  if (value.kept) return;
  value.kept = storage;
  if (value.drop && !value.pinned) drop_when_idle(id);
  set_action(id);
}

void Tape::set_action(ValueId id) {
  Value& value = values[id];
  if (following.schedules.empty()) return;
  value.action = following.action_of(*this, id);
  if (value.action.kind != Action::Kind::kKeep && !value.pinned) drop_when_idle(id);
}

bool Tape::is_same_operator(size_t index, const Graph& graph) const {
  if (index >= graph.operators.size()) return false;
  const Operation& operation = program[index];
  const GraphOperator& planned = graph.operators[index];
  if (planned.results.size() != operation.value_count) return false;
  if (!planned.results.empty() && planned.results.front() != static_cast<int32_t>(operation.first_value)) return false;
  if (operation.info == nullptr) return true;  // let go of since
  return std::string_view(operation.info->name).substr(0, operation.info->base_length) == planned.name;
}

bool Tape::is_as_planned(size_t index, const Graph& graph) const {
  if (!is_same_operator(index, graph)) return false;
  for (const int32_t made : graph.operators[index].results) {
    const Value& value = values[static_cast<size_t>(made)];
    if (value.producer == index && graph.values[static_cast<size_t>(made)].bytes != value.bytes) return false;
  }
  return true;
}

bool Tape::begins_like(const Graph& graph) const {
  for (size_t index = 0; index < program.size(); ++index) {
    if (!is_as_planned(index, graph)) return false;
  }
  return true;
}

Tape::Sizes Tape::compare_sizes(const Graph& graph) const {
  Sizes sizes = Sizes::kNotLarger;
  for (size_t index = 0; index < program.size(); ++index) {
    if (!is_same_operator(index, graph)) return Sizes::kOther;
    for (const int32_t made : graph.operators[index].results) {
      const Value& value = values[static_cast<size_t>(made)];
      const bool larger = value.producer == index && value.bytes > graph.values[static_cast<size_t>(made)].bytes;
      if (larger) sizes = Sizes::kLarger;
    }
  }
  return sizes;
}

void Tape::follow_schedule() {
  if (!following.advance(*this)) return;
  for (ValueId id = 0; id < values.size(); ++id) {
    if ((values[id].saved > 0 || values[id].held_for > 0) && values[id].kept) set_action(id);
  }
}

void Tape::hold_leaf(ValueId leaf, const StoragePtr& storage) {
  values[leaf].kept = storage;
  uncount_when_idle(leaf);
}

uint32_t Tape::open_scope() {
  scopes_.emplace_back().first_saved = static_cast<ValueId>(values.size());
  return static_cast<uint32_t>(scopes_.size());
}

void Tape::hold_anchor(uint32_t scope, ValueId anchor, const StoragePtr& storage) {
  Value& value = values[anchor];
  if (value.anchor_of == scope) return;
  value.anchor_of = scope;
  ++value.held_for;
  scopes_[scope - 1].anchors.push_back(anchor);
  if (value.kept) return;
  value.kept = storage;
  uncount_when_idle(anchor);
  set_action(anchor);
  if (trace != nullptr) trace->holds(anchor, *storage);
}

int64_t Tape::record_bytes() const {
  const size_t bytes =
      values.capacity() * sizeof(Value) + by_storage_.size() * (sizeof(void*) + sizeof(ValueId)) * 2;
  return program.bytes() + static_cast<int64_t>(bytes);
}

}  // namespace remat
