// src/device/arena.h -- large blocks of memory that stay with the process when they are freed.
//
// PyTorch's CPU allocator gives large blocks back to the system at once and faults their pages in again at the next
// allocation, which costs a training step 3 to 15 %. The arena keeps them: cpu_allocator.md has the measurements.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "util/mutex.h"

namespace remat::memory {

/// The header in front of every block, large or small, one cache line long: what follows it is aligned to 64 bytes, as
/// PyTorch's allocator aligns, so that kernels take the same paths on it and give the same bits.
struct alignas(64) Block {
  enum class State : uint8_t {
    kLive,   ///< in use
    kDirty,  ///< free, its pages still resident
    kClean,  ///< free, its pages never touched or given back
  };
  struct Region;

  size_t bytes;    ///< what the user asked for
  size_t span;     ///< from this header to the next one
  Block* before;   ///< the block in front of this one in its region, or null
  Region* region;  ///< null for a block that malloc provided
  Block* next;     ///< in the list of free blocks of similar span
  Block* previous;
  uint64_t serial;  ///< of this allocation: no two of the process have the same
  State state;
  bool watched;  ///< somebody wants to know what was in it at its end; read and written through std::atomic_ref

  void* data() noexcept { return this + 1; }
  static Block* of(void* data) noexcept { return static_cast<Block*>(data) - 1; }
};
static_assert(sizeof(Block) == 64);

/// Best fit with coalescing, in regions of address space. A free block is dirty or clean, and joins neighbours of its
/// own kind only. Dirty blocks are used first; purge() makes them clean. So fragmentation never holds memory for good:
/// it costs page faults instead. Where address space is limited, nothing is kept. Regions ask for huge pages, so memory
/// in use and cached() can be resident with up to one huge page more at each of their edges. Thread-safe, one lock;
/// meant for blocks of many pages, so that lists stay short.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  /// Gives everything back to the system.
  ~Arena();

  /// A block of at least `bytes`, not zeroed; null if the system has no more, even after all dirty blocks were purged.
  /// `spare`: where the process's address space is limited, the bytes of it that shall be left to others.
  Block* allocate(size_t bytes, int64_t spare = 0) noexcept;
  void free(Block* block) noexcept;

  /// Bytes of dirty blocks.
  int64_t cached() const noexcept { return cached_.load(std::memory_order_relaxed); }
  /// Bytes of clean blocks: address space, without pages.
  int64_t clean() const noexcept { return clean_bytes_.load(std::memory_order_relaxed); }
  /// Gives at least `bytes` of dirty blocks back to the system, or all of them if there are fewer.
  void purge(size_t bytes) noexcept;
  /// Whether `address` lies in one of the regions.
  bool owns(const void* address) noexcept;

  /// Held over fork(), so that the child never inherits a lock that a thread it does not have was holding.
  Mutex& mutex() noexcept REMAT_ANNOTATE(lock_returned(mutex_)) { return mutex_; }

 private:
  using State = Block::State;
  /// Eight lists for each power of two.
  static constexpr size_t kLists = size_t{64} * 8;
  using Lists = std::array<Block*, kLists>;

  static size_t list_of(size_t span) noexcept;
  static Block* after(const Block* block) noexcept;
  Lists& lists(State state) noexcept REMAT_REQUIRES(mutex_) { return state == State::kDirty ? dirty_ : clean_; }
  std::atomic<int64_t>& bytes_of(State state) noexcept { return state == State::kDirty ? cached_ : clean_bytes_; }

  Block* best_fit(Lists& lists, size_t span) noexcept REMAT_REQUIRES(mutex_);
  void insert(Block* block, State state) noexcept REMAT_REQUIRES(mutex_);
  void remove(Block* block) noexcept REMAT_REQUIRES(mutex_);
  /// Cuts `block` behind `span` bytes. The rest becomes a block in `rest_state`, unless it is too small to be one.
  void split(Block* block, size_t span, State rest_state) noexcept REMAT_REQUIRES(mutex_);
  Block* merge(Block* block, State state) noexcept REMAT_REQUIRES(mutex_);
  Block* take(size_t span) noexcept REMAT_REQUIRES(mutex_);
  bool grow(size_t span, int64_t spare) noexcept REMAT_REQUIRES(mutex_);
  void purge_locked(size_t bytes) noexcept REMAT_REQUIRES(mutex_);
  void unmap_free_regions() noexcept REMAT_REQUIRES(mutex_);

  Mutex mutex_;
  std::atomic<int64_t> cached_{0}, clean_bytes_{0};
  Lists dirty_ REMAT_GUARDED_BY(mutex_){};
  Lists clean_ REMAT_GUARDED_BY(mutex_){};
  Block::Region* regions_ REMAT_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace remat::memory
