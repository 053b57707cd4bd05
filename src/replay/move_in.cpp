#include "replay/move_in.h"

#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "memory/ledger.h"
#include "tape/moves.h"
#include "util/seconds_since.h"

namespace remat {
namespace {

bool has_room(memory::Ledger* ledger, int64_t bytes) {
  return ledger == nullptr || ledger->current() + bytes <= ledger->enforced_limit();
}

/// Null where others took the room meanwhile.
StoragePtr allocate_ahead(const Moves& moves, int64_t bytes) {
  const memory::Dispensable dispensable;
  try {
    return moves.allocate(bytes);
  } catch (const std::exception&) {  // the allocator's own for a system without memory too
    return nullptr;
  }
}

}  // namespace

StoragePtr move_in(Tape& tape, ValueId id) {
  const memory::FrozenPlain frozen;
  std::shared_ptr<Moved> moved;
  StoragePtr memory;
  int64_t bytes = 0;
  {
    const std::lock_guard lock(tape.mutex);
    if (tape.moves) moved = tape.moves->take(id);
    if (moved == nullptr) return nullptr;
    memory = moved->coming();
    bytes = tape.values[id].bytes;
  }
  if (!memory) {
    try {
      memory = tape.moves->allocate(bytes);
    } catch (...) {
      const std::lock_guard lock(tape.mutex);
      moved.reset();
      throw;
    }
    const std::lock_guard lock(tape.mutex);
    if (moved->coming()) {
      memory = moved->coming();  // another thread was faster
    } else if (tape.values[id].form.contents != moved || tape.values.alive(id)) {
      moved.reset();  // it was given up, or is back already
      return nullptr;
    } else {
      moved->begin_read(memory);
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  const bool read = moved->wait_read();
  const auto seconds = seconds_since(begin);
  const std::lock_guard lock(tape.mutex);
  tape.counts.move_wait_seconds += seconds;
  moved->forget_coming();
  if (!read && tape.values[id].form.contents == moved) tape.moves->give_up(id, moved->error());
  moved.reset();  // under the mutex, as its destructor needs
  return read ? memory : nullptr;
}

void begin_to_come(Tape& tape) {
  const memory::FrozenPlain frozen;
  for (;;) {
    std::optional<ValueId> id;
    int64_t bytes = 0;
    {
      const std::lock_guard lock(tape.mutex);
      if (tape.moves) id = tape.moves->next_coming();
      if (!id) return;
      bytes = tape.values[*id].bytes;
    }
    StoragePtr memory = has_room(tape.values.ledger, bytes) ? allocate_ahead(*tape.moves, bytes) : nullptr;
    const std::lock_guard lock(tape.mutex);
    if (!memory) {
      tape.moves->defer(*id);
      return;
    }
    tape.moves->begin_to_come(*id, std::move(memory));
  }
}

}  // namespace remat
