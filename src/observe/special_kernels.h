// src/observe/special_kernels.h -- installs the kernels of special operators, which ask the recorder of their thread.
#pragma once

#include <memory>
#include <vector>

#include <c10/core/Device.h>

namespace remat {

/// See install_special_operators(), of a session on such a device, with or without other ranks. Where a step takes part
/// in a collective, Tape::before_collective is called before it begins, and if that throws, it does not. Thread-safe.
std::vector<std::shared_ptr<const void>> install_special_kernels(c10::DeviceType device, bool has_ranks);

}  // namespace remat
