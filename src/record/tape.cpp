#include "record/tape.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

#include <pthread.h>

#include <remat/error.h>

#include "memory/ledger.h"
#include "record/checksum.h"
#include "record/trace.h"

namespace remat {
namespace {

constexpr size_t kMostLooks = 32;
constexpr std::chrono::milliseconds kLongestWaitForFork{200};

/// All tapes of the process, for forks: the child has a copy of each, and records on none. Never destroyed.
struct Tapes {
  std::mutex mutex;
  std::unordered_map<Tape*, bool> locked;  ///< for the time of a fork; not where another thread keeps it for too long

  static Tapes& all() {
    static auto* const tapes = [] {
      pthread_atfork([] { all().before_fork(); }, [] { all().after_fork_in_parent(); },
                     [] { all().after_fork_in_child(); });
      return new Tapes;
    }();
    return *tapes;
  }

  void before_fork() {
    mutex.lock();
    const auto deadline = std::chrono::system_clock::now() + kLongestWaitForFork;
    for (auto& [tape, is_locked] : locked) is_locked = tape->mutex.try_lock_until(deadline);
  }
  void after_fork_in_parent() {
    for (auto& [tape, is_locked] : locked) {
      if (is_locked) tape->mutex.unlock();
    }
    mutex.unlock();
  }
  void after_fork_in_child() {
    for (const auto& [tape, is_locked] : locked) {
      tape->closed = true;
      tape->inherited = true;
      tape->trace = nullptr;
      new (&tape->mutex) std::recursive_timed_mutex;  // locked by a thread that this process does not have
    }
    mutex.unlock();
  }
};

}  // namespace

Tape::Tape() {
  Tapes& tapes = Tapes::all();
  const std::lock_guard lock(tapes.mutex);
  tapes.locked.emplace(this, false);
}

Tape::~Tape() {
  {
    Tapes& tapes = Tapes::all();
    const std::lock_guard lock(tapes.mutex);
    tapes.locked.erase(this);
  }
  {
    const memory::FrozenPlain frozen;
    generators.clear();
  }
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

bool Tape::is_comparable(ValueId id) const {
  const Value& value = values[id];
  return value.producer == kNone || static_cast<int>(value.result) != operations[value.producer].info->workspace_result;
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

uint32_t Tape::settings_now(const OperatorInfo& info) {
  const bool products = info.products || settings.empty();
  KernelSettings now = KernelSettings::current(products);
  if (!products) now.precision = settings.back().precision;
  if (info.foreign) now.autocast = AutocastState::current();
  if (settings.empty() || settings.back() != now) settings.push_back(now);
  return static_cast<uint32_t>(settings.size() - 1);
}

bool Tape::may_change_unseen(ValueId id, const at::Tensor& tensor) const {
  if (!tensor.is_cpu()) return false;
  const OperationId producer = values[id].producer;
  if (producer == kNone) {
    if (!tensor.requires_grad() || is_handed_out(id, *storage_of(tensor))) return true;
    return !(tensor.is_view() ? tensor._base() : tensor).is_leaf();  // products read a transposed view of a weight
  }
  return values[id].data && !operations[producer].info->random && is_comparable(id);
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
  set_fate(id);
}

void Tape::set_fate(ValueId id) {
  Value& value = values[id];
  if (schedules.empty() || id >= schedules.front()->plan.fates.size()) return;
  value.fate = schedules.front()->plan.fates[id];
  if (value.fate != Fate::kKeep && !value.pinned) drop_when_idle(id);
}

bool Tape::is_as_planned(size_t index, const Graph& graph) const {
  if (index >= graph.operators.size()) return false;
  const Operation& operation = operations[index];
  const GraphOperator& planned = graph.operators[index];
  if (planned.results.size() != operation.value_count) return false;
  if (operation.info == nullptr) return true;  // let go of since
  if (std::string_view(operation.info->name).substr(0, operation.info->base_length) != planned.name) return false;
  for (size_t r = 0; r < planned.results.size(); ++r) {
    const ValueId made = operation.first_value + static_cast<ValueId>(r);
    if (planned.results[r] != static_cast<int32_t>(made)) return false;
    if (values[made].producer == index && graph.values[made].bytes != values[made].bytes) return false;
  }
  return true;
}

bool Tape::begins_like(const Graph& graph) const {
  for (size_t index = 0; index < operations.size(); ++index) {
    if (!is_as_planned(index, graph)) return false;
  }
  return true;
}

void Tape::follow_schedules() {
  if (schedules.empty() || is_as_planned(operations.size() - 1, schedules.front()->graph)) return;
  const auto fits = [&](const auto& schedule) { return begins_like(schedule->graph); };
  schedules.erase(schedules.begin(), std::find_if(schedules.begin() + 1, schedules.end(), fits));
  if (schedules.empty()) return;
  for (ValueId id = 0; id < values.size(); ++id) {
    if ((values[id].saved > 0 || values[id].held_for > 0) && values[id].kept) set_fate(id);
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
  set_fate(anchor);
  if (trace != nullptr) trace->holds(anchor, *storage);
}

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
  for_each_tensor(operations[values[id].producer], [&](const TensorArgument& t, uint32_t) {
    all_there = all_there && (t.value == kNone || values[t.value].producer != kNone || emptied(t.value) == nullptr);
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
  const bool chosen = (by_policy || value.fate != Fate::kKeep) && recomputable(id) && !value.pinned;
  const bool goes = chosen && repeatable_now(id);
  // Else plain would see what was written since.
  const auto as_watched = [&] {
    return value.checksum == 0 || checksum(*value.kept, {0, value.extent}) == value.checksum;
  };
  if (goes && as_watched()) {
    if (by_policy || value.fate != Fate::kPack) {
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
    value.fate = Fate::kKeep;  // the plan has had its say
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

std::vector<bool> Tape::reachable(bool living, uint32_t stamp) {
  std::vector<bool> needed(values.size(), false);
  std::vector<ValueId> stack;
  const auto need = [&](ValueId id) {
    if (id != kNone && !needed[id]) {
      needed[id] = true;
      stack.push_back(id);
    }
  };
  for (ValueId id = 0; id < values.size(); ++id) {
    const Value& value = values[id];
    const bool in_hands = living && (value.kept ? value.kept.use_count() > 1 : value.home.use_count() > 0);
    if (value.saved > 0 || value.wanted > 0 || id >= captured_values || in_hands) need(id);
  }
  for (size_t t = captured_tensors; t < tensors.size(); ++t) need(tensors[t].value);
  while (!stack.empty()) {
    const Value& value = values[stack.back()];
    stack.pop_back();
    need(value.successor);
    if (value.producer == kNone || operations[value.producer].visit == stamp) continue;
    operations[value.producer].visit = stamp;
    for_each_tensor(operations[value.producer], [&](const TensorArgument& t, uint32_t) { need(t.value); });
  }
  return needed;
}

void Tape::collect() {
  const uint32_t stamp = next_visit();
  release_all_but(reachable(/*living=*/false, stamp), stamp);
}

bool Tape::collect_to_free(bool spare_living) {
  const uint32_t stamp = next_visit();
  const std::vector<bool> needed = reachable(/*living=*/spare_living, stamp);
  for (ValueId id = 0; id < values.size(); ++id) {
    if (needed[id] || !values[id].kept || values[id].kept.use_count() > 1) continue;
    forgot_living = forgot_living || !spare_living;
    release_all_but(needed, stamp);
    return true;
  }
  return false;
}

int64_t Tape::release_unused_generators() {
  if (!std::exchange(released_since_look_, false) || generators.empty()) return 0;
  const uint32_t stamp = next_visit();
  reachable(/*living=*/true, stamp);
  const memory::FrozenPlain frozen;
  int64_t bytes = 0;
  for (const Operation& operation : operations) {
    if (operation.info == nullptr || operation.generator == kNone || operation.visit == stamp) continue;
    at::Tensor& state = generators[operation.generator].state;
    if (!state.defined()) continue;
    bytes += static_cast<int64_t>(state.nbytes());
    state.reset();
  }
  return bytes;
}

void Tape::release_all_but(const std::vector<bool>& needed, uint32_t stamp) {
  released_since_collect_ = 0;
  std::vector<StoragePtr> freed;  // freed after the arrays are consistent again
  for (auto& value : values) value.readers = 0;
  for (auto& operation : operations) {
    if (operation.info == nullptr) continue;
    if (operation.visit == stamp) {
      for_each_tensor(operation, [&](const TensorArgument& t, uint32_t) {
        if (t.value != kNone) ++values[t.value].readers;
      });
      continue;
    }
    for (uint32_t a = operation.first_argument; a < operation.first_argument + operation.argument_count; ++a) {
      const Argument argument = std::exchange(arguments[a], Argument());
      if (argument.kind == Argument::Kind::kConstant) constants[argument.first] = c10::IValue();
      for (uint32_t t = argument.first; t < argument.first + argument.count; ++t) {
        if (tensors[t].opaque != kNone) opaque[tensors[t].opaque] = at::Tensor();
        tensors[t] = TensorArgument();
      }
    }
    if (operation.generator != kNone) {
      const memory::FrozenPlain frozen;
      generators[operation.generator] = GeneratorRecord();
    }
    operation.info = nullptr;
  }
  for (ValueId id = 0; id < values.size(); ++id) {
    Value& value = values[id];
    if (value.producer != kNone && operations[value.producer].info == nullptr) value.producer = kNone;
    if (needed[id]) continue;
    if (value.extra) {
      if (trace != nullptr) trace->forgotten(id, value.bytes);
      release_kept(value);
    }
    if (value.kept) freed.push_back(std::move(value.kept));
    unhome(id);
    const ValueId successor = value.successor;  // saved tensors may still come by
    value = Value();
    value.successor = successor;
  }
  for (Scope& scope : scopes_) std::erase_if(scope.anchors, [&](ValueId anchor) { return !needed[anchor]; });
}

void Tape::collect_if_due() {
  if (released_since_collect_ > 64 + values.size() / 4) collect();
}

void Tape::erase(const Mark& begin, const Mark& end) {
  const memory::FrozenPlain frozen;  // of generator states, which plain does not have
  const auto forget = [last = mark() == end](auto& array, size_t from, size_t to) {
    if (last) {
      array.resize(from);
    } else {  // an operator inside was recorded behind them
      for (size_t i = from; i < to; ++i) array[i] = typename std::decay_t<decltype(array)>::value_type();
    }
  };
  forget(arguments, begin.arguments, end.arguments);
  forget(tensors, begin.tensors, end.tensors);
  forget(constants, begin.constants, end.constants);
  forget(opaque, begin.opaque, end.opaque);
  forget(generators, begin.generators, end.generators);
}

int64_t Tape::record_bytes() const {
  size_t bytes = values.capacity() * sizeof(Value) + operations.capacity() * sizeof(Operation) +
                 arguments.capacity() * sizeof(Argument) + tensors.capacity() * sizeof(TensorArgument) +
                 constants.capacity() * sizeof(c10::IValue) + opaque.capacity() * sizeof(at::Tensor) +
                 by_storage_.size() * (sizeof(void*) + sizeof(ValueId)) * 2;
  for (const auto& record : generators) {
    bytes += sizeof(record);
    if (record.state.defined()) bytes += record.state.nbytes();
  }
  return static_cast<int64_t>(bytes);
}

bool Tape::validates_steps() {
  static const bool wanted = std::getenv("REMAT_VALIDATE") != nullptr;
  return wanted;
}

void Tape::validate() const {
  const auto check = [](bool holds, const char* what) {
    if (!holds) throw InternalError(std::string("[tape] broken invariant: ") + what + "; please report this");
  };
  std::vector<uint32_t> readers(values.size(), 0);
  for (const Operation& operation : operations) {
    if (operation.info == nullptr) continue;
    check(operation.first_argument + operation.argument_count <= arguments.size(), "arguments out of range");
    check(operation.first_value + operation.value_count <= values.size(), "results out of range");
    check(operation.generator == kNone || operation.generator < generators.size(), "generator out of range");
    check(operation.settings < settings.size(), "settings out of range");
    for (uint32_t a = operation.first_argument; a < operation.first_argument + operation.argument_count; ++a) {
      const bool constant = arguments[a].kind == Argument::Kind::kConstant;
      check(
          constant ? arguments[a].first < constants.size() : arguments[a].first + arguments[a].count <= tensors.size(),
          "an argument out of range");
    }
    for_each_tensor(operation, [&](const TensorArgument& t, uint32_t) {
      check(t.value == kNone || t.value < operation.first_value, "an operation reads a later value");
      check(t.opaque == kNone || (t.opaque < opaque.size() && opaque[t.opaque].defined()), "an opaque input is gone");
      if (t.value != kNone) ++readers[t.value];
    });
  }
  std::vector<uint32_t> held_for(values.size(), 0);
  for (const Scope& scope : scopes_) {
    for (const ValueId anchor : scope.anchors) ++held_for[anchor];
  }
  for (ValueId v = 0; v < values.size(); ++v) {
    const Value& value = values[v];
    check(value.pending <= value.saved, "more pending than saved");
    check(value.readers == readers[v], "a value has not the readers that it counts");
    check(value.held_for == held_for[v], "a value is not the anchor of the scopes that it counts");
    check(value.successor == kNone || value.successor > v, "a value has a successor that is older");
    check(value.successor == kNone || value.saved == 0, "saved tensors refer to a value that has a successor");
    if (value.producer != kNone) {
      check(value.producer < operations.size(), "producer out of range");
      const Operation& made = operations[value.producer];
      check(made.info != nullptr, "the producer of a value is gone");
      check(made.first_value <= v && v < made.first_value + made.value_count, "a value is not its producer's result");
    }
    const auto* const home = value.home._unsafe_get_target();
    check(home == nullptr || find(home) == v, "home not in the table");
    check(home == nullptr || !value.kept || value.kept.get() == home, "a value lives in one storage and holds another");
    const bool lost = value.loss != Loss::kIntact;
    check(!lost || !value.kept, "a lost value is held");
    const bool here = value.kept || value.packed || value.home.use_count() > 0;
    check(value.saved == 0 || here || value.producer != kNone || lost, "nothing can bring back a saved value");
  }
  for (const auto& [storage, id] : by_storage_) {
    check(id < values.size() && values[id].home._unsafe_get_target() == storage, "the table has a home that is none");
  }
}

}  // namespace remat
