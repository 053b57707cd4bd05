#include "device/simulated_device.h"

#include <mutex>

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceType.h>

#include "device/caching_allocator.h"
#include "device/pinned_memory.h"
#include "device/registration.h"

namespace remat::simulated {

void register_devices() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::register_privateuse1_backend("simulated");
    register_device_guard();
    c10::SetAllocator(c10::kPrivateUse1, &caching_allocator());
    at::setHostAllocator(c10::kPrivateUse1, &pinned_allocator());
    register_hooks();
    register_memory_kernels();
    register_random_kernels();
    register_recurrent_kernels(c10::DispatchKey::PrivateUse1);
    register_computing_kernels();
    register_autocast();
  });
}

c10::Device device(int index) { return c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(index)); }

}  // namespace remat::simulated
