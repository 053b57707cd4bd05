// data/epoch_order.h -- the order of a training's examples: all of them once in each epoch, shuffled anew.
//
// The order is a function of seed and epoch alone, so that a checkpoint needs no more than the step's number.
#pragma once

#include <cstdint>
#include <vector>

namespace remat::data {

/// Not thread-safe: the order of one epoch is held.
class EpochOrder {
 public:
  /// `examples`: 1 or more.
  EpochOrder(int64_t examples, uint64_t seed) : examples_(examples), seed_(seed) {}

  /// The example at place `position`, from 0, of the epochs in a row.
  int64_t at(int64_t position);

 private:
  int64_t examples_;
  uint64_t seed_;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;  ///< of that epoch
};

}  // namespace remat::data
