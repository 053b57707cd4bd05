// src/util/seconds_since.h -- how long something took.
#pragma once

#include <chrono>

namespace remat {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace remat
