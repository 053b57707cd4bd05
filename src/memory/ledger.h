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
  /// Frees memory as reclaim() does, for a request of `bytes` that is within the limit but for which the device's
  /// allocator has no block in what it may reserve. Raises no limit.
  virtual bool reclaim_block(int64_t bytes) { return reclaim(bytes); }
  /// True if the allocator may reserve more than the limit. Called after reclaim_block() has freed nothing.
  virtual bool may_reserve_more() { return false; }
  /// Called before the ledger counts `bytes` of tensors that existed before it began to count.
  virtual void meets_older(int64_t /*bytes*/) {}
  /// True if an allocation of this thread that passes the limit is to be refused. False if the limit was not made for
  /// this work: the allocation then passes. Called after reclaim() has freed nothing.
  virtual bool refuses() { return true; }
  /// Called when no reclaimer could help and the allocation is about to pass the limit; throws BudgetError.
  /// `needed`: bytes that would be alive with the allocation, `request`: its size, `limit`: the limit in force.
  [[noreturn]] virtual void refuse(int64_t needed, int64_t request, int64_t limit) = 0;
};

/// Counts the bytes of one device. `current` is what is alive, `plain` what would be alive without remat: allocations
/// and frees of a thread on which a FrozenPlain lives do not change `plain`.
class Ledger {
 public:
  static Ledger& of(c10::Device device);

  Ledger() { first_.taken = 1; }
  virtual ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;
  /// Returns the bytes alive, after storages of other allocators that are gone were taken out of the account.
  virtual int64_t current() = 0;
  /// Returns the largest that current() has been since the user called reset_peak(). (On CUDA it is PyTorch's.)
  virtual int64_t peak() const = 0;
  virtual void reset_peak() = 0;
  /// Returns the bytes that the device's allocator has taken from the device; 0 where that is not known.
  virtual int64_t reserved() const { return 0; }
  /// Returns the largest that current() has been since begin_step() returned `step`. The functions below do the same
  /// for other figures.
  int64_t step_peak(int step = 0) const { return peaks_of(step).alive.load(std::memory_order_relaxed); }
  /// Returns the most that the device's allocator has taken from the device; 0 where that is not known.
  int64_t reserved_peak(int step = 0) const { return peaks_of(step).reserved.load(std::memory_order_relaxed); }
  int64_t plain_current() const { return plain_current_.load(std::memory_order_relaxed); }
  int64_t plain_peak(int step = 0) const { return peaks_of(step).plain.load(std::memory_order_relaxed); }
  /// Returns the largest that plain_current() has been, without the optimizer's state that updates in backward have
  /// made in the step: later steps begin with that state.
  int64_t plain_peak_without_state(int step = 0) const {
    return peaks_of(step).without_state.load(std::memory_order_relaxed);
  }
  /// Sets plain_current() and the peaks of number 0 to the bytes alive, before a step. Does nothing while the limit of
  /// another step is enforced.
  void reset_if_alone() {
    if (enforced_limit() == INT64_MAX) reset_step();
  }
  /// Begins to keep peaks for one more step, from the bytes alive on. Returns the number by which to ask for them.
  int begin_step();
  /// Sets the peaks of `step` to the bytes alive.
  void restart_step(int step);
  /// Ends the step for which begin_step() returned `step`.
  void end_step(int step) noexcept;
  /// Called before and after a parameter is updated in the middle of backward. Bytes that were allocated between them
  /// and stay are optimizer state.
  void begin_update() noexcept;
  void end_update() noexcept;
  /// Returns the number of updates that have begun since the last reset_if_alone().
  int64_t updates() const { return updates_.load(std::memory_order_relaxed); }
  /// Subtracts `bytes` from plain_current(): plain would free now a value that remat has evicted.
  void forget_plain(int64_t bytes) noexcept { plain_current_.fetch_sub(bytes, std::memory_order_relaxed); }
  /// Raises plain's peak as if `bytes` were allocated and freed: for an operator that remat lets write its result over
  /// an input, where plain allocates.
  void plain_rises(int64_t bytes) noexcept {
    add_plain(bytes);
    forget_plain(bytes);
  }
  /// Counts `bytes` that remat allocates elsewhere for what it makes of this device's tensors, but not as plain's.
  /// Returns false, counts nothing and asks no reclaimer where the bytes would pass a limit.
  virtual bool hold(int64_t bytes) noexcept = 0;
  /// Stops counting bytes that hold() has counted.
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
  /// Sets every limit that is enforced through `reclaimer` to `limit` bytes. A reclaimer may call it from reclaim().
  virtual void set_limit(const Reclaimer& /*reclaimer*/, int64_t /*limit*/) {}
  /// Returns the smallest limit in force, or INT64_MAX.
  virtual int64_t enforced_limit() const = 0;

