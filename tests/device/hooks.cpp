// What PyTorch asks of an accelerator as a whole: its generators, pinned memory, and storages that change their size.
#include <algorithm>
#include <cstring>

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>

#include "device/device_memory.h"
#include "device/generator.h"
#include "device/pinned_memory.h"
#include "device/registration.h"
#include "device/stream.h"

namespace remat::simulated {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  void init() const override {}

  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_device()); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex before = getCurrentDevice();
    if (device >= 0) set_current_device(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<Generator>(device < 0 ? getCurrentDevice() : device);
  }

  c10::Device getDeviceFromPtr(void* address) const override {
    const int device = DeviceMemory::device_of(address);
    TORCH_CHECK(device >= 0, "[simulated] this address belongs to no simulated device");
    return c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device));
  }
  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }

  /// In the order of the current stream, as resize_bytes_cuda().
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    const c10::Device device = storage.device();
    const c10::DeviceGuard guard(device);
    c10::DataPtr data;
    if (bytes > 0) {
      data = c10::GetAllocator(c10::kPrivateUse1)->allocate(bytes);
      if (const size_t kept = std::min(bytes, storage.nbytes()); kept > 0) {
        WorkQueue::of(current_stream(device.index()))
            .submit([to = DeviceMemory::for_kernels(data.get()), from = DeviceMemory::for_kernels(storage.data()),
                     kept] { memcpy(to, from, kept); });
      }
    } else {
      data = c10::DataPtr(nullptr, device);
    }
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

}  // namespace

void register_hooks() { at::RegisterPrivateUse1HooksInterface(new Hooks); }

}  // namespace remat::simulated
