#include "memory/ledger.h"

namespace remat::memory {

int& FrozenPlain::depth() noexcept {
  thread_local int depth = 0;
  return depth;
}

}  // namespace remat::memory
