#include "device/cpu_allocator.h"

#include <atomic>
#include <string>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <remat/error.h>

#include "device/cpu_blocks.h"
#include "device/cpu_ledger.h"
#include "device/file_blocks.h"
#include "memory/allocation_observer.h"
#include "memory/serial_number.h"
#include "memory/thread_bytes.h"

namespace remat::memory {
namespace {

/// Above PyTorch's own (0) and what extensions commonly choose.
constexpr uint8_t kPriority = 128;

[[noreturn]] void fail(size_t bytes) {
  const int64_t alive = CpuLedger::instance().counted();
  if (c10::memoryProfilingEnabled()) {
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), static_cast<size_t>(alive),
                                     static_cast<size_t>(alive + cached_bytes()), c10::kCPU);
  }
  // c10's own type and words: programs look for them and retry with a smaller batch.
  TORCH_CHECK(false, "[memory] DefaultCPUAllocator: can't allocate memory: you tried to allocate ",
              std::to_string(bytes), " bytes, the system refused, and ", std::to_string(alive),
              " bytes of tensors are alive; use a smaller batch, or a session with a budget");
}

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release_block, c10::kCPU};
    if (bytes > PTRDIFF_MAX) fail(bytes);
    if (bytes >= kSmallestFileBlock) {
      if (const auto source = file_block_source()) return source->allocate(bytes);
    }
    CpuLedger& ledger = CpuLedger::instance();
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
    ThreadBytes::add(size);
    tell_allocated(c10::kCPU, block->data(), size);
    ledger.trim_cache();
    ledger.report_to_profiler(block->data(), size);
    return {block->data(), block->data(), &release_block, c10::kCPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

void before_fork() {
  CpuLedger::instance().before_fork();
  lock_observers();
  lock_blocks();
}

void after_fork_in_parent() {
  unlock_blocks();
  unlock_observers(/*in_child=*/false);
  CpuLedger::instance().after_fork_in_parent();
}

void after_fork_in_child() {
  unlock_blocks();
  unlock_observers(/*in_child=*/true);
  CpuLedger::instance().after_fork_in_child();
}

std::atomic<const c10::Allocator*> g_allocator = nullptr;

}  // namespace

void install_cpu_allocator() {
  static const CpuAllocator* const allocator = [] {
    static auto* const made = new CpuAllocator;
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    c10::SetCPUAllocator(made, kPriority);
    return made;
  }();
  g_allocator = allocator;
  check_cpu_allocator();
}

bool has_cpu_allocator() { return g_allocator != nullptr; }

void check_cpu_allocator() {
  if (c10::GetCPUAllocator() == g_allocator) return;
  throw Error("[start_accounting] another library, or another copy of remat, has put its allocator in the place of " +
              std::string("remat's (priority ") + std::to_string(kPriority) +
              "), so that no bytes are counted; load remat once, and without it");
}

}  // namespace remat::memory
