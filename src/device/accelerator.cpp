// Devices that come to PyTorch from outside (PrivateUse1): whatever allocator they have, one that asks stands before
// it.
#include <atomic>
#include <memory>
#include <mutex>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>
#include <remat/error.h>
#include <torch/library.h>

#include "device/counted_ledger.h"
#include "device/device.h"
#include "device/ledger_table.h"
#include "device/unobserved.h"
#include "memory/allocation_observer.h"
#include "memory/last_contents.h"
#include "memory/serial_number.h"
#include "memory/silent_warnings.h"
#include "util/mutex.h"

namespace remat::memory {
namespace {

constexpr c10::DeviceType kType = c10::kPrivateUse1;
constexpr uint8_t kPriority = 128;  ///< above what a device's own allocator has
constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

class AcceleratorLedger final : public CountedLedger {
 public:
  AcceleratorLedger(c10::DeviceAllocator& allocator, c10::DeviceIndex index) : allocator_(allocator), index_(index) {}

  c10::Device device() const { return {kType, index_}; }

  void note_reserved() noexcept { raise_step_reserved(reserved()); }

  int64_t adopt(c10::StorageImpl& storage) override;
  bool hold(int64_t) noexcept override { return false; }  // only what is on the CPU is packed
  int64_t reserved() const override { return allocator_.getDeviceStats(index_).reserved_bytes[kAll].current; }

  int64_t device_limit() const override {
    try {
      return static_cast<int64_t>(allocator_.getMemoryInfo(index_).second);
    } catch (const c10::NotImplementedError&) {  // its allocator says when there is no more
      return INT64_MAX;
    }
  }
  int64_t cached() const override {
    const auto now = allocator_.getDeviceStats(index_);
    return now.reserved_bytes[kAll].current - now.allocated_bytes[kAll].current;
  }
  void release_cached() override { allocator_.emptyCache(); }

