#include "memory/ledger.h"

#include <algorithm>

namespace remat::memory {

int Ledger::begin_step() {
  for (int step = 1; step < kMostSteps; ++step) {
    const uint32_t bit = uint32_t{1} << step;
    if ((reserved_.fetch_or(bit) & bit) != 0) continue;
    measured_.fetch_or(bit);
    restart_step(step);
    return step;
  }
  return 0;
}

void Ledger::restart_step(int step) {
  if (step == 0) return;
  Peaks& peaks = peaks_[step];
  peaks.alive = peaks.reserved = peaks.plain = peaks.without_state = 0;
  // What is allocated from here on counts, and so does what is there.
  raise_to(peaks.alive, current());
  raise_to(peaks.reserved, reserved());
  raise_to(peaks.plain, plain_current_.load());
  raise_to(peaks.without_state, plain_current_ - state_);
}

void Ledger::end_step(int step) noexcept {
  const uint32_t bit = uint32_t{1} << step;
  measured_.fetch_and(~bit);
  reserved_.fetch_and(~bit);
}

void Ledger::begin_update() noexcept {
  before_update_ = plain_current_ - state_;
  update_peak_ = before_update_.load();
  updating_ = true;
  ++updates_;
}

void Ledger::end_update() noexcept {
  if (!updating_.exchange(false)) return;  // it began before the step
  const int64_t came = std::max<int64_t>(0, plain_current_ - state_ - before_update_);
  const int64_t peak = update_peak_ - came;
  for_each_step([peak](Peaks& peaks) { raise_to(peaks.without_state, peak); });
  state_ += came;
}

}  // namespace remat::memory
