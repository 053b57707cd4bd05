#include "memory/ledger.h"

#include <algorithm>

namespace remat::memory {

void Ledger::begin_update() noexcept {
  before_update_ = plain_current_ - state_;
  update_peak_ = before_update_.load();
  updating_ = true;
  ++updates_;
}

void Ledger::end_update() noexcept {
  if (!updating_.exchange(false)) return;  // it began before the step
  const int64_t came = std::max<int64_t>(0, plain_current_ - state_ - before_update_);
  raise_to(peak_without_state_, update_peak_ - came);
  state_ += came;
}

int& FrozenPlain::depth() noexcept {
  thread_local int depth = 0;
  return depth;
}

}  // namespace remat::memory
