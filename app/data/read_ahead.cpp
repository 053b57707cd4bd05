#include "data/read_ahead.h"

#include <utility>

namespace remat::data {

ReadAhead::Bytes ReadAhead::get(const Which& which, const Which& next) {
  auto ahead = std::move(bytes_);
  const bool known = ahead.valid() && std::exchange(ahead_, {}) == which;
  if (!known && ahead.valid()) ahead.wait();
  auto bytes = known ? ahead.get() : read_(which);
  if (!next.empty()) {
    ahead_ = next;
    bytes_ = std::async(std::launch::async, read_, next);
  }
  return bytes;
}

}  // namespace remat::data
