// src/tiers/extents.h -- which bytes of a file are in use.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace remat::tiers {

/// Bytes of a file that follow one another.
struct Extent {
  int64_t offset = 0;
  int64_t bytes = 0;
};

/// Hands out extents of a file whose offsets and lengths are multiples of `unit`, and uses again those that are given
/// back. Not thread-safe.
class Extents {
 public:
  /// The file may have `limit` bytes.
  Extents(int64_t unit, int64_t limit) : unit_(unit), limit_(limit / unit * unit) {}

  /// Returns extents for `bytes`, rounded up to whole units: one where the file has a gap of that length or may grow,
  /// several gaps where it may not. Nothing if the limit leaves too little room.
  std::optional<std::vector<Extent>> take(int64_t bytes);
  void give_back(const std::vector<Extent>& extents);

  /// Bytes taken and not given back.
  int64_t in_use() const { return in_use_; }
  /// Bytes that the file has at most: gaps are part of it.
  int64_t end() const { return end_; }

 private:
  Extent take_gap(std::map<int64_t, int64_t>::iterator gap, int64_t bytes);

  const int64_t unit_, limit_;
  int64_t end_ = 0, in_use_ = 0;
  std::map<int64_t, int64_t> gaps_;  ///< length by offset; no two touch each other
};

}  // namespace remat::tiers