 protected:
  /// Raises the peaks of all steps in progress to `alive` bytes.
  void raise_step_peak(int64_t alive) noexcept {
    for_each_step([alive](Peaks& peaks) { raise_to(peaks.alive, alive); });
  }
  void raise_step_reserved(int64_t reserved) noexcept {
    for_each_step([reserved](Peaks& peaks) { raise_to(peaks.reserved, reserved); });
  }
  /// Adds `bytes` to what plain has alive.
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
  /// Makes all that is alive plain's, for reset_step().
  void reset_step_to(const std::atomic<int64_t>& current) noexcept {
    Peaks& peaks = first_.peaks[0];
    reset_to(peaks.alive, current);
    peaks.reserved = reserved();
    plain_current_.store(current.load());
    reset_to(peaks.plain, plain_current_);
    updating_ = false;
    updates_ = 0;
    state_ = 0;
    reset_to(peaks.without_state, plain_current_);
  }
  /// Ends all steps, in a child after a fork: they are the parent's.
  void forget_steps() noexcept {
    for (StepBlock* block = &first_; block != nullptr; block = block->next.load()) block->measured = block->taken = 0;
    first_.taken = 1;
  }

 private:
  struct Peaks {
    std::atomic<int64_t> alive{0}, reserved{0}, plain{0}, without_state{0};
  };
  static constexpr int kSteps = 8;  ///< in a block
  /// Of so many numbers, one after another. Blocks are added as more steps run at once, and stay.
  struct StepBlock {
    std::array<Peaks, kSteps> peaks;
    std::atomic<uint32_t> measured{0};  ///< a bit for each number whose peaks are kept
    std::atomic<uint32_t> taken{0};     ///< the same, from before they are until after
    std::atomic<StepBlock*> next{nullptr};
  };
  StepBlock& step_block(int step);
  Peaks& peaks_of(int step) { return step_block(step).peaks[static_cast<size_t>(step % kSteps)]; }
  const Peaks& peaks_of(int step) const { return const_cast<Ledger*>(this)->peaks_of(step); }

  virtual void reset_step() = 0;
  /// Calls visit() for the peaks of each number in use.
  template <class Visit>
  void for_each_step(Visit visit) noexcept {
    visit(first_.peaks[0]);
    for (StepBlock* block = &first_; block != nullptr; block = block->next.load(std::memory_order_acquire)) {
      for (uint32_t steps = block->measured.load(std::memory_order_relaxed); steps != 0; steps &= steps - 1) {
        visit(block->peaks[static_cast<size_t>(std::countr_zero(steps))]);
      }
    }
  }

  StepBlock first_;  ///< number 0, which is always taken: since the last reset_if_alone()
  std::atomic<int64_t> plain_current_{0}, updates_{0}, state_{0};
  // What was alive before the update in progress, and the update's peak, both without state of earlier updates.
  std::atomic<bool> updating_{false};
  std::atomic<int64_t> before_update_{0}, update_peak_{0};
};

/// Keeps the peaks of one step for as long as the object lives.
class MeasuredStep {
 public:
  explicit MeasuredStep(Ledger& ledger) : ledger_(ledger), number_(ledger.begin_step()) {}
  ~MeasuredStep() {
    if (forks_ == forks()) ledger_.end_step(number_);  // else it is the parent's
  }
  MeasuredStep(const MeasuredStep&) = delete;
  MeasuredStep& operator=(const MeasuredStep&) = delete;

  /// Sets the peaks to the bytes alive.
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

/// Tells whether a thread is in a scope of the kind `Kind`, which derives from this class.
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

/// While it lives, remat can do without what this thread allocates: values may be evicted for it, and where that is not
/// enough std::bad_alloc is thrown in place of a BudgetError.
class Dispensable : public ThreadScope<Dispensable> {};

}  // namespace remat::memory
