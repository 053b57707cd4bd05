#include "device/cpu_ledger.h"

#include <algorithm>
#include <string>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "device/cpu_blocks.h"
#include "memory/allocation_observer.h"
#include "memory/last_contents.h"
#include "memory/limits.h"
#include "memory/thread_bytes.h"

namespace remat::memory {
namespace {

/// Free blocks between live ones may take this part of an enforced limit on top of it: to fill them with other sizes
/// costs page faults (cpu_allocator.md).
constexpr int64_t kShareOfHoles = 8;

/// To read a control group's files takes 0.1 ms, as much as a hundred small operators. Limits change seldom.
constexpr std::chrono::seconds kLimitsLast{1};

/// Of the address space that tensors could have, what is left to threads that start later, and to libraries.
constexpr int64_t kAddressesOfOthers = int64_t{256} << 20, kShareOfOthers = 8;

/// Of `tensors` bytes that are alive, and those that could be mapped beside them. `before`: the last such limit, which
/// stays where others have mapped some of what was left to them. INT64_MAX: the process has no limit.
int64_t limit_by_address_space(int64_t tensors, int64_t before) {
  const AddressSpace space = address_space();
  if (space.limit == INT64_MAX) return INT64_MAX;
  const int64_t all = tensors + cached_bytes() + clean_bytes() + space.left();
  const int64_t of_others = std::min(kAddressesOfOthers, all / kShareOfOthers);
  const bool holds = before <= all - of_others / 2 && before >= all - 2 * of_others;
  return holds ? before : std::max<int64_t>(all - of_others, 1);
}

}  // namespace

CpuLedger& CpuLedger::instance() {
  static auto* ledger = new CpuLedger;
  return *ledger;
}

CpuLedger::CpuLedger() : adopted_(&release_block, &release_older) { ask_limits(); }

void CpuLedger::ask_limits() const {
  const int64_t by_addresses = limit_by_address_space(counted(), address_limit_.load(std::memory_order_relaxed));
  address_limit_.store(by_addresses, std::memory_order_relaxed);
  device_limit_.store(std::min({physical_memory(), cgroup_limit(), by_addresses}), std::memory_order_relaxed);
  asked_at_.store(std::chrono::steady_clock::now(), std::memory_order_relaxed);
}

void CpuLedger::before_fork() {
  enforcements().before_fork();
  adopted_.mutex().lock();
}

void CpuLedger::after_fork_in_parent() {
  adopted_.mutex().unlock();
  enforcements().after_fork_in_parent();
}

void CpuLedger::after_fork_in_child() {
  adopted_.mutex().unlock();
  enforcements().after_fork_in_child();
  forget_steps();
}

int64_t CpuLedger::footprint_limit() const noexcept {
  const int64_t enforced = enforced_limit();
  const int64_t with_holes = enforced > INT64_MAX / 2 ? enforced : enforced + enforced / kShareOfHoles;
  return std::min(with_holes, device_limit_.load(std::memory_order_relaxed));
}

bool CpuLedger::sweep() noexcept {
  const int64_t gone = adopted_.sweep();
  // Freed by the user, not by remat: plain would have freed them too, whatever this thread is doing now.
  ThreadBytes::add(-gone);
  cancel(gone);
  forget_plain(gone);
  return gone > 0;
}

int64_t CpuLedger::adopt(c10::StorageImpl& storage) {
  const int64_t bytes = adopted_.adopt(storage);
  if (bytes == 0) return 0;
  sweep();
  enforcements().meet_older(bytes);
  // The bytes exist, so they are counted in any case. But first the reclaimers may make room for them.
  while (counted() - enforced_limit() + bytes > 0 && enforcements().reclaim(bytes)) {
  }
  add(bytes);
  ThreadBytes::add(bytes);
  add_plain(bytes);  // in plain too, even if a replay is the first to meet the storage
  return bytes;
}

void CpuLedger::trim_cache() const noexcept {
  if (cached_bytes() > 0) memory::trim_cache(footprint_limit() - counted());
}

void CpuLedger::report_to_profiler(void* data, int64_t bytes) const {
  if (!c10::memoryProfilingEnabled()) return;
  const auto alive = static_cast<size_t>(counted());
  c10::reportMemoryUsageToProfiler(data, bytes, alive, alive + static_cast<size_t>(cached_bytes()), c10::kCPU);
}

MemoryLeft left_for_tensors() {
  MemoryLeft left = memory_left();
  const AddressSpace space = address_space();
  if (space.limit == INT64_MAX || space.left() + clean_bytes() >= left.bytes) return left;
  left.bytes = space.left() + clean_bytes();
  left.where = std::string("the process's address space (") + space.name + ")";
  return left;
}

void release_block(void* data) noexcept {
  if (data == nullptr) return;
  CpuLedger& ledger = CpuLedger::instance();
  Block* const block = Block::of(data);
  const auto bytes = static_cast<int64_t>(block->bytes);
  if (std::atomic_ref(block->watched).load(std::memory_order_relaxed)) tell_end(data, block->bytes);
  tell_freed(c10::kCPU, data, bytes);
  free_block(block);  // first: the ledger must never show headroom that is not there yet
  ThreadBytes::add(-bytes);
  ledger.discharge(bytes);
  ledger.report_to_profiler(data, -bytes);  // NOLINT(clang-analyzer-unix.Malloc): the address alone
}

void release_older(void* context) noexcept {
  CpuLedger& ledger = CpuLedger::instance();
  const int64_t bytes = ledger.adopted_.forget(context);
  tell_end(context, static_cast<size_t>(bytes));
  c10::GetDefaultCPUAllocator()->raw_deleter()(context);
  ThreadBytes::add(-bytes);
  ledger.discharge(bytes);
}

bool CpuLedger::hold(int64_t bytes) noexcept {
  if (!CountedLedger::hold(bytes)) return false;
  ThreadBytes::add(bytes);
  return true;
}

void CpuLedger::release(int64_t bytes) noexcept {
  ThreadBytes::add(-bytes);
  CountedLedger::release(bytes);
}

std::unique_ptr<Ledger::Enforcement> CpuLedger::enforce(int64_t limit, Reclaimer& reclaimer) {
  auto enforcement = CountedLedger::enforce(limit, reclaimer);
  trim_cache();
  return enforcement;
}

int64_t CpuLedger::device_limit() const {
  if (std::chrono::steady_clock::now() - asked_at_.load(std::memory_order_relaxed) >= kLimitsLast) ask_limits();
  return device_limit_.load(std::memory_order_relaxed);
}

int64_t CpuLedger::cached() const { return cached_bytes(); }
void CpuLedger::release_cached() { release_cache(); }

}  // namespace remat::memory
