#include "device/device.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "device/stream_copy.h"

namespace remat {
namespace device {

c10::Device Kind::indexed(c10::Device device) const {
  return device.has_index() ? device : c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

at::Generator Kind::default_generator(c10::Device device) const {
  try {
    return at::globalContext().defaultGenerator(device);
  } catch (const c10::Error&) {  // it has none
    return {};
  }
}

void Kind::synchronize(c10::Device device) const {
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(indexed(device).index());
}

std::optional<c10::Event> Kind::mark(c10::Device device) const {
  try {
    c10::Event event(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    return event;
  } catch (const std::exception&) {  // a device without events
    return std::nullopt;
  }
}

c10::intrusive_ptr<c10::StorageImpl> Kind::copy(const c10::StorageImpl& storage) const {
  return copy_in_stream(storage);
}

const Kind& kind_of(c10::DeviceType type) noexcept {
  switch (type) {
    case c10::kCPU:
      return cpu();
    case c10::kCUDA:
      return cuda();
    case c10::kMeta:
      return meta();
    case c10::kPrivateUse1:
      return accelerator();
    default:
      return unsupported();
  }
}

bool may_have_streams(std::optional<c10::Device> device) {
  return device ? has_streams(*device) : at::getAccelerator().has_value();
}

}  // namespace device

namespace memory {

Ledger& Ledger::of(c10::Device device) { return device::kind_of(device).ledger(device); }

}  // namespace memory
}  // namespace remat
