// src/observe/collective_hook.h -- calls Tape::before_collective where a collective of c10d is about to begin.
#pragma once

#include <memory>

#include <c10/core/Device.h>

namespace remat {

/// While the returned object lives, c10d's operators on tensors of that kind of device call before_collective() of the
/// tape that their thread records on, and do not run if it throws. Not those that send from one rank to another: the
/// others take no part. Their kernels are replaced for that, since whoever observes operators cannot stop one.
/// Thread-safe.
std::shared_ptr<const void> hook_collectives(c10::DeviceType device);

}  // namespace remat
