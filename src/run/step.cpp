// A step's end, where everything about it is measured, and what its user may do with it meanwhile.
#include <algorithm>
#include <utility>

#include <remat/memory.h>

#include "memory/cpu_allocator.h"
#include "record/autograd_engine.h"
#include "record/recorder.h"
#include "record/step_extent.h"
#include "run/session_impl.h"

namespace remat {
namespace {

/// Replays by operator name, the most expensive first.
std::vector<ReplayedOperator> replayed_operators(const Tape& tape) {
  std::vector<ReplayedOperator> result;
  for (const auto& [info, cost] : tape.counts.replayed) {
    result.push_back({info->base_name(), cost.count, cost.seconds, cost.bytes});
  }
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return result;
}

}  // namespace

void Step::Impl::end(bool completed) {
  if (ended.exchange(true)) return;
  if (is_parents()) {
    trace.reset();
    enforcement.reset();
    return;
  }
  if (!completed) release_abandoned_gradients();
  const std::lock_guard lock(tape->mutex);
  session->first_seen = {report.baseline_bytes, tape->counts.adopted_bytes};
  report.baseline_bytes += tape->counts.adopted_bytes;  // they were alive when the step began, but not counted
  report.completed = completed && std::uncaught_exceptions() == exceptions;
  report.record_bytes = tape->record_bytes();
  report.step_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::optional<Graph> graph;
  if (trace != nullptr) {
    tape->values.trace = nullptr;
    graph =
        trace->take(report.baseline_bytes, report.step_seconds - report.planning_seconds - tape->counts.replay_seconds);
    // Views of one storage count once, and gradients may have come since: never more than there was.
    graph->parameter_bytes = std::min(tape->counts.parameter_bytes, graph->baseline_bytes);
    graph->gradient_bytes = std::min(tape->counts.gradient_bytes, graph->baseline_bytes - graph->parameter_bytes);
    trace.reset();
  }
  const Following& following = tape->following;
  const std::shared_ptr<const Schedule> schedule = following.followed_to_the_end(*tape);
  const auto decision = session->planner.decision(schedule.get(), following, graph ? &*graph : nullptr);
  report.decided_by = decision.by;
  report.decision_reason = decision.reason;
  if (schedule != nullptr) {
    if (!following.is_approximate()) {
      if (report.completed) session->followed = schedule;
      report.planned_peak_bytes =
          report.baseline_bytes + schedule->plan.predicted_peak_bytes - schedule->graph.baseline_bytes;
    }
  }
  tape->following.resize = nullptr;
  if (report.completed) {
    session->planner.note(schedule != nullptr, tape->counts.shortages, graph.has_value());
    if (schedule != nullptr && following.has_gaps()) {  // else it is among those that are observed
      const int64_t room = session->limit_for(report.baseline_bytes) - report.baseline_bytes;
      session->planner.learn_times(*schedule, following.seconds(*tape), room);
    }
  }
  if (const auto* recorder = Recorder::current();
      recorder != nullptr && recorder->tape() == tape && recorder->is_idle()) {
    Recorder::stop();
  } else {  // ended by another thread, or by what an operator let go of
    tape->closed = true;
    tape->collect();
  }
  memory::Ledger& ledger = *tape->values.ledger;
  if (follows_plain) report.budget_bytes = session->eviction.limit_in_the_end();
  report.peak_bytes = std::max(ledger.step_peak(), report.baseline_bytes);
  report.plain_peak_bytes = std::max(ledger.plain_peak(), report.baseline_bytes);
  enforcement.reset();  // now a step of another thread may begin to count anew
  report.end_bytes = ledger.current();
  session->note_gradients_of(*tape);
  report.held_replaced_bytes = tape->counts.saved_bytes;
  report.resident_peak_bytes = memory::resident_peak();
  report.operators_recorded = static_cast<int64_t>(tape->program.size());
  report.values_saved = tape->counts.saved_values;
  report.values_dropped = tape->counts.evicted_values;
  report.dropped_bytes = tape->counts.evicted_bytes;
  report.values_packed = tape->counts.packed_values;
  report.packed_bytes = tape->counts.packed_bytes;
  report.operators_replayed = tape->counts.replays;
  report.recompute_seconds = tape->counts.replay_seconds;
  for (const auto& operation : tape->program) report.forward_seconds += operation.seconds;
  report.replayed = replayed_operators(*tape);
  if (report.completed) {
    auto& smallest = session->smallest_step;
    const int64_t measured = report.peak_bytes - report.baseline_bytes;
    if (!smallest || measured < smallest->activation_peak) smallest = {measured, tape->counts.gradient_bytes};
    // A step that did nothing is no measure, and a short batch none for the long ones after it.
    if (const int64_t peak = report.plain_activation_peak_bytes(); peak > session->plain_activation_peak.value_or(0)) {
      session->plain_activation_peak = peak;
      session->outgrown = false;
    }
    const int64_t room = session->limit_for(report.baseline_bytes) - report.baseline_bytes;
    if (graph) session->planner.observe(*std::move(graph), room);
  } else if (session->eviction.outgrew_share) {
    session->outgrown = true;
  }
  session->report = report;
  turn.reset();
  if (Tape::validates_steps()) tape->validate();
}

Step::Step(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Step::Step(Step&&) noexcept = default;
Step::~Step() {
  if (impl_) impl_->end(true);
}

Step::Impl& Step::impl() const {
  if (!impl_) throw Error("[session] this step was moved from; use the one that it was moved to");
  return *impl_;
}

const StepReport& Step::end(bool completed) {
  const bool was_open = !impl().ended && !impl_->is_parents();
  impl_->end(completed);
  // Put in its place since the step began: what it allocated was neither counted nor limited.
  if (was_open && impl_->session->options.device.is_cpu()) memory::check_cpu_allocator();
  return impl_->report;
}

void Step::enter_forward(std::function<bool()> goes_on) { impl().tape->extent->enter_forward(std::move(goes_on)); }
void Step::leave_forward() { impl().tape->extent->leave_forward(); }
void Step::end_when_released(bool completed) { impl().tape->extent->end_when_released(completed); }
void Step::hold_under(int64_t bytes, const std::string& name) {
  if (bytes >= impl().report.budget_bytes || impl_->ended) return;
  auto& eviction = impl_->session->eviction;
  impl_->report.budget_bytes = bytes;
  const int64_t limit = eviction.lower_limit(bytes, ", with " + name + " inside,");
  impl_->enforcement = impl_->tape->values.ledger->enforce(limit, eviction);
}
bool Step::has_ended() const { return impl().ended || impl_->is_parents(); }

int64_t Step::live_values() const { return impl().live_values(); }

}  // namespace remat
