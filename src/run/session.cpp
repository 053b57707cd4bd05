#include <remat/session.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <remat/memory.h>
#include <remat/planner.h>

#include "memory/fork.h"
#include "memory/ledger.h"
#include "plan/online_step.h"
#include "plan/replacement_file.h"
#include "plan/simulate.h"
#include "record/autograd_engine.h"
#include "record/draw_section.h"
#include "record/recorder.h"
#include "record/step_extent.h"
#include "record/trace.h"
#include "record/variable_hooks.h"
#include "run/batch_norm.h"
#include "run/eviction.h"
#include "run/step_planner.h"

namespace remat {
namespace {

/// Of its activations: what a step that has no plan may take more than predicted, by the times that it measures. (With
/// times that vary by a factor of two, a transformer took a 22nd more; on two cores with eight busy processes, every
/// second step of a small MLP took more than a 16th, and none of 720 more than a 12th.)
constexpr int64_t kPartForTimes = 8;

}  // namespace

struct Session::Impl {
  explicit Impl(SessionOptions given)
      : options(std::move(given)),
        eviction(memory::Ledger::of(options.device)),
        planner(options.planner, options.pack, options.plan) {}

  SessionOptions options;
  OnlineEviction eviction;
  StepPlanner planner;
  StepReport report;
  std::shared_ptr<const Schedule> followed;  ///< by the last step that followed one to its end
  int64_t steps = 0;
  std::optional<int64_t> plain_activation_peak;  ///< the largest of the steps that completed
  bool outgrown = false;  ///< by a step that was refused since, so that a share of it says nothing about the next
  struct Smallest {
    int64_t activation_peak = 0, gradients = 0;
  };
  std::optional<Smallest> smallest_step;  ///< of the same: its measured peak, and its gradients when it began
  std::atomic<bool> in_step = false;
  /// Between steps too: an operator of another thread that began before the watch is not seen.
  std::shared_ptr<const void> draws_watch = watch_draws();
  int forks = remat::forks();

  /// In a child of the process that used it last.
  void after_fork() {
    forks = remat::forks();
    in_step = false;
    eviction.after_fork();
  }

  /// Of the last step: bytes alive when it began, and those of older tensors that it was the first to meet.
  struct {
    int64_t baseline = 0, adopted = 0;
  } first_seen;
  /// Of the parameters that the last step read: the gradients that they had when it ended, and the bytes of those that
  /// they had when it began. (Not the parameters themselves: a weak reference to a tensor keeps
  /// torch.utils.swap_tensors from it.)
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> gradients;
  int64_t gradients_at_begin = 0;
  int64_t gradients_now() const {
    int64_t bytes = 0;
    for (const auto& weak : gradients) {
      if (const auto storage = weak.lock(); storage != nullptr) bytes += static_cast<int64_t>(storage->nbytes());
    }
    return bytes;
  }
  void note_gradients_of(Tape& tape) {
    gradients_at_begin = tape.gradient_bytes;
    gradients.clear();
    for (const auto& weak : std::exchange(tape.parameters, {})) {
      const auto parameter = weak.lock();
      if (parameter == nullptr) continue;
      const at::Tensor& gradient = parameter->grad();
      if (gradient.defined() && gradient.has_storage() && gradient.device() == options.device) {
        gradients.emplace_back(StoragePtr::reclaim_copy(storage_of(gradient)));
      }
    }
  }

  /// What a step that begins with `baseline` will meet. Inputs that come from elsewhere (NumPy, a DataLoader's workers)
  /// are new in every step; tensors older than the session count from their first step on.
  int64_t adopted_by(int64_t baseline) const { return baseline == first_seen.baseline ? first_seen.adopted : 0; }

  /// What earlier steps tell about one that began with `baseline` bytes alive, of which `tape` has what was recorded.
  /// (Where an earlier step made gradients that are there now, they count twice.)
  OnlineEviction::Known known_of(const Tape* tape, int64_t request, int64_t baseline) const {
    OnlineEviction::Known known;
    known.larger = tape != nullptr && planner.is_outgrown_by(*tape, request);
    const int64_t adopted = std::max(adopted_by(baseline), tape != nullptr ? tape->adopted_bytes : 0);
    // Gradients that were there when the earlier step began and are not now: backward makes them. Those of parameters
    // not read yet are taken to be as those read.
    const auto new_gradients = [&](int64_t gradients_then) -> int64_t {
      if (tape == nullptr || tape->parameter_bytes == tape->gradient_bytes) return 0;
      return std::max<int64_t>(0, gradients_then - tape->gradient_bytes);
    };
    if (smallest_step) {
      known.smallest = baseline + adopted + smallest_step->activation_peak + new_gradients(smallest_step->gradients);
    }
    const Graph* const graph = tape != nullptr ? planner.graph_like(*tape) : planner.graph();
    if (graph != nullptr && !known.larger) {
      const int64_t least = least_without_plan(*graph), plain = plain_activations(*graph);
      known.predicted = baseline + adopted + std::clamp(least + least / kPartForTimes, least, std::max(least, plain)) +
                        new_gradients(graph->gradient_bytes);
    }
    return known;
  }

