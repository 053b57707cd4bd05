// src/device/adopted_storages.h -- CPU storages that remat's allocator did not allocate, and their sizes.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_map>

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include "util/mutex.h"

namespace remat::memory {

/// Two kinds. *Older* ones came from PyTorch's own allocator, before accounting started: their deleter is exchanged, so
/// their end is seen at once. *Foreign* ones came from elsewhere (from_blob, numpy, mmap): their
/// deleter and context mean something to others and stay; a weak reference tells sweep() that they are gone. Where
/// several begin at the same address, the bytes of the largest count, until all are gone.
///
/// Thread-safe.
class AdoptedStorages {
 public:
  /// `counted`: the deleter of storages that are counted already. `older`: the one that older storages get, which has
  /// to call forget().
  AdoptedStorages(c10::DeleterFnPtr counted, c10::DeleterFnPtr older) : counted_(counted), older_deleter_(older) {}

  /// Starts to watch `storage` and returns the bytes to count: 0 where it is watched already, holds nothing, lives on
  /// another device, is a file's (file_blocks.h), or shares memory that is counted elsewhere (copy-on-write clones,
  /// blobs over remat's own blocks of 64 KiB or more; blobs over smaller ones are not told apart from foreign memory,
  /// and count once more).
  int64_t adopt(c10::StorageImpl& storage);

  /// The bytes of an older storage that is being freed; forgets it.
  int64_t forget(void* context) noexcept;

  /// Forgets the foreign storages that are gone and returns their bytes.
  int64_t sweep() noexcept;

  /// For the time of a fork.
  Mutex& mutex() noexcept REMAT_ANNOTATE(lock_returned(mutex_)) { return mutex_; }

 private:
  struct Foreign {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    const void* address;
  };
  struct Memory {
    int64_t bytes = 0;     ///< that are counted
    int64_t storages = 0;  ///< that begin there
  };

  const c10::DeleterFnPtr counted_, older_deleter_;
  Mutex mutex_;
  std::unordered_map<void*, int64_t> older_ REMAT_GUARDED_BY(mutex_);
  std::unordered_map<const c10::StorageImpl*, Foreign> foreign_ REMAT_GUARDED_BY(mutex_);
  std::unordered_map<const void*, Memory> memory_ REMAT_GUARDED_BY(mutex_);  ///< of foreign storages, by address
  std::atomic<int64_t> foreign_count_{0};  ///< so that sweep() costs nothing where there are none
};

}  // namespace remat::memory
