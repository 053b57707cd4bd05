// cli/device.h -- where the command trains.
#pragma once

#include <c10/core/Device.h>

namespace remat::cli {

inline constexpr c10::DeviceType kDevice = c10::kCPU;

}  // namespace remat::cli
