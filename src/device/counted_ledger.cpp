#include "device/counted_ledger.h"

namespace remat::memory {

int64_t CountedLedger::charge(int64_t bytes) {
  int64_t before = current_.load(std::memory_order_relaxed);
  for (;;) {
    if (bytes > enforcements_.smallest() - before) {
      if (make_room(bytes)) return current_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
      before = current_.load(std::memory_order_relaxed);
    } else if (current_.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed)) {
      return before + bytes;
    }
  }
}

bool CountedLedger::make_room(int64_t bytes) {
  const auto missing = [&] { return counted() - enforcements_.smallest() + bytes; };
  if (missing() <= 0 || sweep()) return false;
  const int64_t wanted = missing();
  if (wanted <= 0 || enforcements_.reclaim(wanted)) return false;
  // Another thread may have freed something since.
  return missing() > 0 && enforcements_.refuse(counted() + bytes, bytes, [&] { return missing() <= 0; });
}

void CountedLedger::raise_peaks(int64_t alive) noexcept {
  raise_to(peak_, alive);
  raise_step_peak(alive);
}

void CountedLedger::confirm(int64_t bytes, int64_t alive) noexcept {
  raise_peaks(alive);
  if (!FrozenPlain::active()) add_plain(bytes);
}

void CountedLedger::discharge(int64_t bytes) noexcept {
  current_.fetch_sub(bytes, std::memory_order_relaxed);
  if (!FrozenPlain::active()) forget_plain(bytes);
}

bool CountedLedger::hold(int64_t bytes) noexcept {
  int64_t before = current_.load(std::memory_order_relaxed);
  do {
    if (bytes > enforcements_.smallest() - before) return false;
  } while (!current_.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
  raise_peaks(before + bytes);
  return true;
}

int64_t CountedLedger::current() {
  sweep();
  return counted();
}

void CountedLedger::reset_peak() {
  sweep();
  reset_to(peak_, current_);
}

void CountedLedger::reset_step() {
  sweep();
  reset_step_to(current_);
}

}  // namespace remat::memory
