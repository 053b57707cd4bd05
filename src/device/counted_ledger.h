// src/device/counted_ledger.h -- the account of a device whose allocator asks before each allocation and tells each
// free.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>

#include <c10/util/Exception.h>

#include "device/device_ledger.h"
#include "memory/enforcements.h"

namespace remat::memory {

/// Counts the bytes that were asked for, to the byte; what the allocator adds for itself (headers, rounding) and what
/// it caches is not in it.
class CountedLedger : public DeviceLedger {
 public:
  // For the allocator. All noexcept but charge() and ask().

  /// Counts `bytes` (more than 0) that are about to be allocated and returns what is alive with them. Where that would
  /// pass the smallest enforced limit, asks the reclaimers first; throws what Reclaimer::refuse() throws, with nothing
  /// counted. The peak does not know of it yet: the allocation may still fail.
  int64_t charge(int64_t bytes);
  /// The allocation has succeeded: `alive`, as charge() returned it, is a candidate for the peak.
  void confirm(int64_t bytes, int64_t alive) noexcept;
  /// The allocation has failed.
  void cancel(int64_t bytes) noexcept { current_.fetch_sub(bytes, std::memory_order_relaxed); }
  /// Memory that was counted is free.
  void discharge(int64_t bytes) noexcept;
  /// Counts `bytes`, as charge() does, around `allocate()`, whose result it returns. Where that throws OutOfMemoryError
  /// it is tried again for as long as yield() frees something. Throws what is thrown in the end, with nothing counted.
  template <class Allocate>
  std::invoke_result_t<Allocate> ask(int64_t bytes, Allocate allocate) {
    int64_t alive = charge(bytes);
    try {
      for (;;) {
        const uint64_t rises = rises_of_device_limit();
        try {
          auto made = allocate();
          confirm(bytes, alive);
          return made;
        } catch (const c10::OutOfMemoryError&) {
          const auto has_risen = [&] { return rises != rises_of_device_limit(); };
          if (!has_risen() && !yield(bytes) && !has_risen()) throw;
          alive = counted();
        }
      }
    } catch (...) {
      cancel(bytes);
      throw;
    }
  }
  /// What is alive, without a look at what may have been freed unseen.
  int64_t counted() const noexcept { return current_.load(std::memory_order_relaxed); }

  // Ledger.
  int64_t current() override;
  int64_t peak() const override { return peak_.load(std::memory_order_relaxed); }
  void reset_peak() override;
  bool hold(int64_t bytes) noexcept override;
  void release(int64_t bytes) noexcept override { cancel(bytes); }
  std::unique_ptr<Enforcement> enforce(int64_t limit, Reclaimer& reclaimer) override {
    return enforcements_.enforce(limit, reclaimer);
  }
  void set_limit(const Reclaimer& reclaimer, int64_t limit) override { enforcements_.set_limit(reclaimer, limit); }
  int64_t enforced_limit() const override { return enforcements_.smallest(); }

  // DeviceLedger.
  int64_t standing_limit() const override { return standing_limit_.load(std::memory_order_relaxed); }
  void set_standing_limit(std::optional<int64_t> bytes) override {
    standing_limit_.store(bytes.value_or(INT64_MAX), std::memory_order_relaxed);
  }

 protected:
  /// The device has no memory for `request`, or none in one piece, though it is within the limit. True: it is worth
  /// another try.
  virtual bool yield(int64_t request) { return enforcements_.reclaim_block(request); }
  /// How often a limit of the device's own allocator has risen. An attempt that failed under a limit that another
  /// thread has raised since is worth another.
  virtual uint64_t rises_of_device_limit() { return 0; }
  /// Takes memory that was freed without this ledger's allocator out of the account. True if there was any.
  virtual bool sweep() noexcept { return false; }
  /// `bytes` that are there already.
  void add(int64_t bytes) noexcept { raise_peaks(current_.fetch_add(bytes, std::memory_order_relaxed) + bytes); }
  void reset_step() override;

  Enforcements& enforcements() noexcept { return enforcements_; }

 private:
  void raise_peaks(int64_t alive) noexcept;
  /// Frees, or throws. True: nothing is left to free, and yet the allocation may pass; else the caller looks again.
  bool make_room(int64_t bytes);

  std::atomic<int64_t> current_{0};
  std::atomic<int64_t> peak_{0};
  std::atomic<int64_t> standing_limit_{INT64_MAX};
  Enforcements enforcements_;
};

}  // namespace remat::memory
