#include "tape/moves.h"

#include <chrono>
#include <utility>

#include "memory/ledger.h"
#include "util/seconds_since.h"

namespace remat {

Moved::Moved(std::shared_ptr<MoveOrder> order, ValueId id, std::shared_ptr<tiers::MovedContents> contents,
             StoragePtr leaving)
    : HeldContents(Form::kMoved),
      order_(std::move(order)),
      id_(id),
      leaving_(std::move(leaving)),
      contents_(std::move(contents)) {}

Moved::~Moved() {
  order_->take(id_);
  contents_.reset();                 // waits until nothing reads or writes the memory
  const memory::FrozenPlain frozen;  // as it was allocated
  coming_.reset();
}

void Moved::begin_read(StoragePtr memory) {
  coming_ = std::move(memory);
  contents_->begin_read(coming_);
}

Moves::Moves(std::shared_ptr<tiers::MoveTarget> target, const Tier& tier, Residency& values, StepCounts& counts)
    : target_(std::move(target)), tier_(tier), values_(values), counts_(counts) {}

Moved* Moves::moved(ValueId id) const {
  auto* const contents = values_[id].form.contents.get();
  const bool is_moved = contents != nullptr && contents->form() == Form::kMoved;
  return is_moved ? static_cast<Moved*>(contents) : nullptr;
}

bool Moves::leave(ValueId id) {
  const Value& value = values_[id];
  if (value.is_exported(*value.kept) || !target_->takes(*value.kept)) return false;
  ++counts_.moved_values;
  counts_.moved_bytes += value.bytes;
  if (moved(id) != nullptr) {  // it has been away before
    order_->leave_at_once(id);
    values_.evict(id);
    return true;
  }
  auto contents = target_->write(value.kept, value.extent);
  if (contents->is_written() && !contents->wait_written()) {
    give_up(id, contents->error());
    values_.evict(id);
    return true;
  }
  values_.hold(id, std::make_shared<Moved>(order_, id, std::move(contents), value.kept));
  order_->leave(id);
  if (value.needs.saved == 0 && value.account != PlainAccount::kReplaysOnly) values_.leave_plain(id);
  while (const auto gone = order_->next_gone()) go(*gone);
  return true;
}

template <class Wait>
bool Moves::wait(Wait wait_for) {
  const auto begin = std::chrono::steady_clock::now();
  struct Waiting {
    explicit Waiting(std::atomic<bool>& of) : flag(of) { flag = true; }
    ~Waiting() { flag = false; }
    std::atomic<bool>& flag;
  };
  const bool done = [&] {
    const Waiting waiting(waiting_);
    return wait_for();
  }();
  counts_.move_wait_seconds += seconds_since(begin);
  return done;
}

int64_t Moves::finish(int64_t bytes) {
  int64_t freed = 0;
  while (freed < bytes) {
    const auto gone = order_->oldest_gone();
    if (!gone) break;
    freed += go(*gone);
  }
  return freed;
}

int64_t Moves::send_back(int64_t bytes) {
  const memory::FrozenPlain frozen;
  int64_t freed = 0;
  while (freed < bytes) {
    const auto id = order_->stop_coming();
    if (!id) break;
    Moved& held = *moved(*id);
    if (!held.coming()) continue;  // its memory is just being allocated
    wait([&] { return held.wait_read(); });
    held.forget_coming();
    freed += values_[*id].bytes;
  }
  return freed;
}

/// Returns the bytes that are free now.
int64_t Moves::go(ValueId id) {
  const Value& value = values_[id];
  Moved& held = *moved(id);
  const bool written = wait([&] { return held.wait_written(); });
  if (value.kept) values_.streams.used(*value.kept);  // this thread's stream has waited
  held.let_go_of_source();
  const bool may_go = value.kept && !value.is_in_use() && !values_.emptied(id) && values_.is_as_watched(id);
  if (!may_go) order_->take(id);
  if (!written) give_up(id, held.error());
  if (!may_go) return 0;
  values_.evict(id);
  return value.bytes;
}

bool Moves::note_used(ValueId id) {
  Moved* const held = moved(id);
  if (held == nullptr || order_->place(id) != MoveOrder::Place::kLeaving) return false;
  wait([&] {                // for a copy that is being made; one that is not begun yet is not needed
    values_.drop_form(id);  // whether its copy is done or not: the peak of a later round shall not depend on that
    return true;
  });
  return true;
}

void Moves::begin_to_come(ValueId id, StoragePtr memory) {
  Moved* const held = moved(id);
  if (held == nullptr || held->coming() || order_->place(id) != MoveOrder::Place::kComing) return;
  held->begin_read(std::move(memory));
}

std::shared_ptr<Moved> Moves::take(ValueId id) {
  if (moved(id) == nullptr) return nullptr;
  order_->take(id);
  return std::static_pointer_cast<Moved>(values_[id].form.contents);
}

void Moves::note_made(ValueId id) {
  Moved* const held = moved(id);
  if (held == nullptr) return;
  order_->take(id);
  if (!held->coming()) return;
  wait([&] { return held->wait_read(); });
  const memory::FrozenPlain frozen;
  held->forget_coming();
}

void Moves::give_up(ValueId id, const std::string& error) {
  ++counts_.failed_moves;
  counts_.move_error = error;
  if (moved(id) != nullptr) values_.drop_form(id);
}

}  // namespace remat
