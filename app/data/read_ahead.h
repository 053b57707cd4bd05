// data/read_ahead.h -- what is asked for next is read in the background.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <utility>
#include <vector>

namespace remat::data {

/// What is read depends on `which` alone, so that results are the same as without it. Not thread-safe.
class ReadAhead {
 public:
  using Bytes = std::vector<uint8_t>;
  using Which = std::vector<int64_t>;
  /// Is called on other threads too, on one at a time.
  using Read = std::function<Bytes(const Which&)>;

  explicit ReadAhead(Read read) : read_(std::move(read)) {}

  /// The bytes of `which`. From then on those of `next` are read, unless that is empty. Throws what reading `which`
  /// threw, on whatever thread.
  Bytes get(const Which& which, const Which& next);

 private:
  Read read_;
  Which ahead_;               ///< what `bytes_` will be
  std::future<Bytes> bytes_;  ///< its end waits for the thread
};

}  // namespace remat::data
