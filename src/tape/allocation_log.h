// src/tape/allocation_log.h -- the blocks of memory that a step takes, in order, beside the graph that its Trace
// writes.
#pragma once

#include <cstdint>
#include <vector>

#include <c10/util/flat_hash_map.h>
#include <remat/device_estimate.h>

#include "tape/program.h"

namespace remat {

/// Written by one step's Trace, with its mutex held. `event`: the graph's last one so far.
class AllocationLog {
 public:
  using Event = size_t;

  void allocated(const void* data, int64_t bytes, bool plain, Event event);
  /// `noted`: as the end of a value, by an event of its own.
  void freed(const void* data, bool noted, Event event);
  /// What was allocated last is held for replays, and plain does not have it.
  void held(int64_t bytes, Event event);
  /// The storage at `data` has the value's contents when it is saved first.
  void holds(ValueId value, const void* data);
  /// As Trace's: of what is allocated in between only that counts which is there at the end.
  void kernel_begins() { ++kernels_; }
  void kernel_ends(Event event);

  /// Of a graph of so many values.
  StepAllocations take(size_t values);

 private:
  struct Block {
    int64_t bytes = 0;
    int32_t number = -1;  ///< -1: it is not written down yet
  };
  void write(Block& block, bool for_replays, Event event);

  StepAllocations done_;
  ska::flat_hash_map<const void*, Block> blocks_;  ///< that are there
  std::vector<const void*> in_kernel_;
  const void* last_replays_ = nullptr;  ///< that was allocated, and is none of plain's
  int32_t count_ = 0;
  int kernels_ = 0;
};

}  // namespace remat
