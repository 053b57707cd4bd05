// A step's end: what is measured, and what the session learns of it for later steps.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <remat/budget.h>
#include <remat/memory.h>

#include "device/device.h"
#include "plan/operator_seconds.h"
#include "session/session_impl.h"

namespace remat {
namespace {

/// Of the activations: what 100 % may take more for leaves of the records.
constexpr int64_t kPartBeyondPlain = 64;

/// Replays by operator name, the most expensive first. Overloads are one operator: mul.Tensor and mul.Scalar are mul.
std::vector<ReplayedOperator> replayed_operators(const Tape& tape) {
  std::map<std::string, ReplayedOperator> by_name;
  for (const auto& [info, cost] : tape.counts.replayed) {
    ReplayedOperator& sum =
        by_name.try_emplace(info->base_name(), ReplayedOperator{info->base_name(), 0, 0, 0}).first->second;
    sum.count += cost.count;
    sum.seconds += cost.seconds;
    sum.bytes += cost.bytes;
  }
  std::vector<ReplayedOperator> result;
  for (auto& [name, replayed] : by_name) result.push_back(std::move(replayed));
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return result;
}

}  // namespace

std::optional<Graph> Step::Impl::take_graph() {
  if (trace == nullptr) return std::nullopt;
  tape->set_trace(nullptr);
  const double seconds =
      report.step_seconds - report.planning_seconds - tape->counts.replay_seconds - tape->counts.move_wait_seconds;
  Graph graph = trace->take(report.baseline_bytes, std::max(0.0, seconds));  // threads may have waited at once
  for (size_t i = 0; tape->times && i < graph.operators.size(); ++i) {
    set_seconds(graph.operators[i], tape->program[static_cast<OperationId>(i)].seconds);
  }
  if (session->tier) graph.tier = session->tier->tier;
  // Views of one storage count once, and gradients may have come since: never more than there was.
  graph.parameter_bytes = std::min(tape->counts.parameter_bytes, graph.baseline_bytes);
  graph.gradient_bytes = std::min(session->gradients_at_begin_of(*tape), graph.baseline_bytes - graph.parameter_bytes);
  // Another thread may allocate after the baseline was read and before the trace began, and free that in the step.
  if (!graph.problem().empty()) return std::nullopt;
  return graph;
}

void Step::Impl::report_plan(const Graph* traced) {
  const std::shared_ptr<const Schedule> schedule = follower->followed_to_the_end(*tape);
  const auto decision = session->planner.decision(schedule.get(), *follower, traced);
  report.decided_by = decision.by;
  report.decision_reason = schedule == nullptr && compiled() ? "code was compiled in the step" : decision.reason;
  if (schedule != nullptr && !follower->is_approximate()) {
    if (report.completed) session->followed = schedule;
    const Graph& planned = schedule->graph;
    const int64_t new_gradients = std::max<int64_t>(0, planned.gradient_bytes - session->gradients_at_begin_of(*tape));
    report.planned_peak_bytes =
        report.baseline_bytes + schedule->plan.predicted_peak_bytes - planned.baseline_bytes + new_gradients;
  }
  follower->resize = nullptr;
  session->eviction.learn_times(*tape, report.completed, room());
  if (pool) session->asks_for_all = session->eviction.refusal() && !pool->runs_alone();
  if (!report.completed && session->eviction.refusal()) {
    const bool exact = !follower->schedules.empty() && !follower->is_approximate() && !follower->found_none();
    session->planner.note_refused(exact ? follower->schedules.front() : nullptr);
  }
  if (!report.completed) return;
  session->planner.note(schedule != nullptr, tape->counts.shortages, traced != nullptr);
  // On a device with streams a step that was not traced ends before its kernels.
  if (schedule != nullptr && traced == nullptr && !device::has_streams(session->options.device)) {
    session->planner.note_seconds(*schedule, report.step_seconds - report.planning_seconds);
  }
  if (schedule != nullptr && follower->has_gaps()) {  // without gaps it is among those that are observed
    followed_times = {.schedule = schedule, .seconds = follower->seconds(*tape)};
  }
}

void Step::Impl::report_measurements() {
  memory::Ledger& ledger = *tape->values.ledger;
  if (limit_rises) report.budget_bytes = session->eviction.limit_in_the_end();
  if (session->memory_followed && report.budget_bytes > first_limit) {
    report.budget_reason += (report.budget_reason.empty() ? "" : "; ") + std::string("raised in the step from ") +
                            format_bytes(first_limit) + ": nothing else could be dropped";
  }
  report.peak_bytes = std::max(measured->peak(), report.baseline_bytes);
  report.plain_peak_bytes = std::max(measured->plain_peak(), report.baseline_bytes);
  report.reserved_peak_bytes = measured->reserved_peak();
  plain_peak_without_state = measured->plain_peak_without_state();
  enforcement.reset();  // now a step of another thread may begin to count anew
  measured.reset();
  report.end_bytes = ledger.current();
  session->note_gradients_of(*tape);
  report.resident_peak_bytes = memory::resident_peak();
  report.operators_recorded = static_cast<int64_t>(tape->program.size());
  for (const auto& operation : tape->program) report.forward_seconds += operation.seconds;
  const StepCounts& counts = tape->counts;
  report.held_replaced_bytes = counts.saved_bytes;
  report.values_saved = counts.saved_values;
  report.values_dropped = counts.evicted_values;
  report.dropped_bytes = counts.evicted_bytes;
  report.values_packed = counts.packed_values;
  report.packed_bytes = counts.packed_bytes;
  report.values_moved = counts.moved_values;
  report.moved_bytes = counts.moved_bytes;
  report.move_wait_seconds = counts.move_wait_seconds;
  if (counts.failed_moves > 0 && !std::exchange(session->warned_of_tier, true)) {
    warning = "[session] " + std::to_string(counts.failed_moves) + " values of step " + std::to_string(report.step) +
              " were recomputed, as " + session->tier->target->name() + " failed: " + counts.move_error +
              "; look after it, or name none. Later failures are not told";
  }
  report.operators_replayed = counts.replays;
  report.recompute_seconds = counts.replay_seconds;
  report.replayed = replayed_operators(*tape);
}

void Step::Impl::learn_peaks() {
  if (!report.completed) return;
  learn_room_beyond_plain();
  auto& smallest = session->smallest_step;
  const int64_t took = report.peak_bytes - report.baseline_bytes;
  if (!smallest || took < smallest->activation_peak) smallest = {took, session->gradients_at_begin_of(*tape)};
  // A step that saved nothing had nothing to drop (an evaluation, a model whose tensors are elsewhere): it is no
  // measure, nor is a short batch for the long ones after it. State that updates in backward made is no activation. One
  // under a dispatch mode, or hooks of the user's, saved something that was not seen.
  if (tape->counts.saved_values == 0 && !tape->counts.differentiates) return;
  const int64_t peak = plain_peak_without_state - report.baseline_bytes;
  if (peak <= session->plain_activation_peak.value_or(0)) return;
  session->plain_activation_peak = peak;
  session->largest_results = std::move(follower->result_bytes);
}

void Step::Impl::learn_room_beyond_plain() {
  const int64_t own = tape->counts.generator_bytes + tape->counts.checksum_bytes;
  const int64_t beyond = report.peak_bytes - report.plain_peak_bytes - own;
  const int64_t most = (report.plain_peak_bytes - report.baseline_bytes) / kPartBeyondPlain;
  session->room_beyond_plain = std::max(session->room_beyond_plain, own + std::clamp<int64_t>(beyond, 0, most));
}

int64_t Step::Impl::room() const {
  return pool_room.value_or(session->limit_for(report.baseline_bytes) - report.baseline_bytes);
}

}  // namespace remat
