// src/device/cpu_ledger.h -- the account of CPU tensors, kept by remat's own allocator.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "device/adopted_storages.h"
#include "device/counted_ledger.h"
#include "memory/memory_left.h"

namespace remat::memory {

/// One per process. Storages that PyTorch's allocator made before ours was installed are adopted.
class CpuLedger final : public CountedLedger {
 public:
  /// Never destroyed: tensors may outlive static destruction.
  static CpuLedger& instance();

  // For the allocator. All noexcept.

  /// Tensors and cache together should stay below this: an eighth above the smallest enforced limit, and never above
  /// what the machine has.
  int64_t footprint_limit() const noexcept;
  /// Gives back cached blocks that do not fit below footprint_limit().
  void trim_cache() const noexcept;
  /// The system has no memory for `bytes`: evicts something. False if nothing is left.
  bool evict_for(int64_t bytes) { return yield(bytes); }
  /// Tells PyTorch's profiler that `bytes` at `data` were allocated, or freed where negative.
  void report_to_profiler(void* data, int64_t bytes) const;

  // Around a fork. Not checked: between them the process is copied.
  void before_fork() REMAT_UNCHECKED;
  void after_fork_in_parent() REMAT_UNCHECKED;
  void after_fork_in_child() REMAT_UNCHECKED;

  // Ledger.
  bool hold(int64_t bytes) noexcept override;
  void release(int64_t bytes) noexcept override;
  int64_t adopt(c10::StorageImpl& storage) override;
  std::unique_ptr<Enforcement> enforce(int64_t limit, Reclaimer& reclaimer) override;

  // DeviceLedger.
  int64_t device_limit() const override;
  int64_t cached() const override;
  void release_cached() override;

 private:
  CpuLedger();

  /// Takes foreign storages that are gone out of the account.
  bool sweep() noexcept override;

  void ask_limits() const;

  // As they were at `asked_at_`: asking reads files.
  mutable std::atomic<int64_t> device_limit_ = INT64_MAX;
  mutable std::atomic<int64_t> address_limit_ = INT64_MAX;  ///< of tensors, by what the process may map
  mutable std::atomic<std::chrono::steady_clock::time_point> asked_at_;
  AdoptedStorages adopted_;

  friend void release_older(void* context) noexcept;
};

/// memory_left(), or what the process's own limits leave (ulimit -v), where that is less.
MemoryLeft left_for_tensors();

/// The deleter of a block from remat's allocator. Null is allowed.
void release_block(void* data) noexcept;
/// The deleter of a block from PyTorch's allocator that was adopted.
void release_older(void* context) noexcept;

}  // namespace remat::memory
