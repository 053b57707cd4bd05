#include <remat/memory.h>

#include <algorithm>
#include <string>

#include <remat/error.h>

#include "device/device.h"

namespace remat::memory {

namespace {

DeviceLedger& ledger_of(c10::Device device) { return device::kind_of(device).ledger(device); }

/// Counts from now on, where it did not.
DeviceLedger& counted_ledger(c10::Device device) {
  if (!device::kind_of(device).is_counted()) start_accounting(device);
  return ledger_of(device);
}

}  // namespace

void start_accounting(c10::Device device) { device::kind_of(device).start_accounting(device); }

int64_t current(c10::Device device) { return counted_ledger(device).current(); }

int64_t peak(c10::Device device) {
  if (!device::kind_of(device).is_counted()) {
    throw Error("[memory] the peak on " + device.str() +
                " is not known: nothing has been counted so far; call start_accounting() or reset_peak(), or make a "
                "session, before what you want to measure");
  }
  return ledger_of(device).peak();
}

void reset_peak(c10::Device device) { counted_ledger(device).reset_peak(); }

int64_t limit(c10::Device device) {
  const DeviceLedger& ledger = ledger_of(device);
  const int64_t enforced = ledger.enforced_limit();
  return enforced != INT64_MAX ? enforced : std::min(ledger.device_limit(), ledger.standing_limit());
}

void set_limit(std::optional<int64_t> bytes, c10::Device device) {
  if (bytes && *bytes <= 0) {
    throw Error("[set_limit] the limit is " + std::to_string(*bytes) +
                " bytes; use a positive number, or nullopt for none");
  }
  ledger_of(device).set_standing_limit(bytes);
}

int64_t cached(c10::Device device) { return ledger_of(device).cached(); }
void release_cached(c10::Device device) { ledger_of(device).release_cached(); }

}  // namespace remat::memory
