// remat/memory.h -- how many tensor bytes are alive, and how many were at the worst moment.
//
// CPU: exact. Accounting starts when the first Session is made, or with start_accounting(), or when current() or
// reset_peak() is called for the first time; from then on every tensor allocation of the process goes through remat's
// allocator. Tensors that are older than that are added when a step
// first reads them, parameters with their gradients; an optimizer's state is not read in a step, so start before it is
// made. Memory that PyTorch's allocator did not give (from_blob, NumPy, mapped files) counts from the first operator of
// a step that reads it until its storage is gone. CUDA, PrivateUse1: what was asked of the device's allocator, to the
// byte, from the first call on that names the device; on CUDA what is older, too.
//
// All functions may be called from any thread at any time.
#pragma once

#include <cstdint>
#include <optional>

#include <c10/core/Device.h>

namespace remat::memory {

/// Puts remat's accounting allocator in the place of PyTorch's CPU allocator, for the rest of the process. Tensors that
/// exist already stay valid. A second call does nothing. Throws Error where another library holds that place firmly.
/// `device`: meta has an allocator of its own, to be called before the tensors that shall count are made; for
/// CUDA and PrivateUse1 an allocator that asks remat comes to stand before the device's own.
void start_accounting(c10::Device device = c10::kCPU);

/// Tensor bytes alive on `device` now. The first call starts accounting, if nothing has, and throws what
/// start_accounting() does: of older tensors it does not know then, so that 0 is no surprise; differences are right.
int64_t current(c10::Device device = c10::kCPU);

/// The largest value of current() since accounting started, or the last reset_peak(). Sessions have a count of their
/// own. Throws Error where accounting has not started: what came before is not known.
int64_t peak(c10::Device device = c10::kCPU);

/// Makes the present current() the new peak. Starts accounting as current() does.
void reset_peak(c10::Device device = c10::kCPU);

/// The most tensor bytes that `device` may hold now: the budget of the step in progress, else the smallest of physical
/// memory, the container's limit (cgroup v1 and v2), what the process may map (ulimit -v, -d) and what set_limit()
/// asked for.
int64_t limit(c10::Device device = c10::kCPU);

/// A standing limit in bytes for every session on `device`; nullopt takes it away. Throws Error unless positive.
void set_limit(std::optional<int64_t> bytes, c10::Device device = c10::kCPU);

/// Bytes that freed tensors left with the allocator for reuse (part of the process's memory, not of current()).
int64_t cached(c10::Device device = c10::kCPU);

/// Gives cached() back to the system.
void release_cached(c10::Device device = c10::kCPU);

/// The largest resident set of the process so far, in bytes, as the operating system saw it. It is more than peak():
/// code, thread stacks, scratch space that libraries allocate for themselves, and cached().
int64_t resident_peak();

}  // namespace remat::memory
