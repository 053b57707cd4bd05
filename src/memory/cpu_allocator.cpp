#include "memory/cpu_allocator.h"

#include <atomic>
#include <cstdlib>
#include <mutex>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <remat/error.h>

#include "memory/allocation.h"
#include "memory/allocation_observer.h"
#include "memory/arena.h"
#include "memory/cpu_ledger.h"

namespace remat::memory {
namespace {

// Under a sanitizer every block goes to malloc, whose replacement there finds uses after free.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kSmallestLarge = SIZE_MAX;
#else
/// From here on blocks come from the arena. Below, malloc keeps and reuses pages well enough.
constexpr size_t kSmallestLarge = size_t{64} * 1024;
#endif

/// Above PyTorch's own (0) and what extensions commonly choose.
constexpr uint8_t kPriority = 128;

/// Never destroyed: tensors may outlive static destruction.
Arena& arena() noexcept {
  static auto* arena = new Arena;  // NOLINT(bugprone-unhandled-exception-at-new): nothing works without it
  return *arena;
}

Block* allocate_block(size_t bytes) noexcept {
  if (bytes >= kSmallestLarge) return arena().allocate(bytes);
  void* memory = nullptr;
  if (bytes > PTRDIFF_MAX || posix_memalign(&memory, alignof(Block), sizeof(Block) + bytes) != 0) return nullptr;
  auto* block = static_cast<Block*>(memory);
  block->bytes = bytes;
  block->region = nullptr;
  return block;
}

void report_to_profiler(void* data, int64_t bytes) {
  if (!c10::memoryProfilingEnabled()) return;
  const auto alive = static_cast<size_t>(CpuLedger::instance().counted());
  c10::reportMemoryUsageToProfiler(data, bytes, alive, alive + static_cast<size_t>(cached_bytes()), c10::kCPU);
}

[[noreturn]] void fail(size_t bytes) {
  const int64_t alive = CpuLedger::instance().counted();
  if (c10::memoryProfilingEnabled()) {
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), static_cast<size_t>(alive),
                                     static_cast<size_t>(alive + cached_bytes()), c10::kCPU);
  }
  // c10's own type and words: programs look for them and retry with a smaller batch.
  TORCH_CHECK(false, "[memory] DefaultCPUAllocator: can't allocate memory: you tried to allocate ", bytes,
              " bytes, the system refused, and ", alive,
              " bytes of tensors are alive; use a smaller batch, or a session with a budget");
}

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release_block, c10::kCPU};
    CpuLedger& ledger = CpuLedger::instance();
    if (bytes > PTRDIFF_MAX) fail(bytes);
    const auto size = static_cast<int64_t>(bytes);
    const int64_t alive = ledger.charge(size);
    Block* block = allocate_block(bytes);
    if (block == nullptr) {
      release_cache();
      block = allocate_block(bytes);
    }
    if (block == nullptr) {
      ledger.cancel(size);
      fail(bytes);
    }
    block->serial = next_serial();
    std::atomic_ref(block->watched).store(false, std::memory_order_relaxed);
    ledger.confirm(size, alive);
    tell_allocated(c10::kCPU, block->data(), size);
    trim_cache();
    report_to_profiler(block->data(), size);
    return {block->data(), block->data(), &release_block, c10::kCPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

void before_fork() {
  CpuLedger::instance().before_fork();
  lock_observers();
  arena().mutex().lock();
}

void after_fork_in_parent() {
  arena().mutex().unlock();
  unlock_observers(/*in_child=*/false);
  CpuLedger::instance().after_fork_in_parent();
}

void after_fork_in_child() {
  arena().mutex().unlock();
  unlock_observers(/*in_child=*/true);
  CpuLedger::instance().after_fork_in_child();
}

std::atomic<const c10::Allocator*> g_allocator = nullptr;

}  // namespace

void release_block(void* data) noexcept {
  if (data == nullptr) return;
  Block* const block = Block::of(data);
  const auto bytes = static_cast<int64_t>(block->bytes);
  if (std::atomic_ref(block->watched).load(std::memory_order_relaxed)) tell_end(data, block->bytes);
  tell_freed(c10::kCPU, data, bytes);
  // Free first: the ledger must never show room that is not there yet.
  if (block->region != nullptr) {
    arena().free(block);
  } else {
    std::free(block);
  }
  CpuLedger::instance().discharge(bytes);
  report_to_profiler(data, -bytes);  // NOLINT(clang-analyzer-unix.Malloc): the address alone
}

void install_cpu_allocator() {
  static const CpuAllocator* const allocator = [] {
    static CpuAllocator* const made = new CpuAllocator;
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    c10::SetCPUAllocator(made, kPriority);
    return made;
  }();
  g_allocator = allocator;
  check_cpu_allocator();
}

void check_cpu_allocator() {
  if (c10::GetCPUAllocator() == g_allocator) return;
  throw Error("[start_accounting] another library, or another copy of remat, has put its allocator in the place of " +
              std::string("remat's (priority ") + std::to_string(kPriority) +
              "), so that no bytes are counted; load remat once, and without it");
}

int64_t cached_bytes() noexcept { return arena().cached(); }

void release_cache() noexcept { arena().purge(SIZE_MAX); }

void trim_cache() noexcept {
  const CpuLedger& ledger = CpuLedger::instance();
  const int64_t cached = cached_bytes();
  // Written so that it cannot overflow where no limit is in force.
  const int64_t excess = cached - (ledger.footprint_limit() - ledger.counted());
  if (cached > 0 && excess > 0) arena().purge(static_cast<size_t>(excess));
}

bool owns(const void* address) noexcept { return arena().owns(address); }

}  // namespace remat::memory
