// src/session/measured_copies.h -- the copies by which a session measures what it moves values to.
#pragma once

#include <algorithm>
#include <cstdint>

namespace remat {

struct MeasuredCopies {
  int64_t count = 0;
  int64_t bytes = 0;  ///< of each

  double all_bytes() const { return static_cast<double>(count * bytes); }
  /// As far as there is room.
  MeasuredCopies within(int64_t room) const {
    const int64_t each = std::min(bytes, room);
    return {.count = std::clamp<int64_t>(room / each, 1, count), .bytes = each};
  }
};

/// Large ones tell what a byte takes, and small ones what a copy takes beside its bytes.
inline constexpr MeasuredCopies kLargeCopies{8, int64_t{4} << 20}, kSmallCopies{64, int64_t{64} << 10};
/// What others do on the machine meanwhile only makes them slower: the least counts.
inline constexpr int kMeasuredRounds = 3;

/// Of each of the small `copies`, there and back: what they took in seconds beyond `per_byte` there and back.
inline double seconds_of_copy(const MeasuredCopies& copies, double seconds, double per_byte) {
  return std::max(0.0, seconds - copies.all_bytes() * per_byte) / static_cast<double>(2 * copies.count);
}

}  // namespace remat
