// Devices and errors of the simulated CUDA runtime. Each device says that it is one of compute capability 9.0.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "runtime/runtime.h"
#include "runtime/stream.h"

namespace remat::simulated_cuda {
namespace {

constexpr int kVersion = 13000;
constexpr int kProcessors = 4;
constexpr int kThreadsOfBlock = 1024;
constexpr int kBlocksOfGrid = 2147483647;
constexpr size_t kSharedBytes = 232448;

thread_local int device_of_thread = 0;
thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

int64_t setting(const char* name, int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

int device_count() {
  static const int count = static_cast<int>(setting("REMAT_SIMULATED_CUDA_DEVICES", 2));
  return count;
}

size_t device_bytes() {
  static const size_t bytes = static_cast<size_t>(setting("REMAT_SIMULATED_CUDA_MIB", 1024)) << 20;
  return bytes;
}

int current_device() { return device_of_thread; }

cudaError_t fail(cudaError_t error) {
  last_error = error;
  return error;
}

void log(const char* format, ...) {
  static const bool wanted = std::getenv("REMAT_SIMULATED_CUDA_LOG") != nullptr;
  if (!wanted) return;
  std::va_list values;
  va_start(values, format);
  std::vfprintf(stderr, format, values);
  va_end(values);
  std::fputc('\n', stderr);
}

}  // namespace remat::simulated_cuda

using namespace remat::simulated_cuda;

REMAT_CUDA_API cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return *count == 0 ? fail(cudaErrorNoDevice) : cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaGetDevice(int* device) {
  *device = device_of_thread;
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
  device_of_thread = device;
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

REMAT_CUDA_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "Simulated CUDA device %d", device);
  properties->totalGlobalMem = device_bytes();
  properties->major = 9;
  properties->multiProcessorCount = kProcessors;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = kThreadsOfBlock;
  properties->maxThreadsPerMultiProcessor = 2 * kThreadsOfBlock;
  properties->sharedMemPerBlock = 49152;
  properties->sharedMemPerBlockOptin = kSharedBytes;
  properties->sharedMemPerMultiprocessor = kSharedBytes + 1024;
  properties->regsPerBlock = 65536;
  properties->regsPerMultiprocessor = 65536;
  for (int i = 0; i < 3; ++i) {
    properties->maxThreadsDim[i] = kThreadsOfBlock;
    properties->maxGridSize[i] = i == 0 ? kBlocksOfGrid : 65535;
  }
  properties->l2CacheSize = 50 << 20;
  properties->unifiedAddressing = 1;
  properties->concurrentKernels = 1;
  properties->asyncEngineCount = 2;
  properties->textureAlignment = 512;
  properties->memoryBusWidth = 1024;
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = kProcessors;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = kSharedBytes;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = kThreadsOfBlock;
      break;
    case cudaDevAttrMaxGridDimX:
      *value = kBlocksOfGrid;
      break;
    case cudaDevAttrMaxGridDimY:
      *value = 65535;
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaDeviceCanAccessPeer(int* can, int /*device*/, int /*peer*/) {
  *can = 0;
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaDeviceEnablePeerAccess(int /*peer*/, unsigned /*flags*/) { return cudaSuccess; }

REMAT_CUDA_API cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", static_cast<unsigned>(device));
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -3;
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaDeviceSynchronize() {
  synchronize(current_device());
  return cudaSuccess;
}

REMAT_CUDA_API const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNotReady:
      return "not ready";
    case cudaErrorNotSupported:
      return "not simulated";
    default:
      return "an error of the simulated CUDA runtime";
  }
}

REMAT_CUDA_API const char* cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }

REMAT_CUDA_API cudaError_t cudaPeekAtLastError() { return last_error; }

REMAT_CUDA_API cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

REMAT_CUDA_API cudaError_t cudaProfilerStart() { return cudaSuccess; }
REMAT_CUDA_API cudaError_t cudaProfilerStop() { return cudaSuccess; }
