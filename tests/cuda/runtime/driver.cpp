// libcuda.so.1 of the simulated runtime: what PyTorch asks the driver for on its way.
#define REMAT_CUDA_API extern "C" __attribute__((visibility("default")))

namespace {

char context;

}  // namespace

REMAT_CUDA_API int cuInit(unsigned /*flags*/) { return 0; }

REMAT_CUDA_API int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}

REMAT_CUDA_API int cuDevicePrimaryCtxGetState(int /*device*/, unsigned* flags, int* is_active) {
  if (flags != nullptr) *flags = 0;
  *is_active = 1;
  return 0;
}

REMAT_CUDA_API int cuCtxGetCurrent(void** current) {
  *current = &context;
  return 0;
}

REMAT_CUDA_API int cuCtxSetCurrent(void* /*context*/) { return 0; }

REMAT_CUDA_API int cuGetErrorString(int /*error*/, const char** text) {
  *text = "an error of the simulated CUDA driver";
  return 0;
}
