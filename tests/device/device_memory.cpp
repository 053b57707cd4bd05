#include "device/device_memory.h"

#include <algorithm>
#include <array>

#include <c10/util/Exception.h>
#include <sys/mman.h>

namespace remat::simulated {
namespace {

constexpr size_t kAddresses = size_t{1} << 30;  // of each device
constexpr size_t kAll = kDevices * kAddresses;

/// The addresses of all devices, and behind them as many for kernels.
char* addresses() {
  static char* const begin = [] {
    void* mapped = mmap(nullptr, 2 * kAll, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(mapped != MAP_FAILED, "[simulated] the system has no addresses for the devices' memory");
    char* first = static_cast<char*>(mapped);
    TORCH_CHECK(mprotect(first + kAll, kAll, PROT_READ | PROT_WRITE) == 0, "[simulated] mprotect failed");
    return first;
  }();
  return begin;
}

}  // namespace

DeviceMemory& DeviceMemory::of(int device) {
  static auto* const devices = [] {
    auto* made = new std::array<DeviceMemory*, kDevices>;
    for (int index = 0; index < kDevices; ++index) {
      auto* memory = new DeviceMemory;
      memory->begin_ = addresses() + static_cast<size_t>(index) * kAddresses;
      (*made)[static_cast<size_t>(index)] = memory;
    }
    return made;
  }();
  TORCH_CHECK(device >= 0 && device < kDevices, "[simulated] there is no device ", device);
  return *(*devices)[static_cast<size_t>(device)];
}

int DeviceMemory::device_of(const void* address) {
  const char* at = static_cast<const char*>(address);
  const char* begin = addresses();
  return at >= begin && at < begin + kAll ? static_cast<int>(static_cast<size_t>(at - begin) / kAddresses) : -1;
}

void* DeviceMemory::for_kernels(const void* address) {
  char* at = static_cast<char*>(const_cast<void*>(address));
  return device_of(address) < 0 ? at : at + kAll;
}

void* DeviceMemory::reserve(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (reserved_ + bytes > capacity_) return nullptr;
  size_t free_from = 0;
  for (const auto& [offset, size] : segments_) {
    if (offset - free_from >= bytes) break;
    free_from = offset + size;
  }
  if (free_from + bytes > kAddresses) return nullptr;
  segments_[free_from] = bytes;
  reserved_ += bytes;
  return begin_ + free_from;
}

void DeviceMemory::release(void* segment) {
  const std::lock_guard lock(mutex_);
  const auto found = segments_.find(static_cast<size_t>(static_cast<char*>(segment) - begin_));
  TORCH_INTERNAL_ASSERT(found != segments_.end());
  madvise(for_kernels(segment), found->second, MADV_DONTNEED);
  reserved_ -= found->second;
  segments_.erase(found);
}

void DeviceMemory::set_capacity(size_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_ = std::min(bytes, kAddresses);
}

size_t DeviceMemory::capacity() const {
  const std::lock_guard lock(mutex_);
  return capacity_;
}

size_t DeviceMemory::reserved() const {
  const std::lock_guard lock(mutex_);
  return reserved_;
}

}  // namespace remat::simulated
