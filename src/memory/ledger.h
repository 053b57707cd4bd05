// src/memory/ledger.h -- the account of one device's tensor bytes, and the limit on them.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>

#include "memory/fork.h"
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
  /// As reclaim(), for a request of `bytes` that is within the limit, where the device's allocator has no block for it
  /// in what it may reserve: no limit rises.
  virtual bool reclaim_block(int64_t bytes) { return reclaim(bytes); }
  /// After reclaim_block() has freed nothing: may the allocator reserve more than the limit?
  virtual bool may_reserve_more() { return false; }
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
  /// What the device's allocator has taken from it; 0 where that is not known.
  virtual int64_t reserved() const { return 0; }
  /// The largest that `current` has been since begin_step() returned `step`, and so for the others.
  int64_t step_peak(int step = 0) const { return peaks_[step].alive.load(std::memory_order_relaxed); }
  /// The most that the device's allocator has taken from it since then; 0 where that is not known.
  int64_t reserved_peak(int step = 0) const { return peaks_[step].reserved.load(std::memory_order_relaxed); }
  int64_t plain_current() const { return plain_current_.load(std::memory_order_relaxed); }
  int64_t plain_peak(int step = 0) const { return peaks_[step].plain.load(std::memory_order_relaxed); }
  /// The largest that plain_current has been without the optimizer's state that updates in backward have made: later
  /// steps begin with that state.
  int64_t plain_peak_without_state(int step = 0) const {
    return peaks_[step].without_state.load(std::memory_order_relaxed);
  }
  /// Before a step: plain_current and all peaks of the number 0 become what is alive. While other steps are in
  /// progress, whose limits are enforced, they go on as they are.
  void reset_if_alone() {
    if (enforced_limit() == INT64_MAX) reset_step();
  }
  /// From now on peaks are kept for one step more, beginning with what is alive. Returns the number to ask for them by:
  /// 0, whose peaks are from before the step began, for one of more than seven at once.
  int begin_step();
  /// Its peaks begin anew.
  void restart_step(int step);
  /// The step that begin_step() returned `step` for has ended.
  void end_step(int step) noexcept;
  /// A parameter is updated in the middle of backward; it has been. What came meanwhile and stayed is state.
  void begin_update() noexcept;
  void end_update() noexcept;
  /// That have begun since the last reset_if_alone().
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
  virtual void set_limit(const Reclaimer& /*reclaimer*/, int64_t /*limit*/) {}
  /// The smallest limit in force, or INT64_MAX.
  virtual int64_t enforced_limit() const = 0;

 protected:
  /// `alive` bytes are alive now.
  void raise_step_peak(int64_t alive) noexcept {
    for_each_step([alive](Peaks& peaks) { raise_to(peaks.alive, alive); });
  }
  void raise_step_reserved(int64_t reserved) noexcept {
    for_each_step([reserved](Peaks& peaks) { raise_to(peaks.reserved, reserved); });
  }
  /// Plain would have `bytes` more from now on.
  void add_plain(int64_t bytes) noexcept {
    const int64_t plain = plain_current_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    const bool updating = updating_.load(std::memory_order_relaxed);
    const int64_t without_state = plain - state_.load(std::memory_order_relaxed);
    if (updating) raise_to(update_peak_, without_state);
    for_each_step([=](Peaks& peaks) {
      raise_to(peaks.plain, plain);
      if (!updating) raise_to(peaks.without_state, without_state);
    });
  }
  /// For reset_step(): all that is alive is plain's.
  void reset_step_to(const std::atomic<int64_t>& current) noexcept {
    reset_to(peaks_[0].alive, current);
    peaks_[0].reserved = reserved();
    plain_current_.store(current.load());
    reset_to(peaks_[0].plain, plain_current_);
    updating_ = false;
    updates_ = 0;
    state_ = 0;
    reset_to(peaks_[0].without_state, plain_current_);
  }
  /// In a child after a fork: the steps are the parent's.
  void forget_steps() noexcept { measured_ = reserved_ = 0; }

 private:
  struct Peaks {
    std::atomic<int64_t> alive{0}, reserved{0}, plain{0}, without_state{0};
  };
  static constexpr int kMostSteps = 8;

  virtual void reset_step() = 0;
  /// Calls visit() for the peaks of each number in use.
  template <class Visit>
  void for_each_step(Visit visit) noexcept {
    visit(peaks_[0]);
    for (uint32_t steps = measured_.load(std::memory_order_relaxed); steps != 0; steps &= steps - 1) {
      visit(peaks_[static_cast<size_t>(std::countr_zero(steps))]);
    }
  }

  std::array<Peaks, kMostSteps> peaks_;  ///< by number; 0: since the last reset_if_alone()
  std::atomic<uint32_t> measured_{0};    ///< a bit for each number whose peaks are kept
  std::atomic<uint32_t> reserved_{0};    ///< the same, from before they are until after
  std::atomic<int64_t> plain_current_{0}, updates_{0}, state_{0};
  // Of the update in progress: what was alive before it, and its own peak, both without the state that is there
  // already.
  std::atomic<bool> updating_{false};
  std::atomic<int64_t> before_update_{0}, update_peak_{0};
};

/// The peaks of one step, from its beginning to the end of this object.
class MeasuredStep {
 public:
  explicit MeasuredStep(Ledger& ledger) : ledger_(ledger), number_(ledger.begin_step()) {}
  ~MeasuredStep() {
    if (forks_ == forks()) ledger_.end_step(number_);  // else it is the parent's
  }
  MeasuredStep(const MeasuredStep&) = delete;
  MeasuredStep& operator=(const MeasuredStep&) = delete;

  /// Begins anew.
  void restart() { ledger_.restart_step(number_); }
  int64_t peak() const { return ledger_.step_peak(number_); }
  int64_t reserved_peak() const { return ledger_.reserved_peak(number_); }
  int64_t plain_peak() const { return ledger_.plain_peak(number_); }
  int64_t plain_peak_without_state() const { return ledger_.plain_peak_without_state(number_); }

 private:
  Ledger& ledger_;
  const int number_;
  const int forks_ = forks();
};

/// Is a thread in a scope of the kind `Kind`, which derives from this?
template <class Kind>
class ThreadScope {
 public:
  ThreadScope() noexcept { ++depth_; }
  ~ThreadScope() { --depth_; }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;
  static bool active() noexcept { return depth_ > 0; }

 private:
  inline static thread_local int depth_ = 0;
};

/// While it lives, this thread's allocations and frees do not count as plain's: replays, and drops of saved values.
class FrozenPlain : public ThreadScope<FrozenPlain> {};

/// While it lives, what this thread allocates can be done without: values may be evicted for it, and where that is not
/// enough std::bad_alloc is thrown, and nothing refused.
class Dispensable : public ThreadScope<Dispensable> {};

}  // namespace remat::memory
