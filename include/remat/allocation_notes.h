// remat/allocation_notes.h -- writes down the blocks of memory that a step takes.
#pragma once

#include <memory>

#include <remat/device_estimate.h>

namespace remat {

/// While one lives, a step of this thread that writes a graph notes its allocations, too; and it is that of a CUDA
/// device insofar as softmax's backward pass has a result of its own. The session's next graph() belongs to them. One
/// at a time on a thread.
class AllocationNotes {
 public:
  AllocationNotes();
  ~AllocationNotes();
  AllocationNotes(const AllocationNotes&) = delete;
  AllocationNotes& operator=(const AllocationNotes&) = delete;

  /// Of the step that ended last. Throws Error if none has, or it wrote no graph.
  StepAllocations take();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace remat
