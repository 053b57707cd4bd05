// src/tape/coverage.h -- which bytes of a storage operators have filled, slice by slice.
//
// torch.empty() gives memory with undefined contents, which programs then fill by slices: out[t] = h, k[..., i] = f.
// What such a slice reaches is a strip: equally long runs of bytes at equal distances. Strips of one distance make up a
// coverage; others are left out of it, so that a coverage never claims too much.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <c10/core/TensorImpl.h>

namespace remat {

/// `count` runs of `run` bytes each, the first at byte `begin` of its storage, `stride` bytes from one to the next.
struct Strip {
  int64_t begin = 0, run = 0, stride = 0, count = 1;

  bool operator==(const Strip&) const = default;
};

/// The bytes that a tensor reaches, if they are a strip, and no byte twice. A contiguous tensor is one run.
std::optional<Strip> strip_of(const c10::TensorImpl& impl);

/// The bytes of one storage that are filled: the same ones in each period.
class Coverage {
 public:
  /// Nothing is filled yet.
  explicit Coverage(int64_t bytes) : bytes_(bytes), period_(bytes) {}

  /// The bytes of `strip` are filled, too. Left out where the runs are not in each period, or too many would have to be
  /// told apart.
  void add(const Strip& strip);
  bool is_complete() const;
  /// Writes so far after which a checksum of the whole storage was taken.
  uint8_t watched_writes() const { return watched_writes_; }
  void count_watched_write() { ++watched_writes_; }
  /// Are all bytes that the tensor reaches filled? False also where that cannot be told.
  bool covers(const c10::TensorImpl& impl) const;

 private:
  /// Of each period, sorted, apart from each other.
  struct Interval {
    int64_t begin, end;
  };
  bool contains(int64_t begin, int64_t end) const;

  int64_t bytes_, period_;
  uint8_t watched_writes_ = 0;
  std::vector<Interval> filled_;
};

}  // namespace remat
