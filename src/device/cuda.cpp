// CUDA: an allocator that asks the devices' ledgers stands before PyTorch's caching one.
//
// Requests are counted and limited to the byte, before the caching allocator is asked and with none of its locks held.
// What it reserves of the device (tensors, rounding, free blocks) is kept under the same limit by its own memory
// fraction: where it finds no block within that, values are evicted until it does, or the step is refused.
#include <algorithm>
#include <atomic>
#include <memory>
#include <type_traits>
#include <utility>

#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/util/Exception.h>

#include <remat/error.h>

#include "device/counted_ledger.h"
#include "device/delegating_cuda_allocator.h"
#include "device/device.h"
#include "device/ledger_table.h"
#include "memory/allocation_observer.h"
#include "memory/last_contents.h"

namespace remat::memory {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;
using c10::CachingDeviceAllocator::TraceEntry;

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
/// What the caching allocator takes from the device at once: for requests below a MiB, and for larger ones at least.
constexpr int64_t kSmall = int64_t{1} << 20;
constexpr int64_t kSmallSegment = int64_t{2} << 20;
constexpr int64_t kLargeSegment = int64_t{20} << 20;

class CudaLedger final : public CountedLedger {
 public:
  CudaLedger(caching::CUDAAllocator& allocator, c10::DeviceIndex index)
      : allocator_(allocator), index_(index), total_(static_cast<int64_t>(allocator.getMemoryInfo(index).second)) {
    const auto now = stats();
    add(now.requested_bytes[kAll].current);
    reserved_ = now.reserved_bytes[kAll].current;
    reset_step();
  }

  c10::Device device() const { return {c10::kCUDA, index_}; }

  /// Under the caching allocator's lock.
  void note(const TraceEntry& entry, bool charged) noexcept {
    const auto bytes = static_cast<int64_t>(entry.size_);
    const auto* const data = reinterpret_cast<const void*>(entry.addr_);  // NOLINT(performance-no-int-to-ptr)
    if (entry.action_ == TraceEntry::ALLOC && !charged) {                 // by a graph's pool, or while one is captured
      add(bytes);
      if (!FrozenPlain::active()) add_plain(bytes);
      tell_allocated(device(), data, bytes);
    } else if (entry.action_ == TraceEntry::FREE_REQUESTED) {
      tell_freed(device(), data, bytes);
      tell_end_on_device(data);
      discharge(bytes);
    } else if (entry.action_ == TraceEntry::SEGMENT_ALLOC || entry.action_ == TraceEntry::SEGMENT_MAP) {
      raise_step_reserved(reserved_ += bytes);
    } else if (entry.action_ == TraceEntry::SEGMENT_FREE || entry.action_ == TraceEntry::SEGMENT_UNMAP) {
      reserved_ -= bytes;
    }
  }

  // Ledger.

  int64_t reserved() const override { return reserved_.load(std::memory_order_relaxed); }
  /// The caching allocator's statistics have counted older tensors.
  int64_t adopt(c10::StorageImpl&) override { return 0; }
  bool hold(int64_t) noexcept override { return false; }  // only what is on the CPU is packed
  std::unique_ptr<Enforcement> enforce(int64_t limit, Reclaimer& reclaimer) override {
    auto enforcement = std::make_unique<FractionOfDevice>(*this, CountedLedger::enforce(limit, reclaimer));
    apply_fraction();
    if (reserved() > enforced_limit()) allocator_.emptyCache();
    return enforcement;
  }

  // DeviceLedger.
  int64_t device_limit() const override { return total_; }
  int64_t cached() const override {
    const auto now = stats();
    return now.reserved_bytes[kAll].current - now.allocated_bytes[kAll].current;
  }
  void release_cached() override { allocator_.emptyCache(); }

 private:
  /// The caching allocator has found no block within its fraction. True: it may look again, since the fraction has
  /// risen or values were evicted. Throws BudgetError if it is a limit that leaves no room, and not the device itself.
  bool yield(int64_t request) override {
    const int64_t needed = reserved() + std::max(request, request < kSmall ? kSmallSegment : kLargeSegment);
    const bool is_soft = enforcements().may_reserve_more();
    const int64_t most = enforced_limit() + (is_soft ? kLargeSegment : 0);
    if (raise_fraction(std::min(needed, most)) || CountedLedger::yield(request)) return true;
    return (is_soft || enforcements().refuse(needed, request)) && raise_fraction(needed);
  }

  uint64_t rises_of_device_limit() override {
    const MutexLock lock(fraction_mutex_);
    return rises_;
  }

  /// While a limit is enforced, the caching allocator's fraction is the limit's.
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

  c10::CachingDeviceAllocator::DeviceStats stats() const { return allocator_.getDeviceStats(index_); }

  void apply_fraction() { set_fraction(enforced_limit()); }

