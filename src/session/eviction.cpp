#include "session/eviction.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "memory/ledger.h"
#include "plan/eviction_choice.h"
#include "tape/packing.h"

namespace remat {
namespace {

/// What EvictionChoice asks of a tape.
struct View {
  Tape& tape;
  const OperatorTimes* times;
  /// Prices take every value to be recomputed once. Where steps have replayed more than that, moving is worth more.
  const double repeats =
      std::max(1.0, static_cast<double>(tape.counts.replays) / static_cast<double>(tape.program.size() + 1));

  bool is_alive(ValueId id) const { return tape.values.alive(id) != nullptr; }
  bool is_in_form(ValueId id) const { return tape.values[id].form.contents != nullptr; }
  double restore_seconds(ValueId id) const {
    const Value& value = tape.values[id];
    const bool is_packed = value.form.is_packed() || !tape.moves;
    return is_packed ? kPackingCosts.in.compute * static_cast<double>(value.bytes)
                     : tape.moves->seconds_in(value.bytes);
  }
  double move_seconds(ValueId id) const {
    const int64_t bytes = tape.values[id].bytes;
    return (tape.moves->seconds_out(bytes) + tape.moves->seconds_in(bytes)) / repeats;
  }
  int64_t bytes(ValueId id) const { return tape.values[id].bytes; }
  int64_t packed_bytes(ValueId id) const {
    const Value& value = tape.values[id];
    return value.form.is_packed() ? value.form.contents->bytes()
                                  : value.bytes / (int64_t{8} * value.form.element_bytes);  // a bit for each element
  }
  OperationId producer(ValueId id) const { return tape.values[id].producer; }
  double seconds(OperationId id) const {
    const Operation& operation = tape.program[id];
    return times != nullptr ? times->replay_seconds(operation, id) : operation.replay_seconds();
  }
  uint32_t& visit(OperationId id) { return tape.program.stamp(id); }
  template <class Visit>
  void for_each_input(OperationId id, Visit visit) const {
    tape.program.for_each_value(tape.program[id], visit);
  }
  int64_t evict(const EvictionOption& option) {
    const Value& value = tape.values[option.value];
    switch (option.kind) {
      case EvictionOption::Kind::kDropPacked:
        return tape.values.drop_form(option.value);
      case EvictionOption::Kind::kPack:
        if (!tape.values.pack(option.value)) return 0;
        return value.bytes - (value.form.is_packed() ? value.form.contents->bytes() : 0);
      case EvictionOption::Kind::kMove:
        if (!tape.values.is_as_watched(option.value) || !tape.moves->leave(option.value)) return 0;
        // Where there was no room for it, leave() has evicted it.
        return is_alive(option.value) ? tape.moves->finish(value.bytes) : value.bytes;
      case EvictionOption::Kind::kDrop:
        if (!tape.values.is_as_watched(option.value)) return 0;  // plain's saved tensors see what was written to it
        break;
    }
    tape.values.evict(option.value);
    return value.bytes;
  }
};
static_assert(EvictionChoice<View>::kNoProducer == kNoId);

/// Every call looks at all n values of a step. It evicts at least an (n / kMostLooks)-th of what may be evicted, so
/// that a step looks at about so many values each time that it evicts all it holds: some tenths of a second, however
/// long the step.
constexpr double kMostLooks = 1 << 20;

bool may_be_evicted(const Tape& tape, ValueId id) {
  const Value& value = tape.values[id];
  return value.kept && !value.is_pinned() && value.producer != kNoId && !value.is_in_use() && !tape.values.emptied(id);
}

}  // namespace

Evicted evict(Tape& tape, int64_t bytes, const OperatorTimes* times) {
  using Kind = EvictionOption::Kind;
  int64_t moved = tape.moves ? tape.moves->finish(bytes) : 0;
  if (tape.moves && moved < bytes && !memory::Dispensable::active()) moved += tape.moves->send_back(bytes - moved);
  if (moved >= bytes) return {.bytes = moved, .left = INT64_MAX};
  bytes -= moved;
  View view{tape, times};
  EvictionChoice<View> choice(view, tape.program.next_stamp());
  std::vector<EvictionOption> options;
  std::vector<EvictionOption> last;  // values that a replay in progress reads: it would have to recompute them at once
  double held = 0;                   // bytes that all options together would free
  for (ValueId id = 0; id < tape.values.size(); ++id) {
    const Value& value = tape.values[id];
    const bool evictable = may_be_evicted(tape, id);
    if (evictable) {
      (value.needs.wanted == 0 ? options : last).push_back({Kind::kDrop, id});
      if (value.needs.wanted == 0) held += static_cast<double>(value.bytes);
      if (value.needs.wanted == 0 && value.form.element_bytes > 0 && !value.form.contents)
        options.push_back({Kind::kPack, id});
      if (value.needs.wanted == 0 && tape.moves && tape.moves->is_worth_moving(value))
        options.push_back({Kind::kMove, id});
    } else if (value.form.is_packed() && value.needs.wanted == 0 && tape.values.alive(id) == nullptr) {
      options.push_back({Kind::kDropPacked, id});
      held += static_cast<double>(value.form.contents->bytes());
    }
    if (value.needs.pending == 0 || value.producer == kNoId) continue;
    const bool gone = evictable ? value.is_written_unseen() : tape.values.alive(id) == nullptr;
    if (gone) choice.pay(id);
  }
  if (options.empty()) {
    options = std::move(last);
  } else {
    // One value for each allocation would take time that grows with the square of the number of operators.
    bytes = std::max(bytes, static_cast<int64_t>(held * static_cast<double>(tape.values.size()) / kMostLooks));
  }
  thin_out(options, static_cast<uint64_t>(tape.counts.evicted_values));
  const int64_t freed = choice.evict(std::move(options), bytes);
  return {.bytes = moved + freed, .left = std::max<int64_t>(0, static_cast<int64_t>(held) - freed)};
}

}  // namespace remat
