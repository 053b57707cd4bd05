#include "memory/cuda.h"

#include <string>

#include <remat/error.h>

namespace remat::memory {

DeviceLedger& cuda_ledger(c10::Device device) {
  throw Error("[memory] device " + device.str() +
              " was asked for, but remat was built against a torch without CUDA; install a CUDA build of torch and "
              "build remat again with -DTorch_DIR=<its share/cmake/Torch>");
}

}  // namespace remat::memory
