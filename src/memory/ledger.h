// src/memory/ledger.h -- the account of one device's tensor bytes, and the limit on them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>

#include "memory/peak.h"

namespace remat::memory {

/// Frees memory on demand. OnlineEviction implements it by evicting saved values.
class Reclaimer {
 public:
  virtual ~Reclaimer() = default;
  /// Called on the allocating thread, with no lock of the ledger held, when `bytes` more than now must become free.
  /// Returns true if it freed anything (the ledger then looks again), false if it has nothing left to give.
  /// May be called from several threads at once and must not allocate tensors.
  virtual bool reclaim(int64_t bytes) = 0;
  /// Called before `bytes` of tensors that are older than the account are counted: they were there all along.
  virtual void meets_older(int64_t /*bytes*/) {}
  /// Whether an allocation of this thread that passes the limit is to be refused. Where it is not, because the work is
  /// not what the limit was made for, it passes. Called after reclaim() has freed nothing.
  virtual bool refuses() { return true; }
  /// Called when no reclaimer could help and the allocation is about to pass the limit; throws BudgetError.
  /// `needed`: bytes that would be alive with the allocation, `request`: its size, `limit`: the limit in force.
  [[noreturn]] virtual void refuse(int64_t needed, int64_t request, int64_t limit) = 0;
};

/// The bytes of one device. `current` counts what is alive; `plain` counts what would be alive without remat: it stays
/// where it is while a FrozenPlain lives on the thread that allocates or frees.
class Ledger {
 public:
  static Ledger& of(c10::Device device);

  virtual ~Ledger() = default;
  /// Takes foreign storages that are gone out of the account first.
  virtual int64_t current() = 0;
  /// The user's: nobody else resets it. (On CUDA it is PyTorch's own.)
  virtual int64_t peak() const = 0;
  virtual void reset_peak() = 0;
  /// Since the last begin_step().
  int64_t step_peak() const { return step_peak_.load(std::memory_order_relaxed); }
  int64_t plain_current() const { return plain_current_.load(std::memory_order_relaxed); }
  int64_t plain_peak() const { return plain_peak_.load(std::memory_order_relaxed); }
  /// The largest that plain_current has been without the optimizer's state that updates in backward have made since the
  /// last begin_step(): later steps begin with that state.
  int64_t plain_peak_without_state() const { return peak_without_state_.load(std::memory_order_relaxed); }
  /// step_peak, plain_current and what is derived from it become what is alive. While another step is in progress,
  /// which would lose its own, they go on as they are.
  void begin_step() {
    if (enforced_limit() == INT64_MAX) reset_step();
  }
  /// A parameter is updated in the middle of backward; it has been. What came meanwhile and stayed is state.
  void begin_update() noexcept;
  void end_update() noexcept;
  /// That have begun since the last begin_step().
  int64_t updates() const { return updates_.load(std::memory_order_relaxed); }
  /// Plain would have freed now a value that remat has evicted: plain_current -= bytes.
  void forget_plain(int64_t bytes) noexcept { plain_current_.fetch_sub(bytes, std::memory_order_relaxed); }
  /// Plain would allocate `bytes` now, and have as many free soon: the result of an operator that remat lets write over
  /// an input.
  void plain_rises(int64_t bytes) noexcept {
    add_plain(bytes);
    forget_plain(bytes);
  }
  /// Counts memory that remat allocates elsewhere for what it makes of a device's tensors, but not as plain's. Asks no
  /// reclaimer: false, and nothing is counted, where the bytes would pass a limit.
  virtual bool hold(int64_t bytes) noexcept = 0;
  /// Such memory is free again.
  virtual void release(int64_t bytes) noexcept = 0;

  /// Counts a storage that this ledger's allocator did not allocate, until it is freed, and returns the bytes that this
  /// call added. Cheap when already counted. Where they would pass a limit the reclaimers are asked first, but the
  /// bytes exist and are counted in any case: never refuses. The caller must hold no lock that other threads'
  /// reclaimers wait for.
  virtual int64_t adopt(c10::StorageImpl& storage) = 0;

  /// While it lives, allocations that would pass `limit` bytes ask `reclaimer` first. With several, the smallest limit
  /// whose reclaimer refuses() holds, and all reclaimers are asked. Destruction waits for calls in progress on other
  /// threads.
  class Enforcement {
   public:
    virtual ~Enforcement() = default;
  };
  virtual std::unique_ptr<Enforcement> enforce(int64_t limit, Reclaimer& reclaimer) = 0;
  /// Every limit that is enforced through `reclaimer` becomes `limit` bytes. A reclaimer may call it from reclaim().
  /// CPU only: elsewhere limits stay what they are.
  virtual void set_limit(const Reclaimer& /*reclaimer*/, int64_t /*limit*/) {}
  /// The smallest limit in force, or INT64_MAX.
  virtual int64_t enforced_limit() const = 0;

 protected:
  /// `alive` bytes are alive now.
  void raise_step_peak(int64_t alive) noexcept { raise_to(step_peak_, alive); }
  /// Plain would have `bytes` more from now on.
  void add_plain(int64_t bytes) noexcept {
    const int64_t plain = plain_current_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    raise_to(plain_peak_, plain);
    const bool updating = updating_.load(std::memory_order_relaxed);
    raise_to(updating ? update_peak_ : peak_without_state_, plain - state_.load(std::memory_order_relaxed));
  }
  /// For reset_step(): all that is alive is plain's.
  void reset_step_to(const std::atomic<int64_t>& current) noexcept {
    reset_to(step_peak_, current);
    plain_current_.store(current.load());
    reset_to(plain_peak_, plain_current_);
    updating_ = false;
    updates_ = 0;
    state_ = 0;
    reset_to(peak_without_state_, plain_current_);
  }

 private:
  virtual void reset_step() = 0;

  std::atomic<int64_t> step_peak_{0}, plain_current_{0}, plain_peak_{0};
  std::atomic<int64_t> updates_{0}, state_{0}, peak_without_state_{0};
  // Of the update in progress: what was alive before it, and its own peak, both without the state that is there
  // already.
  std::atomic<bool> updating_{false};
  std::atomic<int64_t> before_update_{0}, update_peak_{0};
};

/// While it lives, this thread's allocations and frees do not count as plain's: replays, and drops of saved values.
class FrozenPlain {
 public:
  FrozenPlain() noexcept { ++depth(); }
  ~FrozenPlain() { --depth(); }
  FrozenPlain(const FrozenPlain&) = delete;
  FrozenPlain& operator=(const FrozenPlain&) = delete;
  static bool active() noexcept { return depth() > 0; }

 private:
  static int& depth() noexcept;
};

}  // namespace remat::memory
