// remat/device_estimate.h -- what a training takes of a GPU's memory, without the GPU: PyTorch's caching allocator is
// simulated over the allocations of a step, plain or under a plan.
//
// Pure functions: no torch, no clock, no files. What kernels take for themselves is no part of it: the workspaces of
// cuBLAS and cuDNN, the CUDA context. docs/fit.md says how far the figures hold.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <remat/graph.h>
#include <remat/plan.h>

namespace remat {

/// A block of memory that plain takes from the device in a step, or gives back.
struct BlockChange {
  int32_t event = 0;         ///< of the step's graph: it happens before the next one
  int32_t block = 0;         ///< numbered in the order in which they are taken
  int64_t bytes = 0;         ///< that are taken; 0: the block is given back
  bool for_replays = false;  ///< of a block that is taken: plain does not have it

  bool operator==(const BlockChange&) const = default;
};

/// The blocks of one step, in order: what a Graph has as rises and falls. AllocationNotes (remat/allocation_notes.h)
/// makes it.
struct StepAllocations {
  std::vector<BlockChange> changes;  ///< without the end of blocks that hold a value when GraphEvent::Kind::kFree comes
  std::vector<int32_t> blocks;       ///< by value of the graph: which holds it; -1: none that the step has taken

  /// Empty if it suits `graph`, otherwise what is wrong.
  std::string problem(const Graph& graph) const;
  bool operator==(const StepAllocations&) const = default;
};

/// What a training takes around its steps, in bytes and in this order.
struct TrainingLoop {
  std::vector<int64_t> model;   ///< parameters and buffers, before the first step
  std::vector<int64_t> state;   ///< the optimizer's, in its first step
  std::vector<int64_t> update;  ///< that each step of the optimizer has at once, until it is over
  int steps = 3;                ///< each with an update. Gradients are freed behind it, as by zero_grad()
};

/// A device, or the part of it that tensors may have.
struct DeviceMemory {
  int64_t bytes = INT64_MAX;  ///< that the allocator may reserve
  std::string settings;       ///< PYTORCH_ALLOC_CONF; empty: PyTorch's defaults
};

/// What a training is predicted to take.
struct DevicePeaks {
  int64_t allocated_bytes = 0;  ///< the most, as torch.cuda.max_memory_allocated() has it
  int64_t reserved_bytes = 0;   ///< the most, as torch.cuda.max_memory_reserved() has it
  int64_t step_bytes = 0;       ///< the most that a step requests: of a planned one what its budget limits
  bool fits = true;             ///< into the device; otherwise the two figures are those of a larger one
  int64_t beyond_bytes = 0;     ///< that the plan reserves beyond its budget: a session evicts more than the plan says
  int64_t releases = 0;         ///< of cached memory, because no segment was left
  std::vector<int64_t> reserved_in_steps;  ///< the most in each step and the update behind it

  bool operator==(const DevicePeaks&) const = default;
};

/// Predicts a training whose steps are all `graph`'s, plain where there is no plan. While a planned step runs, what is
/// reserved is kept to the plan's budget by releasing cached memory, as a session on CUDA does. Throws Error if the
/// graph is not sound, or allocations, plan or settings do not suit.
DevicePeaks predict_on_device(const Graph& graph, const StepAllocations& allocations, const TrainingLoop& loop,
                              const DeviceMemory& device, const Plan* plan = nullptr);

// ---- The allocator alone ----

/// What is asked of the allocator.
struct AllocatorRequest {
  int64_t bytes = 0;   ///< to allocate; 0: none
  int64_t frees = -1;  ///< the place of an earlier request, whose block is freed; -1: none. With neither, all that is
                       ///< cached is released
};

/// A part of a segment.
struct AllocatorBlock {
  int64_t bytes = 0;    ///< of it
  bool in_use = false;  ///< by a tensor; otherwise free

  bool operator==(const AllocatorBlock&) const = default;
};

/// Memory that was taken from the device at once, or, of an expandable segment, mapped without a gap: its blocks,
/// without gaps.
using AllocatorSegment = std::vector<AllocatorBlock>;

/// After a request.
struct AllocatorState {
  bool refused = false;                    ///< out of memory
  int64_t allocated_bytes = 0;             ///< as torch.cuda.memory_allocated()
  int64_t reserved_bytes = 0;              ///< as torch.cuda.memory_reserved()
  std::vector<AllocatorSegment> segments;  ///< the oldest first
};

/// PyTorch's caching allocator, request by request, with one stream. Throws Error for settings that are not modelled,
/// and for requests that free what is not there.
std::vector<AllocatorState> simulate_allocator(const std::vector<AllocatorRequest>& requests,
                                               const DeviceMemory& device);

}  // namespace remat
