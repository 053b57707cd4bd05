// tests/cuda/runtime/heap.h -- which memory of the host is which simulated device's.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "runtime/runtime.h"

namespace remat::simulated_cuda {

class Heap {
 public:
  struct Block {
    size_t bytes = 0;
    int device = kHost;
    bool is_on_host() const { return device == kHost; }
  };
  static constexpr int kHost = -1;  ///< pinned

  /// The process's only one, never destroyed: PyTorch frees memory while the process ends.
  static Heap& instance();

  /// Null if the device has no room. Device memory is given out in pieces of 2 MiB, as by CUDA.
  void* allocate(size_t bytes, int device);
  /// False if nothing begins there.
  bool free(void* address);
  /// Memory that others have made: pinned by the caller, or mapped by the driver.
  void add(void* address, Block block);
  void remove(void* address, size_t bytes);

  /// The block that holds this address, none of memory that CUDA does not know.
  std::optional<Block> find(const void* address);

  /// Counts bytes that the driver has made; false if the device has no room.
  bool take(size_t bytes, int device);
  void give_back(size_t bytes, int device);
  size_t used(int device);

 private:
  bool take_locked(size_t bytes, int device);

  std::mutex mutex_;
  std::map<uintptr_t, Block> blocks_;
  std::array<size_t, kMostDevices> used_{};
};

constexpr size_t kGranule = size_t{2} << 20;

}  // namespace remat::simulated_cuda
