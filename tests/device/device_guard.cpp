// What PyTorch's device guards, streams and events ask of the simulated devices.
#include "device/device_guard.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "device/device_memory.h"
#include "device/stream.h"

namespace remat::simulated {
namespace {

std::atomic<bool> records_streams = true;

/// Where an event was recorded last; any thread may record it, or ask for it.
class Event {
 public:
  void record(WorkQueue& queue) {
    auto mark = queue.mark();
    const std::lock_guard lock(mutex_);
    mark_ = std::move(mark);
  }
  std::shared_ptr<Mark> mark() const {
    const std::lock_guard lock(mutex_);
    return mark_;
  }
  static std::shared_ptr<Mark> mark_of(void* event) {
    return event == nullptr ? nullptr : static_cast<Event*>(event)->mark();
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Mark> mark_;
};

class DeviceGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Device getDevice() const override {
    return c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(current_device()));
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) set_current_device(device.index());
  }
  void synchronizeDevice(c10::DeviceIndex device) const override { synchronize_device(device); }

  c10::Stream getStream(c10::Device device) const override { return current_stream(index_of(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override { return default_stream(index_of(device)); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    return pool_stream(index_of(device));
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return pool_stream(index_of(device));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_current_stream(stream); }
  void* getStreamNativeHandle(c10::Stream stream) const override { return &WorkQueue::of(stream); }
  bool queryStream(const c10::Stream& stream) const override { return WorkQueue::of(stream).idle(); }
  void synchronizeStream(const c10::Stream& stream) const override { WorkQueue::of(stream).synchronize(); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) *event = new Event;
    static_cast<Event*>(*event)->record(WorkQueue::of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (auto mark = Event::mark_of(event)) WorkQueue::of(stream).wait_for(std::move(mark));
  }
  bool queryEvent(void* event) const override {
    const auto mark = Event::mark_of(event);
    return mark == nullptr || mark->reached();
  }
  void synchronizeEvent(void* event) const override {
    if (const auto mark = Event::mark_of(event)) mark->wait();
    rethrow_failure();
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* begin, void* end, c10::DeviceIndex /*device*/) const override {
    const auto first = Event::mark_of(begin);
    const auto last = Event::mark_of(end);
    TORCH_CHECK(first != nullptr && last != nullptr && first->reached() && last->reached(),
                "[simulated] the time between two events is known when both have been recorded and reached");
    return std::chrono::duration<double, std::milli>(last->time() - first->time()).count();
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    TORCH_CHECK(records_streams.load(), "[simulated] a block's streams are not recorded");
    c10::getDeviceAllocator(c10::kPrivateUse1)->recordStream(data, stream);
  }

 private:
  int index_of(c10::Device device) const { return device.has_index() ? device.index() : current_device(); }
};

}  // namespace

void set_records_streams(bool records) { records_streams.store(records); }

void register_device_guard() { c10::impl::registerDeviceGuard(c10::kPrivateUse1, new DeviceGuard); }

}  // namespace remat::simulated
