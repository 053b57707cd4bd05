// The ledger of a CUDA device, on top of PyTorch's caching allocator.
//
// NOT RUN YET: this file has been compiled against the headers of torch 2.13 and CUDA 13, and never been executed.
// Open:
//  - The caching allocator calls back with its own lock held, so reclaim() runs under it. A thread that holds a lock
//    that a reclaimer takes, and frees a CUDA tensor under it, can deadlock with that.
//  - The callback does not know the size of the request. make_room() goes by the largest one seen, or an eighth of the
//    limit, so a request that is the largest so far can be refused though more could have been given up. The limit of a
//    share rises by that guess.
//  - Bytes are those of the allocator's blocks (requests rounded up to 512 bytes).
#include "memory/cuda.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <remat/error.h>

#include "memory/enforcements.h"
#include "memory/peak.h"

namespace remat::memory {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;
using c10::CachingDeviceAllocator::TraceEntry;

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
/// What the caching allocator takes from the device at once, at least, for a large request.
constexpr int64_t kSegment = int64_t{20} << 20;
constexpr size_t kMostDevices = 64;

class CudaLedger final : public DeviceLedger {
 public:
  explicit CudaLedger(c10::DeviceIndex index) : index_(index) {
    reset_step();
    const c10::cuda::CUDAGuard guard(index);
    size_t free = 0;
    size_t total = 0;
    if (const cudaError_t error = cudaMemGetInfo(&free, &total); error != cudaSuccess) {
      throw Error("[memory] the size of cuda:" + std::to_string(index) +
                  " cannot be read: " + cudaGetErrorString(error) + "; check the device with nvidia-smi");
    }
    total_ = static_cast<int64_t>(total);
  }

  int64_t current() override { return stats().allocated_bytes[kAll].current; }
  int64_t peak() const override { return stats().allocated_bytes[kAll].peak; }
  void reset_peak() override { caching::resetPeakStats(index_); }
  bool hold(int64_t) noexcept override { return false; }  // only what is on the CPU is packed
  void release(int64_t) noexcept override {}

  /// The caching allocator's statistics have always counted everything.
  int64_t adopt(c10::StorageImpl&) override { return 0; }

  std::unique_ptr<Enforcement> enforce(int64_t limit, Reclaimer& reclaimer) override {
    auto enforcement = std::make_unique<FractionOfDevice>(*this, enforcements_.enforce(limit, reclaimer));
    apply_fraction();
    return enforcement;
  }
  void set_limit(const Reclaimer& reclaimer, int64_t limit) override {
    enforcements_.set_limit(reclaimer, limit);
    apply_fraction();
  }
  int64_t enforced_limit() const override { return enforcements_.smallest(); }

  int64_t device_limit() const override { return total_; }
  int64_t standing_limit() const override { return standing_limit_.load(std::memory_order_relaxed); }
  void set_standing_limit(std::optional<int64_t> bytes) override { standing_limit_ = bytes.value_or(INT64_MAX); }
  int64_t cached() const override {
    const auto now = stats();
    return now.reserved_bytes[kAll].current - now.allocated_bytes[kAll].current;
  }
  void release_cached() override { caching::emptyCache(); }

  /// The allocator found no cached block. True if something was freed, so that it looks again.
  bool make_room() {
    const int64_t limit = enforced_limit();
    if (limit == INT64_MAX) return false;
    const int64_t request = std::max({largest_.load(std::memory_order_relaxed), kSegment, limit / 8});
    const int64_t missing = stats().reserved_bytes[kAll].current + request - limit;
    return missing > 0 && enforcements_.reclaim(std::min(missing, request));
  }

  void refuse(int64_t request) {
    raise_to(largest_, request);
    enforcements_.refuse(current() + request, request);
  }

  void trace(const TraceEntry& entry) {
    const auto bytes = static_cast<int64_t>(entry.size_);
    if (entry.action_ == TraceEntry::ALLOC) {
      raise_to(largest_, bytes);
      raise_step_peak(alive_ += bytes);
      if (!FrozenPlain::active()) add_plain(bytes);
    } else if (entry.action_ == TraceEntry::FREE_REQUESTED) {
      alive_ -= bytes;
      if (!FrozenPlain::active()) forget_plain(bytes);
    }
  }

