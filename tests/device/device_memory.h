// tests/device/device_memory.h -- the memory of simulated devices, apart from the host's.
//
// Each device has a range of addresses that nothing can be read from or written to: a host that follows a device's
// pointer ends with SIGSEGV, as on a real machine. The same bytes can be reached by kernels, at another address.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace remat::simulated {

constexpr int kDevices = 2;

/// What one device has, given out in whole segments as cudaMalloc does. All functions may be called by any thread.
class DeviceMemory {
 public:
  static DeviceMemory& of(int device);
  /// The device that an address belongs to; -1 for the host's.
  static int device_of(const void* address);
  /// Where kernels find the bytes of an address; the host's are where they are.
  static void* for_kernels(const void* address);

  /// A segment, or nullptr where the device has not as much left. `bytes` is a multiple of 2 MiB.
  void* reserve(size_t bytes);
  /// Gives a segment back; its contents are lost.
  void release(void* segment);

  /// Bytes that can be reserved, 256 MiB if nothing else was set, 1 GiB at most. What is reserved already stays.
  void set_capacity(size_t bytes);
  size_t capacity() const;
  size_t reserved() const;

 private:
  DeviceMemory() = default;

  mutable std::mutex mutex_;
  char* begin_ = nullptr;
  std::map<size_t, size_t> segments_;  // offset -> bytes
  size_t reserved_ = 0;
  size_t capacity_ = size_t{256} << 20;
};

}  // namespace remat::simulated
