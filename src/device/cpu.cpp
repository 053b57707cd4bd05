// The CPU, where the library itself runs.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <ATen/CPUGeneratorImpl.h>

#include "device/allocation.h"
#include "device/arena.h"
#include "device/cpu_allocator.h"
#include "device/cpu_ledger.h"
#include "device/device.h"
#include "device/storage_over.h"
#include "device/vector_math.h"

namespace remat::device {
namespace {

/// Bytes behind the last address that allocators align to.
size_t alignment_of(const void* address) { return reinterpret_cast<uintptr_t>(address) % 64; }

/// With the same alignment: mv and dot sum in another order where that is another.
at::DataPtr copy_of_data(const c10::StorageImpl& storage, c10::Allocator& allocator) {
  const size_t bytes = storage.nbytes();
  const size_t offset = alignment_of(storage.data());
  if (offset == 0) return allocator.clone(storage.data(), bytes);
  at::DataPtr data = allocator.allocate(offset + bytes);
  auto* const begin = static_cast<std::byte*>(data.get()) + offset - alignment_of(data.get());
  std::memcpy(begin, storage.data(), bytes);
  const auto deleter = data.get_deleter();
  return {begin, data.release_context(), deleter, c10::kCPU};
}

class Cpu final : public Kind {
 public:
  void start_accounting(c10::Device) const override {
    make_first_calls_of_vector_math();
    memory::install_cpu_allocator();
  }
  bool is_counted() const override { return memory::has_cpu_allocator(); }
  void check_accounting() const override { memory::check_cpu_allocator(); }
  memory::DeviceLedger& ledger(c10::Device) const override { return memory::CpuLedger::instance(); }
  bool adopts() const override { return true; }
  uint64_t serial_of(const c10::StorageImpl& storage) const noexcept override {
    const bool counted = memory::is_own_memory(storage) && storage.data_ptr().get_context() != nullptr;
    return counted ? memory::Block::of(storage.data_ptr().get_context())->serial : 0;
  }

  bool is_tried() const override { return true; }
  c10::Device indexed(c10::Device) const override { return c10::kCPU; }
  at::Generator default_generator(c10::Device) const override { return at::detail::getDefaultCPUGenerator(); }
  void synchronize(c10::Device) const override {}
  std::optional<c10::Event> mark(c10::Device) const override { return std::nullopt; }
  c10::intrusive_ptr<c10::StorageImpl> copy(const c10::StorageImpl& storage) const override {
    c10::Allocator& allocator = *c10::GetAllocator(c10::kCPU);
    return storage_over(storage.nbytes(), copy_of_data(storage, allocator), allocator);
  }
};

}  // namespace

const Kind& cpu() {
  static const auto* const kind = new Cpu;
  return *kind;
}

}  // namespace remat::device
