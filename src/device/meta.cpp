// The meta device, whose tensors have sizes and no memory: what a step would take. Meta tensors that are older than its
// allocator are not counted.
#include <atomic>
#include <memory>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/Allocator.h>

#include "device/counted_ledger.h"
#include "device/device.h"
#include "device/storage_over.h"
#include "memory/allocation_observer.h"

namespace remat::memory {
namespace {

/// Counts, and enforces nothing.
class MetaLedger final : public CountedLedger {
 public:
  int64_t adopt(c10::StorageImpl& /*storage*/) override { return 0; }
  std::unique_ptr<Enforcement> enforce(int64_t /*limit*/, Reclaimer& /*reclaimer*/) override {
    return std::make_unique<Enforcement>();
  }
  int64_t device_limit() const override { return INT64_MAX; }
  int64_t standing_limit() const override { return INT64_MAX; }
  int64_t cached() const override { return 0; }
  void release_cached() override {}
};

MetaLedger& ledger() {
  static auto* ledger = new MetaLedger;  // tensors may outlive static destruction
  return *ledger;
}

/// Stands for memory: its address tells storages apart.
struct Block {
  int64_t bytes = 0;
};

void release_block(void* context) noexcept {
  if (context == nullptr) return;
  const auto* const block = static_cast<Block*>(context);
  tell_freed(c10::kMeta, block, block->bytes);
  ledger().discharge(block->bytes);
  delete block;
}

class MetaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release_block, c10::kMeta};
    auto* const block = new Block{static_cast<int64_t>(bytes)};
    ledger().confirm(block->bytes, ledger().charge(block->bytes));
    tell_allocated(c10::kMeta, block, block->bytes);
    // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): the deleter's
    return {block, block, &release_block, c10::kMeta};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_block; }
  void copy_data(void* /*to*/, const void* /*from*/, size_t /*bytes*/) const override {}
};

std::atomic<bool> g_installed = false;

}  // namespace
}  // namespace remat::memory

namespace remat::device {
namespace {

class Meta final : public Kind {
 public:
  void start_accounting(c10::Device) const override {
    static std::once_flag once;
    std::call_once(once, [] {
      c10::SetAllocator(c10::kMeta, new memory::MetaAllocator, /*priority=*/128);
      memory::g_installed = true;
    });
  }
  bool is_counted() const override { return memory::g_installed; }
  memory::DeviceLedger& ledger(c10::Device) const override { return memory::ledger(); }

  bool has_contents() const override { return false; }
  bool is_tried() const override { return true; }
  c10::Device indexed(c10::Device) const override { return c10::kMeta; }
  /// What a meta tensor stands for would draw from it.
  at::Generator default_generator(c10::Device) const override { return at::detail::getDefaultCPUGenerator(); }
  void synchronize(c10::Device) const override {}
  std::optional<c10::Event> mark(c10::Device) const override { return std::nullopt; }
  c10::intrusive_ptr<c10::StorageImpl> copy(const c10::StorageImpl& storage) const override {
    c10::Allocator& allocator = *c10::GetAllocator(c10::kMeta);
    return storage_over(storage.nbytes(), allocator.clone(storage.data(), storage.nbytes()), allocator);
  }
};

}  // namespace

const Kind& meta() {
  static const auto* const kind = new Meta;
  return *kind;
}

}  // namespace remat::device
