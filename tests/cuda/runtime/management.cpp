// libnvidia-ml.so.1 of the simulated runtime: it starts, and knows little.
#define REMAT_CUDA_API extern "C" __attribute__((visibility("default")))

namespace {

char device;
constexpr int kNotSupported = 3;

}  // namespace

REMAT_CUDA_API int nvmlInit_v2() { return 0; }

REMAT_CUDA_API int nvmlDeviceGetHandleByPciBusId_v2(const char* /*bus*/, void** handle) {
  *handle = &device;
  return 0;
}

REMAT_CUDA_API int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 0;
  return kNotSupported;
}

/// No process is on the device, which an error for want of memory would otherwise complain of not knowing.
REMAT_CUDA_API int nvmlDeviceGetComputeRunningProcesses(void* /*device*/, unsigned* count, void* /*processes*/) {
  *count = 0;
  return 0;
}

REMAT_CUDA_API int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, void* processes) {
  return nvmlDeviceGetComputeRunningProcesses(device, count, processes);
}
