// Memory of the simulated CUDA runtime: allocations, and copies in the order of streams.
#include <cstring>

#include "runtime/heap.h"
#include "runtime/runtime.h"
#include "runtime/stream.h"

using namespace remat::simulated_cuda;

namespace {

cudaError_t allocate(void** address, size_t bytes, int device) {
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  *address = Heap::instance().allocate(bytes, device);
  log("simulated CUDA: %zu bytes for device %d: %p", bytes, device, *address);
  return *address == nullptr ? fail(cudaErrorMemoryAllocation) : cudaSuccess;
}

/// As cudaFree() does, this waits for whatever may still use the memory.
cudaError_t release(void* address) {
  if (address == nullptr) return cudaSuccess;
  const auto block = Heap::instance().find(address);
  synchronize(block && !block->is_on_host() ? block->device : current_device());
  return Heap::instance().free(address) ? cudaSuccess : fail(cudaErrorInvalidValue);
}

bool is_pageable(const void* address) { return !Heap::instance().find(address); }

}  // namespace

REMAT_CUDA_API cudaError_t cudaMalloc(void** address, size_t bytes) {
  return allocate(address, bytes, current_device());
}

REMAT_CUDA_API cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t /*stream*/) {
  return allocate(address, bytes, current_device());
}

REMAT_CUDA_API cudaError_t cudaFree(void* address) { return release(address); }

REMAT_CUDA_API cudaError_t cudaFreeAsync(void* address, cudaStream_t /*stream*/) { return release(address); }

REMAT_CUDA_API cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned /*flags*/) {
  return allocate(address, bytes, Heap::kHost);
}

REMAT_CUDA_API cudaError_t cudaFreeHost(void* address) { return release(address); }

REMAT_CUDA_API cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned /*flags*/) {
  Heap::instance().add(address, {bytes, Heap::kHost});
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaHostUnregister(void* address) {
  Heap::instance().remove(address, 1);
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = device_bytes();
  *free = *total - Heap::instance().used(current_device());
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  *attributes = {};
  attributes->devicePointer = const_cast<void*>(address);
  const auto block = Heap::instance().find(address);
  if (!block) {
    attributes->type = cudaMemoryTypeUnregistered;
  } else if (block->is_on_host()) {
    attributes->type = cudaMemoryTypeHost;
    attributes->hostPointer = const_cast<void*>(address);
  } else {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = block->device;
  }
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/,
                                           cudaStream_t stream) {
  CUstream_st& queue = stream_of(stream);
  queue.submit([=] { std::memmove(to, from, bytes); });
  if (is_pageable(to) || is_pageable(from)) queue.synchronize();
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return cudaStreamSynchronize(nullptr);
}

REMAT_CUDA_API cudaError_t cudaMemcpyPeerAsync(void* to, int /*to_device*/, const void* from, int /*from_device*/,
                                               size_t bytes, cudaStream_t stream) {
  stream_of(stream).submit([=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                             size_t width, size_t height, cudaMemcpyKind /*kind*/,
                                             cudaStream_t stream) {
  stream_of(stream).submit([=] {
    for (size_t row = 0; row < height; ++row) {
      std::memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
    }
  });
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  stream_of(stream).submit([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  cudaMemsetAsync(to, value, bytes, nullptr);
  return cudaStreamSynchronize(nullptr);
}

REMAT_CUDA_API cudaError_t cudaMemcpyToSymbol(const void* /*symbol*/, const void* /*from*/, size_t /*bytes*/,
                                              size_t /*offset*/, cudaMemcpyKind /*kind*/) {
  return cudaSuccess;  // constants of kernels that compute nothing
}
