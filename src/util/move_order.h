// src/util/move_order.h -- in which order moved values leave memory and come back.
//
// The simulator and the tape follow the same order, so that a plan's peak does not depend on how fast the copies are:
// a step waits for a copy where its order says that the bytes have gone, or are there. A value that becomes idle begins
// to leave. Its bytes are free once kMostLeaving more have become idle, or memory runs short. Backward mostly asks in
// the reverse order: when it asks for a moved value, those that left last begin to come back, kMostComing at a time, as
// far as there is memory; where it runs short, those that are coming have to wait.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace remat {

/// Bytes: what is smaller is not worth a copy.
inline constexpr int64_t kLeastMoved = int64_t{64} << 10;

/// Values are the caller's numbers. Not thread-safe.
class MoveOrder {
 public:
  static constexpr size_t kMostLeaving = 4, kMostComing = 2;

  enum class Place : uint8_t {
    kHere,     ///< not moved
    kLeaving,  ///< its contents are being copied out, and still in memory
    kAway,     ///< in the other memory alone
    kComing,   ///< its memory is allocated, its contents are being copied in
  };

  /// `value` is idle, and its copy out has begun.
  void leave(uint32_t value) { leaving_.push_back(value); }
  /// `value` is idle, and the other memory has its contents already: a backward pass has used it, and the next asks for
  /// it after those that left before.
  void leave_at_once(uint32_t value) { away_.insert(away_.begin(), value); }
  /// The one whose bytes are to go now: the caller waits for its copy and frees them. Empty: none.
  std::optional<uint32_t> next_gone() {
    if (leaving_.size() <= kMostLeaving) return std::nullopt;
    return oldest_gone();
  }
  /// As next_gone(), where memory runs short.
  std::optional<uint32_t> oldest_gone() {
    if (leaving_.empty()) return std::nullopt;
    const uint32_t value = leaving_.front();
    leaving_.pop_front();
    away_.push_back(value);
    return value;
  }
  /// The one that is to come back now: the caller allocates its memory, and begins to copy. Empty: none.
  std::optional<uint32_t> next_coming() {
    if (coming_.size() >= kMostComing || away_.empty()) return std::nullopt;
    const uint32_t value = away_.back();
    away_.pop_back();
    coming_.push_back(value);
    return value;
  }
  /// There was no memory for one that next_coming() gave, if it still is to come.
  void defer(uint32_t value) {
    if (std::erase(coming_, value) > 0) away_.push_back(value);
  }
  /// One that is coming, which has to wait: memory runs short. Empty: none.
  std::optional<uint32_t> stop_coming() {
    if (coming_.empty()) return std::nullopt;
    const uint32_t value = coming_.back();
    coming_.pop_back();
    away_.push_back(value);
    return value;
  }
  /// `value` is asked for, recomputed, evicted or freed: it is not moved any more. Returns where it was.
  Place take(uint32_t value) {
    if (std::erase(leaving_, value) > 0) return Place::kLeaving;
    if (std::erase(coming_, value) > 0) return Place::kComing;
    if (std::erase(away_, value) > 0) return Place::kAway;
    return Place::kHere;
  }
  Place place(uint32_t value) const {
    const auto is_in = [value](const auto& list) { return std::ranges::find(list, value) != list.end(); };
    return is_in(leaving_)  ? Place::kLeaving
           : is_in(coming_) ? Place::kComing
           : is_in(away_)   ? Place::kAway
                            : Place::kHere;
  }
  bool is_empty() const { return leaving_.empty() && coming_.empty() && away_.empty(); }
  void clear() {
    leaving_.clear();
    coming_.clear();
    away_.clear();
  }

 private:
  std::deque<uint32_t> leaving_;         ///< the oldest first
  std::vector<uint32_t> away_, coming_;  ///< the last to leave at the end
};

}  // namespace remat
