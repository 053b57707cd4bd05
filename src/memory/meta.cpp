#include "memory/meta.h"

#include <atomic>
#include <memory>
#include <mutex>

#include <c10/core/Allocator.h>

#include "memory/allocation_observer.h"
#include "memory/counted_ledger.h"

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

}  // namespace

DeviceLedger& meta_ledger() { return ledger(); }

static std::atomic<bool> g_installed = false;

void install_meta_allocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::SetAllocator(c10::kMeta, new MetaAllocator, /*priority=*/128);
    g_installed = true;
  });
}

bool has_meta_allocator() { return g_installed; }

}  // namespace remat::memory
