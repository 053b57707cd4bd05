// src/session/pool_state.h -- the steps of a pool: which are in progress and with how many bytes, and which wait.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <vector>

#include "memory/fork.h"
#include "memory/ledger.h"
#include "memory/thread_bytes.h"
#include "session/pool_shares.h"
#include "util/mutex.h"

namespace remat {

/// What the sessions of a pool have in common. Thread-safe.
///
/// A step gets all of its bytes as it begins or none, and never more later: who waits has nothing that others wait for.
/// The first that waits is the first to begin, so that each has its turn.
class PoolState {
 public:
  explicit PoolState(int64_t bytes) : bytes_(bytes) {}

  int64_t running();
  int64_t waiting();

 private:
  friend class PoolStep;

  struct Entry {
    memory::Ledger& ledger;
    std::shared_ptr<const PoolDemand> demand;
    std::shared_ptr<const memory::ThreadBytes> thread;
    int64_t thread_bytes = 0;  ///< of the thread, when the step began
    bool runs = false;
    bool alone = false;        ///< nobody may begin beside it
    int64_t granted = 0;       ///< bytes above the baseline
    PoolDemands company = {};  ///< the most steps that have waited or run at once with this one
  };
  using EntryPtr = std::shared_ptr<Entry>;

  /// In a child after a fork, where no step is in progress.
  void forget_parents_steps();
  int64_t count(bool running);
  void arrive(const EntryPtr& entry);
  /// Returns when the step of `entry` may begin; true if it had to wait. `earlier`: see PoolStep's `company`.
  bool wait(Entry& entry, const PoolDemands& earlier);
  void leave(const EntryPtr& entry) noexcept;
  bool admit(Entry& entry, const PoolDemands& earlier) REMAT_REQUIRES(mutex_);
  PoolDemands others(const Entry& entry) const REMAT_REQUIRES(mutex_);
  PoolDemands company(const Entry& entry, const PoolDemands& earlier) const REMAT_REQUIRES(mutex_);

  const int64_t bytes_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<EntryPtr> entries_ REMAT_GUARDED_BY(mutex_);  ///< in the order of their arrival
  std::atomic<int> forgotten_ = 2 * forks();  ///< until which fork; odd while a thread is at it
};

/// A step's part of its pool, from before it begins until it has ended.
class PoolStep {
 public:
  /// Waits for bytes that `ledger` counts, which is the same for all. `company`: of the session's step before, which
  /// took them beside these; when this object is destroyed, what this step has met. It must outlive the object. Throws
  /// what check_interrupt() does.
  PoolStep(std::shared_ptr<PoolState> pool, memory::Ledger& ledger, PoolDemand demand, PoolDemands& company);
  /// Gives the bytes back.
  ~PoolStep();
  PoolStep(const PoolStep&) = delete;
  PoolStep& operator=(const PoolStep&) = delete;

  /// What the step may take above its baseline.
  int64_t granted() const { return entry_->granted; }
  double waited_seconds() const { return waited_seconds_; }
  /// True if nothing may run beside this step.
  bool runs_alone() const { return entry_->alone; }
  /// True if this thread is in another step of the pool.
  bool is_others_thread() const;

 private:
  std::shared_ptr<PoolState> pool_;
  PoolState::EntryPtr entry_;
  PoolDemands& company_;
  double waited_seconds_ = 0;
  const int forks_ = forks();
};

}  // namespace remat
