// CUDA's own kernels on the simulated runtime: they take REMAT_SIMULATED_CUDA_KERNEL_US and compute nothing. (Those
// that compute are in tests/cuda/kernels.) The functions with two underscores are called by what nvcc generates.
#include <chrono>
#include <thread>

#include "runtime/runtime.h"
#include "runtime/stream.h"

using namespace remat::simulated_cuda;

namespace {

struct Configuration {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  void* stream = nullptr;
};

thread_local Configuration pushed;

cudaError_t launch(cudaStream_t stream) {
  static const std::chrono::microseconds duration(setting("REMAT_SIMULATED_CUDA_KERNEL_US", 0));
  stream_of(stream).submit([] { std::this_thread::sleep_for(duration); });
  return cudaSuccess;
}

}  // namespace

REMAT_CUDA_API void** __cudaRegisterFatBinary(void* /*binary*/) {
  static void* handle = nullptr;
  return &handle;
}

REMAT_CUDA_API void __cudaRegisterFatBinaryEnd(void** /*handle*/) {}
REMAT_CUDA_API void __cudaUnregisterFatBinary(void** /*handle*/) {}
REMAT_CUDA_API void __cudaRegisterFunction(void** /*handle*/, const char* /*host*/, char* /*device*/,
                                           const char* /*name*/, int /*threads*/, void*, void*, void*, void*, int*) {}
REMAT_CUDA_API void __cudaRegisterVar(void** /*handle*/, char* /*host*/, char* /*device*/, const char* /*name*/,
                                      int /*is_external*/, size_t /*bytes*/, int /*is_constant*/, int /*is_global*/) {}
REMAT_CUDA_API char __cudaInitModule(void** /*handle*/) { return 1; }

REMAT_CUDA_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void* stream) {
  pushed = {grid, block, shared_bytes, stream};
  return 0;
}

REMAT_CUDA_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  *grid = pushed.grid;
  *block = pushed.block;
  *shared_bytes = pushed.shared_bytes;
  *static_cast<void**>(stream) = pushed.stream;
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t __cudaLaunchKernel(cudaKernel_t /*kernel*/, dim3 /*grid*/, dim3 /*block*/, void** /*values*/,
                                              size_t /*shared_bytes*/, cudaStream_t stream) {
  return launch(stream);
}

REMAT_CUDA_API cudaError_t cudaLaunchKernel(const void* /*function*/, dim3 /*grid*/, dim3 /*block*/, void** /*values*/,
                                            size_t /*shared_bytes*/, cudaStream_t stream) {
  return launch(stream);
}

REMAT_CUDA_API cudaError_t cudaLaunchCooperativeKernel(const void* /*function*/, dim3 /*grid*/, dim3 /*block*/,
                                                       void** /*values*/, size_t /*shared_bytes*/,
                                                       cudaStream_t stream) {
  return launch(stream);
}

REMAT_CUDA_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void* /*function*/,
                                               void** /*values*/) {
  return launch(configuration->stream);
}

REMAT_CUDA_API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* /*function*/) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = 90;
  attributes->ptxVersion = 90;
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaFuncSetAttribute(const void* /*function*/, cudaFuncAttribute /*attribute*/,
                                                int /*value*/) {
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* /*function*/,
                                                                         int /*threads*/, size_t /*shared_bytes*/) {
  *blocks = 2;
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                                                  int threads, size_t shared_bytes,
                                                                                  unsigned /*flags*/) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared_bytes);
}

REMAT_CUDA_API cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  *address = const_cast<void*>(symbol);
  return cudaSuccess;
}
