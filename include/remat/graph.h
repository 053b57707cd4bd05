// remat/graph.h -- one recorded training step as plain data: what planners read.
//
// A graph has the operators of the forward pass in the order in which they ran, the values that they made, and the
// timeline of the whole step: how plain's memory (with inputs that are held for replays under any plan) went up and
// down, forward and backward, and when each saved value became idle, was used and freed. From it and a plan the
// simulator (src/plan/simulate.h) tells the memory of the step, to the byte, and its time, without running it.
//
// No torch, no clock, no files here. docs/formats.md has the JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace remat {

/// Contents that a storage had at one time. Values are numbered in the order in which they came to be.
struct GraphValue {
  int64_t bytes = 0;         ///< of its storage
  int32_t producer = -1;     ///< the operator that made it; -1: a leaf (parameter, input), which is always there
  int64_t packed_bytes = 0;  ///< what it takes when it is held packed; 0: it cannot be packed
  bool droppable = false;    ///< saved for backward, or held for a policy's replays, and a replay brings the same bits
                             ///< back: a plan may drop it
  bool dropped = false;      ///< as droppable, but a policy drops it whatever the plan, which may only say when it is
                             ///< held again (Action::recompute())

  /// Whether it may be away between an idle event and its next use.
  bool returns() const { return droppable || dropped; }

  bool operator==(const GraphValue&) const = default;
};

/// One call of an operator in the forward pass.
struct GraphOperator {
  std::string name;                  ///< "aten::addmm"
  double seconds = 0;                ///< measured in the forward pass
  double replay_seconds = 0;         ///< what a replay takes: mostly the same
  int64_t scratch_bytes = 0;         ///< the most that it has allocated at once beyond its results
  std::vector<int32_t> inputs;       ///< values that it reads, each once; every one older than its results
  std::vector<int32_t> overwritten;  ///< those of them that it writes to in place: a replay works on a copy
  std::vector<int32_t> results;      ///< values that it makes

  bool operator==(const GraphOperator&) const = default;
};

/// Something that happened, and what plain's memory did from then until the next event.
struct GraphEvent {
  /// What happened.
  enum class Kind : uint8_t {
    kOperator,  ///< operator `index` has run (forward)
    kIdle,      ///< value `index`: from now on only its saved tensors hold it; again where backward goes through
                ///< a graph that was retained
    kUse,       ///< backward asks for value `index`
    kFree,      ///< plain frees value `index`: its bytes go here, they are no part of `delta`
    kOther,     ///< nothing of interest; `index` is -1
  };
  Kind kind = Kind::kOther;  ///< what happened
  int32_t index = -1;        ///< of an operator or a value, by `kind`
  int64_t rise = 0;    ///< bytes that plain's memory rose above its level after the event, at most, until the next one
  int64_t delta = 0;   ///< bytes that it changed by altogether until then; never above `rise`
  int64_t reused = 0;  ///< bytes of `rise` that only plain takes, since under remat an operator of the backward pass
                       ///< writes its result over an input that nobody else has; `rise - reused` is not below `delta`

  /// What memory rises by in a step that keeps every value.
  int64_t step_rise() const { return rise - reused; }

  bool operator==(const GraphEvent&) const = default;
};

/// What it takes to bring contents into another form (remat::Form) and back, in seconds for each byte of them.
struct FormCosts {
  /// Of the two resources that a step has. They work at the same time.
  struct Seconds {
    double compute = 0;  ///< of the threads that compute: what they do for it themselves, or are slowed down by
    double copy = 0;     ///< of the copies, which run beside the computation, one after another
    bool operator==(const Seconds&) const = default;
  };
  Seconds out;  ///< from the tensor into the form
  Seconds in;   ///< and back

  bool operator==(const FormCosts&) const = default;
};

/// Another memory, which values may be moved to.
struct Tier {
  FormCosts costs;          ///< measured on the machine that the step ran on
  double copy_seconds = 0;  ///< of each copy, whatever its size: of the computation, and of the copies
  int64_t bytes = 0;        ///< that it has room for

  bool operator==(const Tier&) const = default;
};

/// One recorded training step. Plain data: copies are independent, and threads may read one at the same time.
struct Graph {
  static constexpr int kVersion = 4;        ///< of the JSON that to_json() writes where there is a tier
  static constexpr int kOldestVersion = 3;  ///< that is read, and written where there is none

  std::vector<GraphValue> values;        ///< in the order in which they came to be; indices count from 0
  std::vector<GraphOperator> operators;  ///< in the order in which they ran
  std::vector<GraphEvent> events;        ///< the whole step, forward and backward
  int64_t baseline_bytes = 0;            ///< alive when the step began
  int64_t parameter_bytes = 0;           ///< of it: trainable parameters that the forward pass read
  int64_t gradient_bytes = 0;            ///< of it: their gradients
  double step_seconds = 0;               ///< of the whole step without what remat added to it
  std::optional<Tier> tier = {};         ///< that plans may move values to; empty: there is none

  /// Empty if the graph is sound, otherwise what is wrong with it. Sound means:
  /// - every index exists, and no list has one twice;
  /// - values are numbered by age: operators read only what is older, and overwrite only what they read;
  /// - each value with a producer is among that operator's results, and in no others; a leaf is neither droppable nor
  ///   dropped, and no value is both;
  /// - every operator runs once, in order, and no value has an event before its producer has run;
  /// - what may be away (droppable, dropped) or has packed_bytes is not idle again before it was used, and freed at
  ///   most once, with no event after that;
  /// - parameters and gradients are not more than the baseline;
  /// - sizes and times, those of a tier too, are finite and not negative, and plain's memory never falls below 0;
  /// - all bytes together are at most 2^60, all times 1e12 seconds, so that sums of them do not overflow.
  std::string problem() const;
  /// Whether there is no problem().
  bool is_valid() const { return problem().empty(); }

  /// The most bytes that plain has alive at once. The graph must be sound.
  int64_t plain_peak_bytes() const;

  /// Tells graphs apart by structure: operators, values and order of events, without times and the bytes between.
  uint64_t fingerprint() const;

  bool operator==(const Graph&) const = default;
};

/// JSON with the names above.
std::string to_json(const Graph& graph);
/// What to_json() wrote. Throws Error on anything that is not a sound graph of this version.
Graph graph_from_json(std::string_view text);

}  // namespace remat
