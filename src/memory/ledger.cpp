#include "memory/ledger.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace remat::memory {

Ledger::~Ledger() {
  for (StepBlock* block = first_.next; block != nullptr;) delete std::exchange(block, block->next);
}

Ledger::StepBlock& Ledger::step_block(int step) {
  StepBlock* block = &first_;
  for (int skipped = step / kSteps; skipped > 0; --skipped) block = block->next.load(std::memory_order_acquire);
  return *block;
}

int Ledger::begin_step() {
  int first = 0;
  for (StepBlock* block = &first_;; first += kSteps) {
    for (int place = 0; place < kSteps; ++place) {
      const uint32_t bit = uint32_t{1} << static_cast<uint32_t>(place);
      if ((block->taken.fetch_or(bit) & bit) != 0) continue;
      block->measured.fetch_or(bit);
      restart_step(first + place);
      return first + place;
    }
    StepBlock* next = block->next.load();
    if (next == nullptr) {
      auto added = std::make_unique<StepBlock>();
      // Else another thread was faster, and `next` is its block.
      if (block->next.compare_exchange_strong(next, added.get())) next = added.release();
    }
    block = next;
  }
}

void Ledger::restart_step(int step) {
  if (step == 0) return;
  Peaks& peaks = peaks_of(step);
  peaks.alive = peaks.reserved = peaks.plain = peaks.without_state = 0;
  // What is allocated from here on counts, and so does what is there.
  raise_to(peaks.alive, current());
  raise_to(peaks.reserved, reserved());
  raise_to(peaks.plain, plain_current_.load());
  raise_to(peaks.without_state, plain_current_ - state_);
}

void Ledger::end_step(int step) noexcept {
  const uint32_t bit = uint32_t{1} << static_cast<uint32_t>(step % kSteps);
  StepBlock& block = step_block(step);
  block.measured.fetch_and(~bit);
  block.taken.fetch_and(~bit);
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
