// data/picture.h -- one picture, decoded.
#pragma once

#include <cstdint>
#include <vector>

namespace remat::data {

struct Picture {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> pixels;  ///< (row, column, channel), channels red, green and blue
};

}  // namespace remat::data
