#include "device/cpu_allocator.h"

#include <algorithm>
#include <atomic>
#include <string>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <remat/budget.h>
#include <remat/error.h>

#include "device/cpu_blocks.h"
#include "device/cpu_ledger.h"
#include "device/file_blocks.h"
#include "memory/allocation_observer.h"
#include "memory/limits.h"
#include "memory/serial_number.h"
#include "memory/thread_bytes.h"

namespace remat::memory {
namespace {

/// Above PyTorch's own (0) and what extensions commonly choose.
constexpr uint8_t kPriority = 128;

/// Of what tensors could have, the part that a message leaves to others: holes between tensors, and libraries.
constexpr int64_t kPartForOthers = 6;

/// Where address space is limited, so much is left to what allocates by other ways and fails where there is none.
constexpr int64_t kSpareAddresses = int64_t{128} << 20;

/// `alive`: without the `bytes`.
[[noreturn]] void fail(size_t bytes, int64_t alive) {
  if (c10::memoryProfilingEnabled()) {
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), static_cast<size_t>(alive),
                                     static_cast<size_t>(alive + cached_bytes()), c10::kCPU);
  }
  const AddressSpace space = address_space();
  std::string message = "[memory] DefaultCPUAllocator: can't allocate memory: you tried to allocate " +
                        std::to_string(bytes) + " bytes, the system refused, and " + std::to_string(alive) +
                        " bytes of tensors are alive";
  if (space.limit != INT64_MAX) {
    message += "; the process may map " + format_bytes(space.limit) + " (" + space.name +
               "), code and libraries included, and has " + format_bytes(space.left()) + " left";
  }
  const int64_t budget = CpuLedger::instance().enforced_limit();
  const int64_t own = alive + cached_bytes(), all = own + std::min(left_for_tensors().bytes, INT64_MAX - own);
  const int64_t room = all - all / kPartForOthers;
  if (budget != INT64_MAX && room < budget) {
    message += "; the budget of " + format_exact_bytes(budget) + " is more than there is: give " + format_bytes(room) +
               ", or use a smaller batch";
  } else if (budget == INT64_MAX && room > own) {
    message += "; give a session (remat::Session, remat.wrap()) a budget of " + format_bytes(room) +
               ", or use a smaller batch";
  } else {
    message +=
        "; use a smaller batch or model, or keep the optimizer's state in a file (remat::PagedOptimizer, "
        "remat.paged())";
  }
  // c10's own type and words: programs look for them and retry with a smaller batch.
  TORCH_CHECK(false, message);
}

/// Where the system has refused `bytes`, which are counted.
Block* allocate_after_evictions(size_t bytes) {
  CpuLedger& ledger = CpuLedger::instance();
  const auto size = static_cast<int64_t>(bytes);
  try {
    int64_t spare = kSpareAddresses;
    for (;;) {
      release_cache();
      if (Block* const block = allocate_block(bytes, spare)) return block;
      if (spare == 0) fail(bytes, ledger.counted() - size);
      if (!ledger.evict_for(size)) spare = 0;
    }
  } catch (...) {
    ledger.cancel(size);
    throw;
  }
}

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release_block, c10::kCPU};
    if (bytes > PTRDIFF_MAX) fail(bytes, CpuLedger::instance().counted());
    if (bytes >= kSmallestFileBlock) {
      if (const auto source = file_block_source()) return source->allocate(bytes);
    }
    CpuLedger& ledger = CpuLedger::instance();
    const auto size = static_cast<int64_t>(bytes);
    int64_t alive = ledger.charge(size);
    Block* block = allocate_block(bytes, kSpareAddresses);
    if (block == nullptr) {
      block = allocate_after_evictions(bytes);
      alive = ledger.counted();
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