 private:
  c10::DeviceAllocator& allocator_;
  const c10::DeviceIndex index_;
};

LedgerTable<AcceleratorLedger> g_ledgers;
std::atomic<bool> g_installed = false;

/// What a tensor has as the context of its memory.
struct Block {
  c10::DataPtr data;  ///< the device's own
  int64_t bytes = 0;
  uint64_t serial = 0;
};

void release_block(void* context) noexcept {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  if (block == nullptr) return;
  AcceleratorLedger& ledger = g_ledgers[block->data.device().index()];
  tell_freed(ledger.device(), block->data.get(), block->bytes);
  tell_end_on_device(block->data.get());
  block->data.clear();  // first: the ledger must never show headroom that is not there yet
  ledger.discharge(block->bytes);
}

const Block* block_of(const c10::DataPtr& data) {
  return data.get_deleter() == &release_block ? static_cast<const Block*>(data.get_context()) : nullptr;
}

/// Memory that the device's allocator gave before ours stood in front of it gets a context of ours.
int64_t AcceleratorLedger::adopt(c10::StorageImpl& storage) {
  if (storage.device() != device() || block_of(storage.data_ptr()) != nullptr || storage.data() == nullptr) return 0;
  if (storage.data_ptr().get_context() == nullptr) return 0;  // it is somebody else's memory
  static Mutex mutex;                                         // two threads may meet the same storage at once
  const MutexLock lock(mutex);
  if (block_of(storage.data_ptr()) != nullptr) return 0;
  const auto bytes = static_cast<int64_t>(storage.nbytes());
  auto* const block = new Block{{}, bytes, next_serial()};
  block->data = storage.set_data_ptr({storage.mutable_data(), block, &release_block, device()});
  enforcements().meet_older(bytes);
  while (counted() - enforced_limit() + bytes > 0 && enforcements().reclaim(bytes)) {
  }
  add(bytes);
  add_plain(bytes);
  return bytes;
}

class AskingAllocator final : public c10::DeviceAllocator {
 public:
  explicit AskingAllocator(c10::DeviceAllocator& inner) : inner_(inner) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return inner_.allocate(bytes);
    const auto size = static_cast<int64_t>(bytes);
    AcceleratorLedger& ledger = g_ledgers[c10::impl::VirtualGuardImpl(kType).getDevice().index()];
    auto block = ledger.ask(size, [&] {
      return std::make_unique<Block>(Block{inner_.allocate(bytes), size, next_serial()});
    });
    ledger.note_reserved();
    void* const data = block->data.get();
    tell_allocated(ledger.device(), data, size);
    return {data, block.release(), &release_block, ledger.device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }  // a context is no address
  void copy_data(void* to, const void* from, size_t bytes) const override { inner_.copy_data(to, from, bytes); }
  bool initialized() override { return inner_.initialized(); }
  void emptyCache(c10::MempoolId_t pool) override { inner_.emptyCache(pool); }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    const Block* const block = block_of(data);
    inner_.recordStream(block == nullptr ? data : block->data, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    return inner_.getDeviceStats(index);
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override { inner_.resetAccumulatedStats(index); }
  void resetPeakStats(c10::DeviceIndex index) override { inner_.resetPeakStats(index); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override { return inner_.getMemoryInfo(index); }

 private:
  c10::DeviceAllocator& inner_;
};

/// The device's own record_stream() looks for memory of its allocator's.
void record_stream(at::Tensor& self, c10::Stream stream) {
  c10::getDeviceAllocator(kType)->recordStream(self.storage().data_ptr(), stream);
}

/// Does the device take the memory of its tensors from the allocator that PyTorch knows for it?
bool asks_ours() {
  const Unobserved unobserved;
  const c10::Device device(kType, c10::impl::VirtualGuardImpl(kType).getDevice().index());
  return block_of(at::empty({1}, device).storage().data_ptr()) != nullptr;
}

void install() {
  at::globalContext().lazyInitDevice(kType);
  auto* const inner = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(kType));
  if (inner == nullptr) {
    throw Error("[memory] the allocator of " + c10::DeviceTypeName(kType, /*lower_case=*/true) +
                " is no c10::DeviceAllocator, so that memory there cannot be counted; use cpu");
  }
  g_ledgers.fill(c10::impl::VirtualGuardImpl(kType).deviceCount(),
                 [&](c10::DeviceIndex index) { return new AcceleratorLedger(*inner, index); });
  c10::SetAllocator(kType, new AskingAllocator(*inner), kPriority);
  auto undo = c10::make_scope_exit([&] { c10::SetAllocator(kType, inner, kPriority); });
  if (!asks_ours()) {
    throw Error("[memory] tensors on " + c10::DeviceTypeName(kType, /*lower_case=*/true) +
                " take their memory from an allocator other than the one that PyTorch has for it "
                "(c10::GetAllocator()), so that it cannot be counted; use cpu");
  }
  undo.release();
  static auto* const kernels =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  const SilentWarnings silent;  // that the device has one
  kernels->impl("record_stream", &record_stream);
  g_installed = true;
}

}  // namespace
}  // namespace remat::memory

namespace remat::device {
namespace {

class Accelerator final : public Kind {
 public:
  void start_accounting(c10::Device) const override {
    static std::once_flag once;
    std::call_once(once, memory::install);
  }
  bool is_counted() const override { return memory::g_installed; }
  memory::DeviceLedger& ledger(c10::Device device) const override {
    start_accounting(device);
    return memory::g_ledgers.get(indexed(device).index(), device);
  }
  bool adopts() const override { return is_counted(); }
  uint64_t serial_of(const c10::StorageImpl& storage) const noexcept override {
    const memory::Block* const block = memory::block_of(storage.data_ptr());
    return block == nullptr ? 0 : block->serial;
  }
};

}  // namespace

const Kind& accelerator() {
  static const auto* const kind = new Accelerator;
  return *kind;
}

}  // namespace remat::device
