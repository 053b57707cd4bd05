// Kinds of devices that remat does not record on.
#include <remat/error.h>

#include "device/device.h"

namespace remat::device {
namespace {

class Unsupported final : public Kind {
 public:
  void start_accounting(c10::Device device) const override {
    throw Error("[device] " + device.str() +
                " is not supported: its memory cannot be counted; use cpu, cuda, meta, or a device that comes to "
                "PyTorch as PrivateUse1");
  }
  bool is_counted() const override { return false; }
  memory::DeviceLedger& ledger(c10::Device device) const override {
    start_accounting(device);
    throw Error("[device] " + device.str() + " is not supported");
  }
};

}  // namespace

const Kind& unsupported() {
  static const auto* const kind = new Unsupported;
  return *kind;
}

}  // namespace remat::device
