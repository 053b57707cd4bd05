// Stands in for cuda.cpp where torch has no CUDA.
#include <remat/error.h>

#include "device/device.h"

namespace remat::device {
namespace {

class NoCuda final : public Kind {
 public:
  void start_accounting(c10::Device device) const override { refuse(device); }
  bool is_counted() const override { return false; }
  memory::DeviceLedger& ledger(c10::Device device) const override { refuse(device); }

 private:
  [[noreturn]] static void refuse(c10::Device device) {
    throw Error("[memory] device " + device.str() +
                " was asked for, but remat was built against a torch without CUDA; install a CUDA build of torch and "
                "build remat again with -DTorch_DIR=<its share/cmake/Torch>");
  }
};

}  // namespace

const Kind& cuda() {
  static const auto* const kind = new NoCuda;
  return *kind;
}

}  // namespace remat::device
