// tests/support/silence.h -- a handler of PyTorch's warnings that drops them.
#pragma once

#include <c10/util/Exception.h>

namespace remat::test {

struct Silence final : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

}  // namespace remat::test
