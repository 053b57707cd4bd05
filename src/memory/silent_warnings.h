// src/memory/silent_warnings.h -- no warnings of PyTorch's on this thread, for as long as an object of this class
// lives.
#pragma once

#include <c10/util/Exception.h>

namespace remat {

class SilentWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}

 private:
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

}  // namespace remat
