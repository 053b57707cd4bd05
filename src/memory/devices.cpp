// Which ledger counts which device.
#include <remat/error.h>

#include "memory/accelerator.h"
#include "memory/cpu_ledger.h"
#include "memory/cuda.h"
#include "memory/device_ledger.h"
#include "memory/meta.h"

namespace remat::memory {

DeviceLedger& device_ledger(c10::Device device) {
  if (device.is_cpu()) return CpuLedger::instance();
  if (device.is_cuda()) return cuda_ledger(device);
  if (device.is_meta()) return meta_ledger();
  if (device.is_privateuseone()) return accelerator_ledger(device);
  throw Error("[memory] device " + device.str() + " is not supported; use cpu, cuda or meta");
}

Ledger& Ledger::of(c10::Device device) { return device_ledger(device); }

}  // namespace remat::memory
