// The invariants of a tape, for tests and debugging.
#include <cstdlib>
#include <string>
#include <vector>

#include <remat/error.h>

#include "tape/tape.h"

namespace remat {

bool Tape::validates_steps() {
  static const bool wanted = std::getenv("REMAT_VALIDATE") != nullptr;
  return wanted;
}

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
    check(value.pending <= value.saved, "more pending than saved");
    check(value.readers == readers[v], "a value has not the readers that it counts");
    check(value.held_for == held_for[v], "a value is not the anchor of the scopes that it counts");
    check(value.successor == kNone || value.successor > v, "a value has a successor that is older");
    check(value.successor == kNone || value.saved == 0, "saved tensors refer to a value that has a successor");
    if (value.producer != kNone) {
      check(value.producer < program.size(), "producer out of range");
      const Operation& made = program[value.producer];
      check(made.info != nullptr, "the producer of a value is gone");
      check(made.first_value <= v && v < made.first_value + made.value_count, "a value is not its producer's result");
    }
    const auto* const home = value.home._unsafe_get_target();
    check(home == nullptr || values.find(home) == v, "home not in the table");
    check(home == nullptr || !value.kept || value.kept.get() == home, "a value lives in one storage and holds another");
    const bool lost = value.loss != Loss::kIntact;
    check(!lost || !value.kept, "a lost value is held");
    const bool here = value.kept || value.packed || value.home.use_count() > 0;
    check(value.saved == 0 || here || value.producer != kNone || lost, "nothing can bring back a saved value");
  }
  values.validate_homes();
}

}  // namespace remat
