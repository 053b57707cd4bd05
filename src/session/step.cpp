// A step's life: what its user may do with it, and its end.
#include <utility>

#include <c10/util/Exception.h>
#include <remat/extension.h>
#include <remat/memory.h>

#include "device/device.h"
#include "observe/recorder.h"
#include "observe/step_extent.h"
#include "pytorch/autograd_engine.h"
#include "session/session_impl.h"
#include "tape/value_rules.h"
#include "util/seconds_since.h"

namespace remat {

void Step::Impl::set_up(const std::shared_ptr<Session::Impl>& of) {
  static std::atomic<uint64_t> steps = 0;
  const SessionOptions& options = of->options;
  session = of;
  turn.emplace(of->in_step);
  tape->step = ++steps;
  tape->values.ledger = &memory::Ledger::of(options.device);
  tape->values.device = options.device;
  tape->values.verify = options.verify;
  tape->values.expect_emptied = of->empties_leaves;
  tape->pack_values = options.pack;
  if (of->tier) tape->moves.emplace(of->tier->target, of->tier->tier, tape->values, tape->counts);
  tape->meta = !device::kind_of(options.device).has_contents();
  if (of->ranks != nullptr) {
    tape->before_collective = [ranks = of->ranks](std::string_view name) { ranks->before_collective(name); };
  }
  tape->actions = follower;
  follower->resize = [impl = of.get()](const auto& followed, const PlanFollower::Seen& seen) {
    return impl->planner.resized(followed, seen);
  };
}

void Step::Impl::follow_plans(int64_t room, bool is_all) {
  const auto planning = std::chrono::steady_clock::now();
  if (!is_all) follower->schedules = session->planner.schedules(room);
  report.planning_seconds += seconds_since(planning);
}

void Step::Impl::put_in_force(int64_t limit, int64_t room) {
  session->eviction.watch(tape);
  limit_rises = session->follows_plain() || session->memory_followed;
  if (limit_rises) {
    report.budget_bytes = memory::limit(session->options.device);  // it may rise so far
    limit = session->eviction.let_rise(session->share(report.baseline_bytes, limit));
    first_limit = limit;
  }
  enforcement = tape->values.ledger->enforce(limit, session->eviction);
  measured->restart();  // what others allocated before the limit was in force is none of the step's
  session->check_beginning(limit, room);
}

void Step::Impl::begin_trace() {
  trace = std::make_unique<Trace>();
  memory::observe_allocations(*trace, session->options.device);
  tape->set_trace(trace.get());
  if (device::has_streams(session->options.device)) tape->times.emplace(session->options.device);
}

void Step::Impl::end(bool completed) {
  if (ended.exchange(true)) return;
  if (is_parents()) {
    trace.reset();
    enforcement.reset();
    return;
  }
  if (!completed) release_abandoned_gradients();
  std::optional<Graph> graph;
  {
    const std::lock_guard lock(tape->mutex);
    graph = stop(completed);
    learn_peaks();
  }
  pool.reset();  // what it had is free
  if (!warning.empty()) TORCH_WARN(warning);
  const RankAgreement::OwnStep agreed = tell_ranks(graph ? &*graph : nullptr);
  const std::lock_guard lock(tape->mutex);
  if (report.completed) session->empties_leaves = tape->values.emptied_leaves();
  if (report.completed && followed_times) session->planner.learn_times(*followed_times, agreed.room);
  if (report.completed && graph) {
    session->leaf_reads = std::move(tape->leaf_reads);
    session->planner.observe(*std::move(graph), agreed.room, agreed.changed, compiled(),
                             tape->counts.differentiates ? tape->counts.saved_values : -1);
  }
  session->report = report;
  turn.reset();
  if (value_rules::are_checked()) tape->validate();
}

std::optional<Graph> Step::Impl::stop(bool completed) {
  session->first_seen = {report.baseline_bytes, tape->counts.adopted_bytes};
  report.baseline_bytes += tape->counts.adopted_bytes;  // they were alive when the step began, but not counted
  report.completed = completed && std::uncaught_exceptions() == exceptions;
  report.record_bytes = tape->record_bytes();
  resolve();
  report.step_seconds = seconds_since(begin);
  std::optional<Graph> graph = take_graph();
  report_plan(graph ? &*graph : nullptr);
  stop_recording();
  trace.reset();
  report_measurements();
  return graph;
}

/// What the device has computed meanwhile. In a destructor too.
void Step::Impl::resolve() {
  try {
    if (tape->times) tape->times->resolve(tape->program);
    tape->values.checksums.deferred.resolve(report.completed);
  } catch (...) {  // of a kernel: devices tell of it to whoever waits, and some but once
    session->failure = std::current_exception();
  }
}

/// In a destructor too: what it meets is thrown by Step::end(), or as the session's next step begins.
RankAgreement::OwnStep Step::Impl::tell_ranks(Graph* graph) {
  if (session->ranks == nullptr) return {.room = room()};
  const RankAgreement::OwnStep own{.completed = report.completed,
                                   .refusal = session->eviction.refusal(),
                                   .graph = graph,
                                   .followed = followed_times ? &*followed_times : nullptr,
                                   .changed = graph != nullptr && session->planner.is_changed(*graph),
                                   .room = room()};
  try {
    return session->ranks->end(own);
  } catch (...) {
    if (report.completed) session->failure = std::current_exception();
    report.completed = false;
  }
  return own;
}

void Step::Impl::stop_recording() {
  const auto* const recorder = Recorder::current_of(tape);
  if (recorder != nullptr && tape->thread == std::this_thread::get_id() && recorder->is_idle()) {
    Recorder::stop();
  } else {  // ended by another thread, or when an operator released a saved tensor
    tape->collect();
  }
  tape->closed = true;
  tape->release_checksums();
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
  if (was_open) impl_->session->throw_failure();
  // Put in its place since the step began: what it allocated was neither counted nor limited.
  if (was_open) device::kind_of(impl_->session->options.device).check_accounting();
  return impl_->report;
}

bool Step::has_ended() const { return impl().ended || impl_->is_parents(); }

int64_t Step::live_values() const { return impl().live_values(); }

namespace extension {

void CalledStep::enter_forward(std::function<bool()> goes_on) const {
  step_.impl().tape->extent->enter_forward(std::move(goes_on));
}

void CalledStep::leave_forward() const { step_.impl().tape->extent->leave_forward(); }

int CalledStep::backward_passes() const { return step_.impl().tape->extent->backward_passes(); }

void CalledStep::hold_under(int64_t bytes, const std::string& name) const {
  Step::Impl& step = step_.impl();
  if (bytes >= step.report.budget_bytes || step.ended) return;
  auto& eviction = step.session->eviction;
  step.report.budget_bytes = bytes;
  const int64_t limit = eviction.lower_limit(bytes, ", with " + name + " inside,");
  step.enforcement = step.tape->values.ledger->enforce(limit, eviction);
}

bool CalledStep::was_refused() const {
  return !step_.has_ended() && step_.impl().session->eviction.refusal().has_value();
}

}  // namespace extension

}  // namespace remat
