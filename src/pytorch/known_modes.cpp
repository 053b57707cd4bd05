#include "pytorch/known_modes.h"

namespace remat {

int64_t& known_modes() {
  thread_local int64_t modes = 0;
  return modes;
}

}  // namespace remat
