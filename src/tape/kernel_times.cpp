#include "tape/kernel_times.h"

#include <utility>

#include <c10/util/Exception.h>

#include "device/device.h"

namespace remat {

std::optional<c10::Event> KernelTimes::mark() const { return device::kind_of(device_).mark(device_); }

void KernelTimes::add(OperationId id, std::optional<c10::Event> begin, std::optional<c10::Event> end) {
  if (begin && end) timed_.push_back({id, *std::move(begin), *std::move(end)});
}

void KernelTimes::resolve(Program& program) {
  const std::vector<Timed> timed = std::exchange(timed_, {});
  device::kind_of(device_).synchronize(device_);
  for (const Timed& each : timed) {
    try {
      program.set_seconds(each.id, static_cast<float>(each.begin.elapsedTime(each.end) / 1e3));
    } catch (const c10::Error&) {  // the device has no clock
    }
  }
}

}  // namespace remat