 private:
  /// The allocator's own fraction caps tensors and cache together: the hard limit.
  class FractionOfDevice final : public Enforcement {
   public:
    FractionOfDevice(CudaLedger& ledger, std::unique_ptr<Enforcement> inner)
        : ledger_(ledger), inner_(std::move(inner)) {}
    ~FractionOfDevice() override {
      inner_.reset();
      ledger_.apply_fraction();
    }

   private:
    CudaLedger& ledger_;
    std::unique_ptr<Enforcement> inner_;
  };

  void reset_step() override {
    alive_ = current();
    reset_step_to(alive_);
  }

  c10::CachingDeviceAllocator::DeviceStats stats() const { return caching::getDeviceStats(index_); }

  void apply_fraction() {
    const MutexLock lock(fraction_mutex_);
    const int64_t limit = std::min(enforced_limit(), total_);
    if (!enforcing_) before_ = caching::getMemoryFraction(index_);
    enforcing_ = limit < total_;
    const double ours = static_cast<double>(limit) / static_cast<double>(total_);
    caching::setMemoryFraction(enforcing_ ? std::min(before_, ours) : before_, index_);
  }

  c10::DeviceIndex index_;
  int64_t total_ = 0;
  std::atomic<int64_t> alive_{0};  ///< as traced
  std::atomic<int64_t> largest_{0};
  std::atomic<int64_t> standing_limit_{INT64_MAX};
  Enforcements enforcements_;
  Mutex fraction_mutex_;
  bool enforcing_ REMAT_GUARDED_BY(fraction_mutex_) = false;
  double before_ REMAT_GUARDED_BY(fraction_mutex_) = 1;  ///< the fraction that the user had set
};

/// Filled once for each device, never emptied: tensors may outlive static destruction.
std::array<std::atomic<CudaLedger*>, kMostDevices>& ledgers() {
  static std::array<std::atomic<CudaLedger*>, kMostDevices> ledgers{};
  return ledgers;
}

CudaLedger* existing(int64_t index) {
  return index >= 0 && index < static_cast<int64_t>(kMostDevices) ? ledgers()[static_cast<size_t>(index)].load()
                                                                  : nullptr;
}

class FreeMemory final : public c10::FreeMemoryCallback {
 public:
  bool Execute() override {
    CudaLedger* ledger = existing(c10::cuda::current_device());
    return ledger != nullptr && ledger->make_room();
  }
};

void attach() {
  caching::attachOutOfMemoryObserver([](int64_t device, size_t request, size_t, size_t) {
    if (CudaLedger* ledger = existing(device)) ledger->refuse(static_cast<int64_t>(request));
  });
  caching::attachAllocatorTraceTracker([](const TraceEntry& entry) {
    if (CudaLedger* ledger = existing(entry.device_)) ledger->trace(entry);
  });
}

}  // namespace

DeviceLedger& cuda_ledger(c10::Device device) {
  const c10::DeviceIndex index = device.has_index() ? device.index() : c10::cuda::current_device();
  const c10::DeviceIndex count = c10::cuda::device_count();
  if (index < 0 || index >= count || static_cast<size_t>(index) >= kMostDevices) {
    throw Error("[memory] there is no device cuda:" + std::to_string(index) + "; devices are " + std::to_string(count));
  }
  static Mutex mutex;
  const MutexLock lock(mutex);
  static const bool attached = (attach(), true);
  static_cast<void>(attached);
  std::atomic<CudaLedger*>& ledger = ledgers()[static_cast<size_t>(index)];
  if (ledger == nullptr) ledger = new CudaLedger(index);
  return *ledger;
}

}  // namespace remat::memory

namespace c10 {
REGISTER_FREE_MEMORY_CALLBACK("remat", remat::memory::FreeMemory);
}  // namespace c10
