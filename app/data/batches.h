// data/batches.h -- which examples of a file are in a batch.
#pragma once

#include <cstdint>
#include <vector>

#include "data/epoch_order.h"

namespace remat::data {

/// Not thread-safe: the order of one epoch is held.
class Batches {
 public:
  /// Of `size` examples; `examples`: in the file, 1 or more.
  Batches(int64_t examples, int64_t size, uint64_t seed) : examples_(examples), size_(size), order_(examples, seed) {}

  /// The batch of training step `step`, from 1: all examples once in each epoch, in an order that the seed decides.
  std::vector<int64_t> of_step(int64_t step);

  /// All examples once, in the order of the file, take so many batches, of which the last may have fewer examples.
  int64_t count() const { return (examples_ + size_ - 1) / size_; }
  /// One of these, from 0.
  std::vector<int64_t> in_order(int64_t index) const;

 private:
  int64_t examples_, size_;
  EpochOrder order_;
};

}  // namespace remat::data
