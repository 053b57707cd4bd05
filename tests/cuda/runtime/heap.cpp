#include "runtime/heap.h"

#include <sys/mman.h>

namespace remat::simulated_cuda {
namespace {

constexpr size_t kPage = 4096;

uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Heap& Heap::instance() {
  static auto* const heap = new Heap;
  return *heap;
}

bool Heap::take_locked(size_t bytes, int device) {
  size_t& used = used_.at(static_cast<size_t>(device));
  if (used + bytes > device_bytes()) return false;
  used += bytes;
  return true;
}

bool Heap::take(size_t bytes, int device) {
  const std::lock_guard lock(mutex_);
  return take_locked(bytes, device);
}

void Heap::give_back(size_t bytes, int device) {
  const std::lock_guard lock(mutex_);
  used_.at(static_cast<size_t>(device)) -= bytes;
}

size_t Heap::used(int device) {
  const std::lock_guard lock(mutex_);
  return used_.at(static_cast<size_t>(device));
}

void* Heap::allocate(size_t bytes, int device) {
  const bool on_host = device == kHost;
  bytes = rounded_up(bytes, on_host ? kPage : kGranule);
  const std::lock_guard lock(mutex_);
  if (!on_host && !take_locked(bytes, device)) return nullptr;
  void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    if (!on_host) used_.at(static_cast<size_t>(device)) -= bytes;
    return nullptr;
  }
  blocks_[number(address)] = {bytes, device};
  return address;
}

bool Heap::free(void* address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(number(address));
  if (found == blocks_.end()) return false;
  const Block block = found->second;
  munmap(address, block.bytes);
  if (!block.is_on_host()) used_.at(static_cast<size_t>(block.device)) -= block.bytes;
  blocks_.erase(found);
  return true;
}

void Heap::add(void* address, Block block) {
  const std::lock_guard lock(mutex_);
  blocks_[number(address)] = block;
}

void Heap::remove(void* address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto first = blocks_.lower_bound(number(address));
  blocks_.erase(first, blocks_.lower_bound(number(address) + bytes));
}

std::optional<Heap::Block> Heap::find(const void* address) {
  const std::lock_guard lock(mutex_);
  auto after = blocks_.upper_bound(number(address));
  if (after == blocks_.begin()) return std::nullopt;
  const auto& [begin, block] = *--after;
  if (number(address) >= begin + block.bytes) return std::nullopt;
  return block;
}

}  // namespace remat::simulated_cuda
