// The driver's virtual memory, which PyTorch asks the runtime for by name: expandable segments are made of it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <string_view>

#include <cuda.h>

#include "runtime/heap.h"
#include "runtime/runtime.h"

using namespace remat::simulated_cuda;

namespace {

/// Memory of a device without an address. The driver hands it out as a number.
struct Physical {
  int file;
  size_t bytes;
  int device;
};

Physical* physical(CUmemGenericAllocationHandle handle) {
  return reinterpret_cast<Physical*>(handle);  // NOLINT(performance-no-int-to-ptr)
}

CUresult reserve_addresses(void** address, size_t bytes, size_t /*alignment*/, void* /*near*/,
                           unsigned long long /*flags*/) {
  *address = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return *address == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult free_addresses(void* address, size_t bytes) {
  munmap(address, bytes);
  return CUDA_SUCCESS;
}

CUresult create(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                unsigned long long /*flags*/) {
  const int device = properties->location.id;
  if (!Heap::instance().take(bytes, device)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int file = static_cast<int>(syscall(SYS_memfd_create, "simulated CUDA", 0));
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    Heap::instance().give_back(bytes, device);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(new Physical{file, bytes, device});
  return CUDA_SUCCESS;
}

CUresult release(CUmemGenericAllocationHandle handle) {
  const Physical* const memory = physical(handle);
  Heap::instance().give_back(memory->bytes, memory->device);
  close(memory->file);
  delete memory;
  return CUDA_SUCCESS;
}

CUresult map(void* address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long /*flags*/) {
  const Physical* const memory = physical(handle);
  if (mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory->file, static_cast<off_t>(offset)) ==
      MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Heap::instance().add(address, {bytes, memory->device});
  return CUDA_SUCCESS;
}

CUresult unmap(void* address, size_t bytes) {
  mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  Heap::instance().remove(address, bytes);
  return CUDA_SUCCESS;
}

CUresult set_access(void* /*address*/, size_t /*bytes*/, const CUmemAccessDesc* /*access*/, size_t /*count*/) {
  return CUDA_SUCCESS;
}

CUresult granularity(size_t* bytes, const CUmemAllocationProp* /*properties*/, int /*option*/) {
  *bytes = kGranule;
  return CUDA_SUCCESS;
}

CUresult attribute(int* value, int /*attribute*/, int /*device*/) {
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult device(int* handle, int index) {
  *handle = index;
  return CUDA_SUCCESS;
}

CUresult error_string(int /*error*/, const char** text) {
  *text = "an error of the simulated CUDA driver";
  return CUDA_SUCCESS;
}

CUresult absent() {
  log("simulated CUDA: a function of the driver that is not simulated was called");
  return CUDA_ERROR_NOT_SUPPORTED;
}

template <class Function>
void* entry(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

REMAT_CUDA_API cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned /*version*/,
                                                            unsigned long long /*flags*/,
                                                            cudaDriverEntryPointQueryResult* result) {
  static const std::map<std::string_view, void*> known = {{"cuMemAddressReserve", entry(&reserve_addresses)},
                                                          {"cuMemAddressFree", entry(&free_addresses)},
                                                          {"cuMemCreate", entry(&create)},
                                                          {"cuMemRelease", entry(&release)},
                                                          {"cuMemMap", entry(&map)},
                                                          {"cuMemUnmap", entry(&unmap)},
                                                          {"cuMemSetAccess", entry(&set_access)},
                                                          {"cuMemGetAllocationGranularity", entry(&granularity)},
                                                          {"cuDeviceGetAttribute", entry(&attribute)},
                                                          {"cuDeviceGet", entry(&device)},
                                                          {"cuGetErrorString", entry(&error_string)}};
  const auto found = known.find(name);
  log("simulated CUDA: the driver's %s%s", name, found == known.end() ? ", which is not simulated" : "");
  *function = found == known.end() ? entry(&absent) : found->second;
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
