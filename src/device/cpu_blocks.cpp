#include "device/cpu_blocks.h"

#include <cstdlib>

namespace remat::memory {
namespace {

// Under a sanitizer every block goes to malloc, whose replacement there finds uses after free.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kSmallestLarge = SIZE_MAX;
#else
/// From here on blocks come from the arena. Below, malloc keeps and reuses pages well enough.
constexpr size_t kSmallestLarge = size_t{64} * 1024;
#endif

/// Never destroyed: tensors may outlive static destruction.
Arena& arena() noexcept {
  static auto* arena = new Arena;  // NOLINT(bugprone-unhandled-exception-at-new): nothing works without it
  return *arena;
}

}  // namespace

Block* allocate_block(size_t bytes, int64_t spare) noexcept {
  if (bytes >= kSmallestLarge) return arena().allocate(bytes, spare);
  void* memory = nullptr;
  if (bytes > PTRDIFF_MAX || posix_memalign(&memory, alignof(Block), sizeof(Block) + bytes) != 0) return nullptr;
  auto* block = static_cast<Block*>(memory);
  block->bytes = bytes;
  block->region = nullptr;
  return block;
}

void free_block(Block* block) noexcept {
  if (block->region != nullptr) {
    arena().free(block);
  } else {
    std::free(block);
  }
}

int64_t cached_bytes() noexcept { return arena().cached(); }

int64_t clean_bytes() noexcept { return arena().clean(); }

void release_cache() noexcept { arena().purge(SIZE_MAX); }

void trim_cache(int64_t most) noexcept {
  const int64_t cached = cached_bytes();
  if (cached > 0 && cached > most) arena().purge(static_cast<size_t>(cached - most));
}

bool owns(const void* address) noexcept { return arena().owns(address); }

void lock_blocks() REMAT_UNCHECKED { arena().mutex().lock(); }
void unlock_blocks() REMAT_UNCHECKED { arena().mutex().unlock(); }

}  // namespace remat::memory
