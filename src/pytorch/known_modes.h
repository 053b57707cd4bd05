// src/pytorch/known_modes.h -- dispatch modes of remat's own bindings, which give what the operators under them give.
#pragma once

#include <cstdint>

namespace remat {

/// How many of this thread's dispatch modes are of that kind.
int64_t& known_modes();

}  // namespace remat
