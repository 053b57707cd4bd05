// tests/cuda/runtime/runtime.h -- what the files of the simulated CUDA runtime share.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

/// The library exports functions of CUDA's names, and nothing else.
#define REMAT_CUDA_API extern "C" __attribute__((visibility("default")))

namespace remat::simulated_cuda {

/// An environment variable's number, as in REMAT_SIMULATED_CUDA_MIB=512; `otherwise` if it is not set.
int64_t setting(const char* name, int64_t otherwise);

/// REMAT_SIMULATED_CUDA_DEVICES, 2 unless said otherwise.
int device_count();
constexpr size_t kMostDevices = 64;

/// REMAT_SIMULATED_CUDA_MIB: what each of them has, 1024 MiB unless said otherwise.
size_t device_bytes();

/// The device that this thread has set.
int current_device();

/// Remembers the error for cudaGetLastError() of this thread, and returns it.
cudaError_t fail(cudaError_t error);

/// A line on stderr, where REMAT_SIMULATED_CUDA_LOG is set.
void log(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace remat::simulated_cuda
