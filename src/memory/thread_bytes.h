// src/memory/thread_bytes.h -- how many of the CPU's tensor bytes each thread has brought.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace remat::memory {

/// What a thread has allocated less what it has freed, whoever had allocated that: below 0 for one that frees what
/// others have made.
class ThreadBytes {
 public:
  /// Returns this thread's, which are counted from the first call on.
  static std::shared_ptr<const ThreadBytes> of_this_thread();

  /// The same, or null where they are not counted.
  static const ThreadBytes* of_this_thread_if_asked() noexcept { return current_; }

  int64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

  /// For the ledger: this thread has allocated `bytes`, or freed them where negative.
  static void add(int64_t bytes) noexcept {
    if (current_ != nullptr) current_->count_.fetch_add(bytes, std::memory_order_relaxed);
  }

 private:
  struct Owner;
  inline static thread_local ThreadBytes* current_ = nullptr;  ///< null: nobody has asked for this thread's

  std::atomic<int64_t> count_{0};
};

}  // namespace remat::memory
