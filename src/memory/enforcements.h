// src/memory/enforcements.h -- the limits in force on one device, and who frees memory to keep them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "memory/ledger.h"
#include "util/mutex.h"

namespace remat::memory {

/// Waits up to 16 ms until another thread has freed enough memory that `fits()` returns true. Libraries that run
/// collectives let go of tensors on other threads, some time after the collective is over.
bool fits_after_a_while(const std::function<bool()>& fits);

/// All Ledger::Enforcement objects of one device. Thread-safe. No lock is held while a Reclaimer runs: what it frees
/// comes back to the ledger, and refuse() throws.
class Enforcements {
 public:
  /// The smallest limit in force, in bytes, or INT64_MAX.
  int64_t smallest() const noexcept { return smallest_.load(std::memory_order_acquire); }

  /// See Ledger::enforce().
  std::unique_ptr<Ledger::Enforcement> enforce(int64_t limit, Reclaimer& reclaimer);

  /// See Ledger::set_limit().
  void set_limit(const Reclaimer& reclaimer, int64_t limit);

  /// Asks the reclaimers, that of the smallest limit first, until one frees something. False if none did.
  bool reclaim(int64_t bytes);
  /// The same by Reclaimer::reclaim_block().
  bool reclaim_block(int64_t bytes);
  /// True if any reclaimer lets the allocator reserve more.
  bool may_reserve_more();

  /// Tells every reclaimer; see Reclaimer::meets_older().
  void meet_older(int64_t bytes);

  /// Lets the reclaimer of the smallest limit that `needed` bytes pass and that refuses() throw. Returns true where all
  /// reclaimers let the allocation pass. Returns false where no limit is passed any more: another thread has ended an
  /// enforcement, or freed enough that `fits()`, for which it waits a while before one throws. Without `fits` it does
  /// not wait.
  bool refuse(int64_t needed, int64_t request, const std::function<bool()>& fits = {});

  /// Around a fork. In the child no limit is in force any more: the steps are the parent's.
  void before_fork() REMAT_ACQUIRE(mutex_) { mutex_.lock(); }
  void after_fork_in_parent() REMAT_RELEASE(mutex_) { mutex_.unlock(); }
  void after_fork_in_child() REMAT_RELEASE(mutex_);

 private:
  /// Limit, then order of arrival.
  using Key = std::pair<int64_t, int64_t>;
  struct Entry {
    Reclaimer& reclaimer;
    Key key;
    int64_t calls = 0;  ///< calls of the reclaimer in progress; guarded by mutex_, as the key is
  };
  class Call;
  class Handle;

  std::pair<Key, std::shared_ptr<Entry>> next_after(Key key);
  template <class Ask>
  bool any(Ask ask);
  void remove(const std::shared_ptr<Entry>& entry);
  void update_smallest() REMAT_REQUIRES(mutex_);

  std::atomic<int64_t> smallest_{INT64_MAX};
  Mutex mutex_;
  std::condition_variable_any call_ended_;
  std::map<Key, std::shared_ptr<Entry>> entries_ REMAT_GUARDED_BY(mutex_);
  int64_t arrivals_ REMAT_GUARDED_BY(mutex_) = 0;
};

}  // namespace remat::memory
