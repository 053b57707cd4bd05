// Garbage collection: operations that no saved tensor needs any more go, and their values become leaves.
#include <algorithm>
#include <utility>

#include "memory/ledger.h"
#include "record/tape.h"
#include "record/trace.h"

namespace remat {

std::vector<bool> Tape::made_of(ValueId leaf) const {
  std::vector<bool> made(values.size(), false);
  made[leaf] = true;
  for (const Operation& operation : operations) {  // in the order in which they ran
    if (operation.info == nullptr) continue;
    bool reads = false;
    for_each_tensor(operation,
                    [&](const TensorArgument& t, uint32_t) { reads = reads || (t.value != kNone && made[t.value]); });
    if (reads) std::fill_n(made.begin() + operation.first_value, operation.value_count, true);
  }
  return made;
}

std::vector<bool> Tape::reachable(bool living, uint32_t stamp, ValueId leaf) {
  std::vector<bool> needed(values.size(), false);
  const std::vector<bool> passed_over = leaf == kNone ? std::vector<bool>(values.size(), false) : made_of(leaf);
  std::vector<ValueId> stack;
  const auto need = [&](ValueId id) {
    if (id != kNone && !needed[id]) {
      needed[id] = true;
      stack.push_back(id);
    }
  };
  for (ValueId id = 0; id < values.size(); ++id) {
    const Value& value = values[id];
    const bool in_hands =
        living && !passed_over[id] && (value.kept ? value.kept.use_count() > 1 : value.home.use_count() > 0);
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

void Tape::collect_before_write(ValueId leaf) {
  const uint32_t stamp = next_visit();
  release_all_but(reachable(/*living=*/true, stamp, leaf), stamp);
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

}  // namespace remat
