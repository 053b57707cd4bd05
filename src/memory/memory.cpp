#include <remat/memory.h>

#include <algorithm>
#include <string>

#include <remat/error.h>

#include "memory/accelerator.h"
#include "memory/cpu_allocator.h"
#include "memory/device_ledger.h"
#include "memory/meta.h"

namespace remat::memory {

void start_accounting(c10::Device device) {
  if (device.is_cpu()) install_cpu_allocator();
  if (device.is_meta()) install_meta_allocator();
  if (device.is_privateuseone()) install_accelerator_allocator();
}

namespace {

bool is_counted(c10::Device device) {
  if (device.is_privateuseone()) return has_accelerator_allocator();
  return device.is_cpu() ? has_cpu_allocator() : !device.is_meta() || has_meta_allocator();
}

}  // namespace

int64_t current(c10::Device device) {
  if (!is_counted(device)) start_accounting(device);
  return device_ledger(device).current();
}

int64_t peak(c10::Device device) {
  DeviceLedger& ledger = device_ledger(device);
  if (!is_counted(device)) {
    throw Error("[memory] the peak on " + device.str() +
                " is not known: nothing has been counted so far; call start_accounting() or reset_peak(), or make a "
                "session, before what you want to measure");
  }
  return ledger.peak();
}

void reset_peak(c10::Device device) {
  if (!is_counted(device)) start_accounting(device);
  device_ledger(device).reset_peak();
}

int64_t limit(c10::Device device) {
  const DeviceLedger& ledger = device_ledger(device);
  const int64_t enforced = ledger.enforced_limit();
  return enforced != INT64_MAX ? enforced : std::min(ledger.device_limit(), ledger.standing_limit());
}

void set_limit(std::optional<int64_t> bytes, c10::Device device) {
  if (bytes && *bytes <= 0) {
    throw Error("[set_limit] the limit is " + std::to_string(*bytes) +
                " bytes; use a positive number, or nullopt for none");
  }
  device_ledger(device).set_standing_limit(bytes);
}

int64_t cached(c10::Device device) { return device_ledger(device).cached(); }
void release_cached(c10::Device device) { device_ledger(device).release_cached(); }

}  // namespace remat::memory