  /// Bytes that a step without a plan adds to those alive before it, where it drops as much as it can: as predicted on
  /// the graph of an earlier one.
  int64_t least_without_plan(const Graph& graph) const {
    return planners::smallest_online_limit(graph, {.pack = options.pack}) - graph.baseline_bytes;
  }

  /// The same of a step that drops nothing.
  static int64_t plain_activations(const Graph& graph) {
    const std::vector<Action> keep_all(graph.values.size(), Action::kKeep);
    return Simulator(graph).run(keep_all).peak_bytes - graph.baseline_bytes;
  }

  /// The limit for a step that begins with `baseline` bytes alive, never above the device's. (A share of what is not
  /// known yet is for the policy to follow.)
  int64_t limit_for(int64_t baseline) const {
    const int64_t most = memory::limit(options.device);
    return std::min(wanted_for(baseline).value_or(most), most);
  }

  /// Is the budget a share of what is not known before the step has ended? (On CUDA such a step has the device.)
  bool follows_plain(int64_t baseline) const { return options.device.is_cpu() && !wanted_for(baseline); }

  /// For refusals, where no plan for the step that was recorded last fits: what it would take at least. (Eviction may
  /// go lower, where values are asked for more than once.)
  std::string known_need(int64_t limit) const {
    if (planner.graph() == nullptr) return {};
    const Floor floor = floor_of(*planner.graph());
    if (floor.peak_bytes <= limit) return {};
    return "; any plan for the step recorded last takes " + format_bytes(floor.peak_bytes) +
           " at least: " + to_text(floor) + "; " + advice(floor, limit);
  }

  /// What the user asked for; nothing while a percentage has no base, or one that is too small.
  std::optional<int64_t> wanted_for(int64_t baseline) const {
    switch (options.budget.kind()) {
      case Budget::Kind::kBytes:
        return options.budget.byte_count();
      case Budget::Kind::kDeviceLimit:
        return memory::limit(options.device);
      case Budget::Kind::kPercent:
        break;
    }
    if (!plain_activation_peak || outgrown) return std::nullopt;
    return baseline + static_cast<int64_t>(static_cast<double>(*plain_activation_peak) * options.budget.share() / 100);
  }
};

namespace {

/// A session's one step in progress, which another thread must not begin a second beside.
class Turn {
 public:
  explicit Turn(std::atomic<bool>& taken) : taken_(taken) {
    if (taken_.exchange(true)) {
      throw Error(
          "[session] a step of this session is in progress on another thread; end it first, or give each "
          "thread a session of its own");
    }
  }
  ~Turn() {
    if (forks_ == forks()) taken_ = false;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic<bool>& taken_;
  const int forks_ = forks();
};

}  // namespace

struct Step::Impl {
  std::shared_ptr<Session::Impl> session;
  std::optional<Turn> turn;
  std::shared_ptr<Tape> tape = std::make_shared<Tape>();
  std::unique_ptr<memory::Ledger::Enforcement> enforcement;
  std::unique_ptr<Trace> trace;
  StepReport report;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  int exceptions = std::uncaught_exceptions();
  std::atomic<bool> ended = false;
  bool follows_plain = false;  ///< the limit is a share of what plain has taken so far
  const int forks = remat::forks();

