// An operator whose call did what its schema rules out: what is done about it.
#include "observe/recorder.h"

namespace remat {

void Recorder::check_trial(Pending& pending, c10::ArrayRef<const c10::IValue> outputs) {
  const auto contradictions = pending.trial.contradictions(outputs);
  if (contradictions.empty()) return;
  pending.info->contradicted = true;
  pending.repeatable = false;
  distrust(*pending.info);
  for (const auto& [storage, changed] : contradictions) {
    if (changed) {
      tape_->after_write(storage);
    } else {
      tape_->before_write(storage);  // the result may be what it will write to until somebody waits for it
    }
  }
}

/// Earlier calls may have done the same unseen: what is left of their results is held.
void Recorder::distrust(const OperatorInfo& info) {
  Tape& tape = *tape_;
  for (OperationId op = 0; op < tape.program.size(); ++op) {
    const Operation& operation = tape.program[op];
    if (operation.info != &info) continue;
    for (ValueId id = operation.first_value; id < operation.first_value + operation.value_count; ++id) {
      if (tape.values[id].producer != op) continue;
      const StoragePtr storage = tape.values.alive(id);
      if (storage == nullptr) continue;  // evicted: a replay will say that it cannot run
      tape.make_leaf(id, storage);
    }
  }
}

}  // namespace remat
