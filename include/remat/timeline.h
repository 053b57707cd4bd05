// remat/timeline.h -- the memory of one step, moment by moment and part by part: what pictures of it are drawn from.
//
// Pure functions: no torch, no clock, no files.
#pragma once

#include <cstdint>
#include <vector>

#include <remat/graph.h>
#include <remat/plan.h>

namespace remat {

/// The bytes alive at one moment, by what they are for. Together they are all that is alive.
struct MemoryParts {
  int64_t parameters = 0;   ///< trainable parameters that the forward pass reads
  int64_t gradients = 0;    ///< those that were there when the step began, and what backward adds to stay
  int64_t optimizer = 0;    ///< the rest of what was alive when the step began: an optimizer's state, inputs, buffers
  int64_t kept = 0;         ///< activations that are kept until backward uses them
  int64_t packed = 0;       ///< activations that are held packed
  int64_t recomputed = 0;   ///< activations that were recomputed or unpacked, and what recomputing takes
  int64_t temporaries = 0;  ///< all else: what operators are working on

  /// All of them together.
  int64_t total() const { return parameters + gradients + optimizer + kept + packed + recomputed + temporaries; }
  bool operator==(const MemoryParts&) const = default;
};

/// A stretch of the step, in which at most one operator runs.
struct TimelineMoment {
  /// What the thread is doing.
  enum class Work : uint8_t {
    kForward,    ///< operator `index` runs, or one that makes a graph in backward (create_graph); -1: none
    kBackward,   ///< the backward pass of operator `index`, as far as the graph tells; -1: none
    kRecompute,  ///< operator `index` is replayed for value `value`
    kUnpack,     ///< value `value` is unpacked
  };
  double begin_seconds = 0;    ///< since the step began; it ends where the next one begins
  Work work = Work::kForward;  ///< what is done
  int32_t index = -1;          ///< of the operator; -1: none
  int32_t value = -1;          ///< of the value that is recomputed or unpacked; -1: none
  MemoryParts parts;           ///< when the most is alive in it
};

/// A step of a graph under a plan. A graph has the times of operators in the forward pass, and that of the whole step:
/// what is left is backward's, whose time is spread over its operators in proportion to their forward times.
struct Timeline {
  std::vector<TimelineMoment> moments;  ///< in order; some take no time
  double backward_seconds = 0;          ///< when backward first asks for a value; end_seconds where it never does
  double end_seconds = 0;               ///< of the step
  /// Whether the times above are seconds: if the graph has none, as one from the meta device, they count events.
  bool timed = true;

  /// The most that is alive, baseline included: predict()'s, to the byte.
  int64_t peak_bytes() const;
  /// The first moment with that; there must be one.
  size_t peak_moment() const;
};

/// `actions`: one for each value; `budget_bytes`: as of predict(). Throws Error if the graph is not sound, or the
/// actions are not what Plan::problem() asks of them.
Timeline make_timeline(const Graph& graph, const std::vector<Action>& actions, int64_t budget_bytes = 0);
/// Plain's: nothing is given up but what policies drop.
Timeline make_timeline(const Graph& graph);

}  // namespace remat
