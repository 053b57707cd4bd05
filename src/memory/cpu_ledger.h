// src/memory/cpu_ledger.h -- the account of CPU tensors, kept by remat's own allocator.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "memory/adopted_storages.h"
#include "memory/device_ledger.h"
#include "memory/enforcements.h"

namespace remat::memory {

/// One per process. Counts the bytes that were asked for, to the byte; what the allocator adds for itself (headers,
/// rounding) and what it caches is not in it.
class CpuLedger final : public DeviceLedger {
 public:
  /// Never destroyed: tensors may outlive static destruction.
  static CpuLedger& instance();

  // For the allocator. All noexcept but charge().

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
  /// What is alive, without a look at foreign storages.
  int64_t counted() const noexcept { return current_.load(std::memory_order_relaxed); }
  /// Tensors and cache together should stay below this: an eighth above the smallest enforced limit, and never above
  /// what the machine has.
  int64_t footprint_limit() const noexcept;
  /// Gives back cached blocks that do not fit below footprint_limit().
  void trim_cache() const noexcept;
  /// Tells PyTorch's profiler that `bytes` at `data` were allocated, or freed where negative.
  void report_to_profiler(void* data, int64_t bytes) const;

  // Around a fork. Not checked: between them the process is copied.
  void before_fork() REMAT_UNCHECKED;
  void after_fork_in_parent() REMAT_UNCHECKED;
  void after_fork_in_child() REMAT_UNCHECKED;

  // Ledger.
  int64_t current() override;
  int64_t peak() const override { return peak_.load(std::memory_order_relaxed); }
  void reset_peak() override;
  bool hold(int64_t bytes) noexcept override;
  void release(int64_t bytes) noexcept override { current_.fetch_sub(bytes, std::memory_order_relaxed); }
  int64_t adopt(c10::StorageImpl& storage) override;
  std::unique_ptr<Enforcement> enforce(int64_t limit, Reclaimer& reclaimer) override;
  void set_limit(const Reclaimer& reclaimer, int64_t limit) override { enforcements_.set_limit(reclaimer, limit); }
  int64_t enforced_limit() const override { return enforcements_.smallest(); }

  // DeviceLedger.
  int64_t device_limit() const override;
  int64_t standing_limit() const override { return standing_limit_.load(std::memory_order_relaxed); }
  void set_standing_limit(std::optional<int64_t> bytes) override;
  int64_t cached() const override;
  void release_cached() override;

 private:
  CpuLedger();

  void reset_step() override;
  void raise_peaks(int64_t alive) noexcept;
  /// Frees, or throws. True: nothing is left to free, and yet the allocation may pass; else the caller looks again.
  bool make_room(int64_t bytes);
  /// Takes foreign storages that are gone out of the account. True if there were any.
  bool sweep() noexcept;

  std::atomic<int64_t> current_{0};
  std::atomic<int64_t> peak_{0};
  std::atomic<int64_t> standing_limit_{INT64_MAX};
  mutable std::atomic<int64_t> device_limit_;  ///< as it was at `asked_at_`: asking reads files
  mutable std::atomic<std::chrono::steady_clock::time_point> asked_at_ = std::chrono::steady_clock::now();
  Enforcements enforcements_;
  AdoptedStorages adopted_;

  friend void release_older(void* context) noexcept;
};

/// The deleter of a block from remat's allocator. Null is allowed.
void release_block(void* data) noexcept;
/// The deleter of a block from PyTorch's allocator that was adopted.
void release_older(void* context) noexcept;

}  // namespace remat::memory
