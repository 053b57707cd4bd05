// The invariants of a tape, for tests and debugging.
#include <string>
#include <vector>

#include <remat/error.h>

#include "tape/tape.h"
#include "tape/value_rules.h"

namespace remat {

bool Tape::validates_steps() { return value_rules::are_checked(); }

void Tape::validate() const {
  const auto check = [](bool holds, const char* what) {
    if (!holds) throw InternalError(std::string("[tape] broken invariant: ") + what + "; please report this");
  };
  std::vector<uint32_t> readers(values.size(), 0);
  program.validate();
  for (const Operation& operation : program) {
    if (operation.info == nullptr) continue;
    check(operation.first_value + operation.value_count <= values.size(), "results out of range");
    program.for_each_value(operation, [&](ValueId input) { ++readers[input]; });
  }
  std::vector<uint32_t> held_for(values.size(), 0);
  for (const Scope& scope : scopes_) {
    for (const ValueId anchor : scope.anchors) ++held_for[anchor];
  }
  for (ValueId v = 0; v < values.size(); ++v) {
    const Value& value = values[v];
    check(value.needs.pending <= value.needs.saved, "more pending than saved");
    check(value.needs.readers == readers[v], "a value has not the readers that it counts");
    check(value.needs.held_for == held_for[v], "a value is not the anchor of the scopes that it counts");
    check(value.successor == kNoId || value.successor > v, "a value has a successor that is older");
    if (value.producer != kNoId) {
      check(value.producer < program.size(), "producer out of range");
      const Operation& made = program[value.producer];
      check(made.info != nullptr, "the producer of a value is gone");
      check(made.first_value <= v && v < made.first_value + made.value_count, "a value is not its producer's result");
    }
    const auto* const home = value.home.storage._unsafe_get_target();
    check(home == nullptr || values.find(home) == v, "home not in the table");
    check(home == nullptr || !value.kept || value.kept.get() == home, "a value lives in one storage and holds another");
    const char* const broken = value_rules::broken_rule(value_rules::facts_of(value));
    check(broken == nullptr, broken);
  }
  values.validate_homes();
}

}  // namespace remat