  void end(bool completed);
  int64_t live_values() const {
    const std::lock_guard lock(tape->mutex);
    return tape->live_values();
  }
  /// This is a copy of the step, in a child of its process.
  bool is_parents() const { return forks != remat::forks(); }
};

namespace {

/// Replays by operator name, the most expensive first.
std::vector<ReplayedOperator> replayed_operators(const Tape& tape) {
  std::vector<ReplayedOperator> result;
  for (const auto& [info, cost] : tape.replayed) {
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
  session->first_seen = {report.baseline_bytes, tape->adopted_bytes};
  report.baseline_bytes += tape->adopted_bytes;  // they were alive when the step began, but not counted
  report.completed = completed && std::uncaught_exceptions() == exceptions;
  report.record_bytes = tape->record_bytes();
  report.step_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::optional<Graph> graph;
  if (trace != nullptr) {
    tape->trace = nullptr;
    graph = trace->take(report.baseline_bytes, report.step_seconds - report.planning_seconds - tape->replay_seconds);
    // Views of one storage count once, and gradients may have come since: never more than there was.
    graph->parameter_bytes = std::min(tape->parameter_bytes, graph->baseline_bytes);
    graph->gradient_bytes = std::min(tape->gradient_bytes, graph->baseline_bytes - graph->parameter_bytes);
    trace.reset();
  }
  const auto* const schedule = tape->schedules.empty() ? nullptr : tape->schedules.front().get();
  const bool followed = schedule != nullptr && schedule->graph.operators.size() == tape->operations.size();
  const auto decision = session->planner.decision(followed ? schedule : nullptr, graph ? &*graph : nullptr);
  report.decided_by = decision.by;
  report.decision_reason = decision.reason;
  if (followed) {
    if (report.completed) session->followed = tape->schedules.front();
    report.planned_peak_bytes =
        report.baseline_bytes + schedule->plan.predicted_peak_bytes - schedule->graph.baseline_bytes;
  } else if (report.completed && !graph) {
    session->planner.surprised();
  }
  if (const auto* recorder = Recorder::current();
      recorder != nullptr && recorder->tape() == tape && recorder->is_idle()) {
    Recorder::stop();
  } else {  // ended by another thread, or by what an operator let go of
    tape->closed = true;
    tape->collect();
  }
  memory::Ledger& ledger = *tape->ledger;
  if (follows_plain) report.budget_bytes = session->eviction.limit_in_the_end();
  report.peak_bytes = std::max(ledger.step_peak(), report.baseline_bytes);
  report.plain_peak_bytes = std::max(ledger.plain_peak(), report.baseline_bytes);
  enforcement.reset();  // now a step of another thread may begin to count anew
  report.end_bytes = ledger.current();
  session->note_gradients_of(*tape);
  report.held_replaced_bytes = tape->saved_bytes;
  report.resident_peak_bytes = memory::resident_peak();
  report.operators_recorded = static_cast<int64_t>(tape->operations.size());
  report.values_saved = tape->saved_values;
  report.values_dropped = tape->drops;
  report.dropped_bytes = tape->dropped_bytes;
  report.values_packed = tape->packs;
  report.packed_bytes = tape->packed_bytes;
  report.operators_replayed = tape->replays;
  report.recompute_seconds = tape->replay_seconds;
  for (const auto& operation : tape->operations) report.forward_seconds += operation.seconds;
  report.replayed = replayed_operators(*tape);
  if (report.completed) {
    auto& smallest = session->smallest_step;
    const int64_t measured = report.peak_bytes - report.baseline_bytes;
    if (!smallest || measured < smallest->activation_peak) smallest = {measured, tape->gradient_bytes};
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
  impl().end(completed);
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
  impl_->enforcement = impl_->tape->ledger->enforce(limit, eviction);
}
bool Step::has_ended() const { return impl().ended || impl_->is_parents(); }

int64_t Step::live_values() const { return impl().live_values(); }

Session::Session(SessionOptions options) {
  if (!options.device.is_cpu() && !options.device.is_cuda() && !options.device.is_meta()) {
    throw Error("[session] device " + options.device.str() + " is not supported; use cpu, cuda or meta");
  }
  if (options.device.is_meta() && options.budget.kind() != Budget::Kind::kDeviceLimit) {
    throw Error("[session] a budget of " + options.budget.to_string() +
                " cannot be kept on the meta device, which has no memory; plan for it from graph()");
  }
  memory::start_accounting();
  memory::start_accounting(options.device);
  install_autograd_engine();
  install_variable_hooks();
  check_batch_norm();
  impl_ = std::make_shared<Impl>(std::move(options));
}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Session::Impl& Session::impl() const {
  if (!impl_) throw Error("[session] this session was moved from; use the one that it was moved to");
  return *impl_;
}

Step Session::step() {
  if (impl().forks != forks()) impl_->after_fork();
  if (Recorder::current() != nullptr) {
    throw Error("[session] a step or policy scope of this thread is in progress; end it before the next step");
  }
  memory::start_accounting(impl_->options.device);  // throws where another allocator has taken the place of ours
  auto step = std::make_shared<Step::Impl>();
  step->session = impl_;
  step->tape->extent = std::make_shared<StepExtent>(
      [ours = std::weak_ptr(step)](bool completed) {
        if (const auto step_of_extent = ours.lock()) step_of_extent->end(completed);
      },
      [ours = std::weak_ptr(step)] {
        const auto step_of_extent = ours.lock();
        return step_of_extent != nullptr && step_of_extent->live_values() == 0;
      });
  step->turn.emplace(impl_->in_step);
  auto& ledger = memory::Ledger::of(impl_->options.device);
  static std::atomic<uint64_t> steps = 0;
  step->tape->step = ++steps;
  step->tape->ledger = &ledger;
  step->tape->verify = impl_->options.verify;
  step->tape->pack_values = impl_->options.pack;
  step->tape->meta = impl_->options.device.is_meta();
  ledger.begin_step();
  const int64_t baseline = ledger.current();
  const int64_t expected = baseline + impl_->adopted_by(baseline);
  const int64_t limit = impl_->limit_for(expected);
  step->report.step = ++impl_->steps;
  step->report.baseline_bytes = baseline;
  step->report.budget_bytes = limit;
  const auto planning = std::chrono::steady_clock::now();
  step->tape->schedules = impl_->planner.schedules(limit - expected);
  step->report.planning_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - planning).count();
  impl_->eviction.name_step("step " + std::to_string(step->report.step) + " of " +
                            (impl_->options.name.empty() ? "the session" : impl_->options.name));
  impl_->eviction.baseline = baseline;
  const bool own_budget = impl_->options.budget.kind() != Budget::Kind::kDeviceLimit;
  impl_->eviction.of_device = !own_budget || impl_->wanted_for(expected).value_or(limit) > limit;
  impl_->eviction.known = [impl = impl_.get(), baseline](const Tape* tape, int64_t request) {
    return impl->known_of(tape, request, baseline);
  };
  impl_->eviction.known_need = step->tape->schedules.empty() ? impl_->known_need(limit) : "";
  if (baseline > limit) impl_->eviction.refuse(baseline, 0, limit);
  impl_->eviction.watch(step->tape);
  step->follows_plain = impl_->follows_plain(baseline);
  impl_->eviction.outgrew_share = false;
  impl_->eviction.share_of.reset();
  if (impl_->options.budget.kind() == Budget::Kind::kPercent && !step->follows_plain) {
    impl_->eviction.share_of = impl_->plain_activation_peak;
  }
  impl_->eviction.hold_still();
  const double share = impl_->options.budget.share() / 100;
  step->enforcement =
      ledger.enforce(step->follows_plain ? impl_->eviction.follow_plain(share, limit) : limit, impl_->eviction);
  if (impl_->planner.wants_trace() && !impl_->options.device.is_cuda()) {
    auto trace = std::make_unique<Trace>();
    if (memory::observe_allocations(*trace, impl_->options.device.type())) {
      step->trace = std::move(trace);
      step->tape->trace = step->trace.get();
    }
  }
  Recorder::start(step->tape);
  return Step(std::move(step));
}

const StepReport& Session::report() const {
  if (impl().report.step == 0) throw Error("[session] no step has ended yet; run one before asking for its report");
  return impl().report;
}

Graph Session::graph() const {
  if (impl().planner.graph() == nullptr) {
    throw Error(
        "[session] there is no graph: no step has completed yet, the planner is \"online\", another "
        "session's step was being written down at that time, or the device is not the CPU; run a step first");
  }
  return *impl_->planner.graph();
}

Plan Session::plan() const {
  if (!impl().followed) {
    throw Error(
        "[session] no step has followed a plan to its end yet: the first is recorded, and where the budget has no plan "
        "or the planner is \"online\" there is none; run more steps, or give more");
  }
  return impl_->followed->plan;
}

void Session::save_plan(const std::string& path) const {
  namespace fs = std::filesystem;
  const std::string text = to_json(plan());
  const auto fail = [&](const std::string& why) {
    throw Error("[session] cannot write the plan to '" + path + "' (" + why + "); give another path");
  };
  if (path.find('\0') != std::string::npos) fail("there is a zero byte in it");
  std::error_code error;
  const auto status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) fail("it is no regular file");
  if (!fs::exists(status) && fs::is_symlink(fs::symlink_status(path, error))) fail("it is a link to nothing");
  const auto target = fs::canonical(path, error);
  ReplacementFile file;
  if (!file.open(error ? path : target.string()) || !file.write(text.data(), text.size()) || !file.commit()) {
    fail(std::strerror(errno));
  }
}

std::optional<int64_t> Session::min_budget_bytes() const {
  const Graph* const graph = impl().planner.graph();
  if (graph == nullptr && !impl_->smallest_step) return std::nullopt;
  // What is alive now, is when the next step begins: an optimizer's state, a result that is kept. But gradients that
  // the last step made are made again, whether they are there or not.
  const StepReport& last = impl_->report;
  const bool between = !impl_->in_step && last.completed;
  const int64_t came = between ? memory::current(impl_->options.device) - impl_->gradients_now() -
                                     (last.baseline_bytes - impl_->gradients_at_begin)
                               : 0;
  const int64_t baseline = last.baseline_bytes + std::max<int64_t>(0, came);
  if (graph == nullptr) return baseline + impl_->smallest_step->activation_peak;
  // A first step has no plan, and where none fits, later ones do without.
  return impl_->least_without_plan(*graph) + std::max(baseline, graph->baseline_bytes);
}

std::optional<int64_t> Session::budget_bytes() const {
  return impl().wanted_for(memory::current(impl_->options.device));
}

}  // namespace remat
