#include "run/eviction.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "plan/costs.h"

namespace remat {
namespace {

/// One way to free memory: to give up a value's contents, to pack them, or to give up what was packed.
struct Option {
  enum class Kind : uint8_t { kDrop, kPack, kDropPacked };
  Kind kind = Kind::kDrop;
  ValueId value = kNone;
};

/// Marks the operators that replays will have to run for what has been given up, and prices further losses.
class Prices {
 public:
  explicit Prices(Tape& tape) : tape_(tape), paid_(tape.program.next_stamp()) {
    for (ValueId id = 0; id < tape.values.size(); ++id) {
      const Value& value = tape.values[id];
      if (value.pending > 0 && value.producer != kNone && tape.values.alive(id) == nullptr) walk(id, paid_);
    }
  }

  /// Seconds that it adds to the replays to come, for each byte that it frees.
  double price(const Option& option) {
    const Value& value = tape_.values[option.value];
    const auto bytes = static_cast<double>(value.bytes);
    switch (option.kind) {
      case Option::Kind::kPack: {
        const double freed = bytes * (1 - kPackedShare / value.element_bytes);
        return (bytes * (kPackSecondsPerByte + kUnpackSecondsPerByte) + kLeastSeconds) / freed;
      }
      case Option::Kind::kDropPacked:
        return (walk(option.value, 0, /*packed_too=*/true) + kLeastSeconds) /
               static_cast<double>(value.packed->bytes());
      case Option::Kind::kDrop:
        break;
    }
    return (walk(option.value, 0) + kLeastSeconds) / bytes;
  }
  /// The contents of `id` are lost: the operators that bring them back are paid for.
  void pay(ValueId id) { walk(id, paid_); }

 private:
  static constexpr double kLeastSeconds = 1e-6;
  static constexpr double kPackedShare = 1.0 / 8;  ///< of an element: a bit for a byte

  /// Sums over the operators between `id` and what is alive or packed, those paid for left out; stamps them with
  /// `stamp`, or leaves no trace where it is 0.
  double walk(ValueId id, uint32_t stamp, bool packed_too = false) {
    double seconds = 0;
    seen_.clear();
    stack_.assign(1, id);
    while (!stack_.empty()) {
      const ValueId next = stack_.back();
      stack_.pop_back();
      const Value& value = tape_.values[next];
      if (value.packed && !(packed_too && next == id)) {
        seconds += kUnpackSecondsPerByte * static_cast<double>(value.bytes);
        continue;
      }
      const OperationId producer = value.producer;
      if (producer == kNone) continue;
      const Operation& operation = tape_.program[producer];
      if (operation.visit == paid_) continue;
      seen_.emplace_back(producer, operation.visit);
      tape_.program.stamp(producer, paid_);  // also keeps this walk from coming by twice
      seconds += operation.replay_seconds();
      tape_.program.for_each_value(operation, [&](ValueId input) {
        if (tape_.values.alive(input) == nullptr) stack_.push_back(input);
      });
    }
    if (stamp == 0) {
      for (const auto& [operation, visit] : seen_) tape_.program.stamp(operation, visit);
    }
    return seconds;
  }

  Tape& tape_;
  const uint32_t paid_;
  std::vector<ValueId> stack_;
  std::vector<std::pair<OperationId, uint32_t>> seen_;
};

constexpr size_t kMostOptions = 256;

/// Every call looks at all n values of a step. It gives up at least an (n / kMostLooks)-th of what may be given up, so
/// that a step looks at about so many values each time that it gives up all it holds: some tenths of a second, however
/// long the step.
constexpr double kMostLooks = 1 << 21;

bool may_be_given_up(const Tape& tape, ValueId id) {
  const Value& value = tape.values[id];
  return value.kept && !value.pinned && value.producer != kNone && value.kept.use_count() == 1 &&
         !tape.values.emptied(id) && tape.repeatable_now(id);
}

/// Of an option that is not to pack.
int64_t freed_by(const Tape& tape, const Option& option) {
  const Value& value = tape.values[option.value];
  return option.kind == Option::Kind::kDropPacked ? value.packed->bytes() : value.bytes;
}

/// Returns the bytes freed.
int64_t take(Tape& tape, const Option& option) {
  const Value& value = tape.values[option.value];
  switch (option.kind) {
    case Option::Kind::kDropPacked:
      return tape.values.evict_packed(option.value);
    case Option::Kind::kPack:
      if (!tape.values.pack(option.value)) return 0;
      return value.bytes - (value.packed ? value.packed->bytes() : 0);
    case Option::Kind::kDrop:
      break;
  }
  tape.values.evict(option.value);
  return value.bytes;
}

}  // namespace

int64_t evict(Tape& tape, int64_t bytes) {
  std::vector<Option> options;
  std::vector<Option> last;  // what a replay in progress wants: it would have to bring them back at once
  for (ValueId id = 0; id < tape.values.size(); ++id) {
    const Value& value = tape.values[id];
    if (may_be_given_up(tape, id)) {
      (value.wanted == 0 ? options : last).push_back({Option::Kind::kDrop, id});
      if (value.wanted == 0 && value.element_bytes > 0 && !value.packed) options.push_back({Option::Kind::kPack, id});
    } else if (value.packed && value.wanted == 0 && tape.values.alive(id) == nullptr) {
      options.push_back({Option::Kind::kDropPacked, id});
    }
  }
  if (options.empty()) {
    options = std::move(last);
  } else {
    // One value for each allocation would take time that grows with the square of the number of operators.
    double held = 0;
    for (const Option& option : options) {
      if (option.kind != Option::Kind::kPack) held += static_cast<double>(freed_by(tape, option));
    }
    bytes = std::max(bytes, static_cast<int64_t>(held * static_cast<double>(tape.values.size()) / kMostLooks));
  }
  // Where there are very many, every n-th will do; the first of them varies so that all get their turn.
  if (const size_t stride = options.size() / kMostOptions; stride > 1) {
    size_t count = 0;
    for (size_t i = static_cast<size_t>(tape.counts.evicted_values) % stride; i < options.size(); i += stride) {
      options[count++] = options[i];
    }
    options.resize(count);
  }
  int64_t freed = 0;
  Prices prices(tape);
  while (freed < bytes && !options.empty()) {
    size_t best = 0;
    double best_price = 0;
    for (size_t i = 0; i < options.size(); ++i) {
      const double price = prices.price(options[i]);
      if (i == 0 || price < best_price) {
        best = i;
        best_price = price;
      }
    }
    const Option chosen = options[best];
    freed += take(tape, chosen);
    if (tape.values.alive(chosen.value) == nullptr) {
      prices.pay(chosen.value);
      std::erase_if(options, [&](const Option& option) { return option.value == chosen.value; });
    } else {  // could not be packed
      options[best] = options.back();
      options.pop_back();
    }
  }
  return freed;
}

}  // namespace remat