  void set_fraction(int64_t limit) {
    const MutexLock lock(fraction_mutex_);
    limit = std::min(limit, total_);
    if (limit == applied_) return;
    if (applied_ == total_) user_fraction_ = allocator_.getMemoryFraction(index_);
    if (limit > applied_) ++rises_;
    applied_ = limit;
    const double ours = static_cast<double>(limit) / static_cast<double>(total_);
    allocator_.setMemoryFraction(limit < total_ ? std::min(user_fraction_, ours) : user_fraction_, index_);
  }

  /// A share's limit rises with each allocation; the fraction, which costs a call of the driver, follows where it is
  /// in the way. False if it is no smaller.
  bool raise_fraction(int64_t limit) {
    {
      const MutexLock lock(fraction_mutex_);
      if (applied_ >= std::min(limit, total_)) return false;
    }
    set_fraction(limit);
    return true;
  }

  caching::CUDAAllocator& allocator_;
  const c10::DeviceIndex index_;
  const int64_t total_;
  std::atomic<int64_t> reserved_{0};
  Mutex fraction_mutex_;
  int64_t applied_ REMAT_GUARDED_BY(fraction_mutex_) = total_;  ///< the limit that the fraction is of
  uint64_t rises_ REMAT_GUARDED_BY(fraction_mutex_) = 0;
  double user_fraction_ REMAT_GUARDED_BY(fraction_mutex_) = 1;  ///< that was set before
};

LedgerTable<CudaLedger> g_ledgers;

const void* address_of(const c10::DataPtr& data) { return data.get(); }
const void* address_of(const void* data) { return data; }

class AskingAllocator final : public DelegatingCudaAllocator {
 public:
  using DelegatingCudaAllocator::DelegatingCudaAllocator;

  c10::DataPtr allocate(size_t bytes) override {
    return ask(bytes, [&] { return inner().allocate(bytes); });
  }
  void* raw_alloc(size_t bytes) override {
    return ask(bytes, [&] { return inner().raw_alloc(bytes); });
  }
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    return ask(bytes, [&] { return inner().raw_alloc_with_stream(bytes, stream); });
  }
  c10::DataPtr allocateWithAddress(size_t bytes, void* address) override {
    return ask(bytes, [&] { return inner().allocateWithAddress(bytes, address); });
  }

  /// Is this thread in an allocation that the ledger has counted before the caching allocator was asked?
  static bool charged() noexcept { return charged_; }

  static bool is_captured() {
    return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
  }

 private:
  struct Charged {
    Charged() noexcept { charged_ = true; }
    ~Charged() { charged_ = false; }
    Charged(const Charged&) = delete;
    Charged& operator=(const Charged&) = delete;
  };

  template <class Allocate>
  std::invoke_result_t<Allocate> ask(size_t bytes, Allocate allocate) {
    // While a graph is captured nothing may be evicted, since replays of it would read what comes in its place.
    if (bytes == 0 || charged_ || is_captured()) return allocate();
    CudaLedger& ledger = g_ledgers[c10::cuda::current_device()];
    const auto size = static_cast<int64_t>(bytes);
    auto made = ledger.ask(size, [&] {
      const Charged charged;
      return allocate();
    });
    tell_allocated(ledger.device(), address_of(made), size);
    return made;
  }

  static thread_local bool charged_;
};

thread_local bool AskingAllocator::charged_ = false;

/// Never undone: tensors have deleters of PyTorch's allocator, and may be freed at any time.
void install() {
  at::globalContext().lazyInitDevice(c10::kCUDA);
  caching::CUDAAllocator& inner = *caching::get();
  g_ledgers.fill(c10::cuda::device_count(), [&](c10::DeviceIndex index) { return new CudaLedger(inner, index); });
  inner.attachAllocatorTraceTracker([](const TraceEntry& entry) {
    CudaLedger* const ledger = g_ledgers.find(entry.device_);
    if (ledger != nullptr) ledger->note(entry, AskingAllocator::charged());
  });
  auto* const asking = new AskingAllocator(inner);
  caching::allocator.store(asking);
  c10::SetAllocator(c10::kCUDA, asking, /*priority=*/128);
}

std::atomic<bool> g_installed = false;

}  // namespace
}  // namespace remat::memory

namespace remat::device {
namespace {

class Cuda final : public Kind {
 public:
  void start_accounting(c10::Device) const override {
    if (c10::cuda::device_count() == 0) throw Error("[memory] there is no CUDA device; use cpu");
    static std::once_flag once;
    std::call_once(once, [] {
      memory::install();
      memory::g_installed = true;
    });
  }
  bool is_counted() const override { return memory::g_installed; }
  memory::DeviceLedger& ledger(c10::Device device) const override {
    start_accounting(device);
    return memory::g_ledgers.get(indexed(device).index(), device);
  }
  bool is_captured() const override { return memory::AskingAllocator::is_captured(); }
  /// Those of a graph that is captured have no time.
  std::optional<c10::Event> mark(c10::Device device) const override {
    return is_captured() ? std::nullopt : Kind::mark(device);
  }
};

}  // namespace

const Kind& cuda() {
  static const auto* const kind = new Cuda;
  return *kind;
}

}  // namespace remat::device
