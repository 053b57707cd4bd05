// remat/report.h -- what a step cost, measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace remat {

/// How often one operator was replayed in a step, and what that cost.
struct ReplayedOperator {
  std::string name;    ///< as in PyTorch's schemas: "aten::gelu"
  int64_t count = 0;   ///< replays
  double seconds = 0;  ///< time spent in them
  int64_t bytes = 0;   ///< bytes of results that they made
};

/// The measurements of one step. Plain data; all byte figures are tensor bytes on the session's device.
struct StepReport {
  int64_t step = 0;        ///< number of the step in its session, from 1
  bool completed = false;  ///< false where the step ended by an exception
  /// What chose the values to evict, to the end of the step: "plan given" (SessionOptions::plan), the name of the
  /// planner whose plan the step followed ("auto"), or "online": nothing was planned, memory decided as it ran short.
  std::string decided_by;
  /// Why the planner or plan of SessionOptions did not decide; empty where it did. Begins with "the plan given" where
  /// that is ignored, as in "the plan given is of another graph". Where a planner decided, whose plan it was if not the
  /// step's own: "the plan is that of a step of other sizes", "... that ran some operators more or fewer".
  std::string decision_reason;
  /// Why the budget is another than in the step before: "set_budget(): was 3.00 GiB", or what Budget::pressure() did,
  /// as in "lowered from 3.00 GiB: 210 MiB are left in /sys/fs/cgroup". Empty where it is the same.
  std::string budget_reason = {};
  int64_t available_bytes = 0;      ///< with Budget::pressure(): what was left when the step began; 0 with others
  double stalled_percent = 0;       ///< the same: the time that tasks have waited for memory in the last 10 seconds
  int64_t granted_bytes = 0;        ///< of a session in a Pool: what it granted to the step above its baseline; else 0
  double waited_seconds = 0;        ///< the same: waited for other steps of the pool before this one began
  int64_t budget_bytes = 0;         ///< the limit in force, parameters and everything else included
  int64_t baseline_bytes = 0;       ///< alive when the step began
  int64_t peak_bytes = 0;           ///< measured peak of the step, and of other threads' that were in progress
  int64_t planned_peak_bytes = 0;   ///< predicted by the plan that the step followed to its end; 0: there was none, or
                                    ///< it was for a step of other operators, or of other sizes where none was needed
  int64_t plain_peak_bytes = 0;     ///< what the peak would have been with every saved value kept
  int64_t end_bytes = 0;            ///< alive when the step ended
  int64_t record_bytes = 0;         ///< memory of remat's own records at their largest, generator states included
  int64_t held_replaced_bytes = 0;  ///< bytes of saved values that those records stand for
  int64_t reserved_peak_bytes = 0;  ///< the most that the device's caching allocator had taken from it in the step,
                                    ///< free blocks included; 0 on the CPU
  int64_t resident_peak_bytes = 0;  ///< the process's largest resident set, from the operating system

  int64_t operators_recorded = 0;          ///< of the forward pass, and of backward passes that make a graph
  int64_t values_saved = 0;                ///< distinct values that autograd saved
  int64_t values_dropped = 0;              ///< times that a saved value was evicted, to be recomputed, packed or moved
  int64_t dropped_bytes = 0;               ///< bytes evicted that way
  int64_t values_packed = 0;               ///< times that a value was held packed instead
  int64_t packed_bytes = 0;                ///< bytes that this freed
  int64_t values_moved = 0;                ///< times that a value was moved to the disk instead
  int64_t moved_bytes = 0;                 ///< bytes that this freed
  double move_wait_seconds = 0;            ///< waited for copies, there and back
  int64_t operators_replayed = 0;          ///< in all replays, each time counted
  double forward_seconds = 0;              ///< measured time of the recorded operators
  double recompute_seconds = 0;            ///< time spent in replays and in unpacking
  double planning_seconds = 0;             ///< waited for plans before the step began
  double step_seconds = 0;                 ///< wall time of the whole step, planning included, waited_seconds not
  std::vector<ReplayedOperator> replayed;  ///< by operator name, most expensive first

  /// peak_bytes - baseline_bytes: the peak that activations, gradients and scratch space made.
  int64_t activation_peak_bytes() const { return peak_bytes - baseline_bytes; }
  /// The same for plain.
  int64_t plain_activation_peak_bytes() const { return plain_peak_bytes - baseline_bytes; }
  /// How much smaller the activation peak is than plain's, in percent of plain's; 0 where plain has none.
  double saved_percent() const;
  /// What replays, unpacking and waiting for copies took, in percent of the step's time without them and without
  /// planning.
  double cost_percent() const;
};

/// A table for people.
std::string to_text(const StepReport& report);
/// One JSON object with the names of the fields above.
std::string to_json(const StepReport& report);
/// What to_json() wrote; seconds have 9 digits. Unknown names are skipped. Throws Error where one is missing or has
/// another type.
StepReport report_from_json(std::string_view text);

}  // namespace remat
