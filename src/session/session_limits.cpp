// The limit of a session's next step, and what a refusal says of the bytes that it would take.
#include <algorithm>
#include <utility>

#include <remat/memory.h>
#include <remat/planner.h>

#include "memory/enforcements.h"
#include "memory/ledger.h"
#include "observe/recorder.h"
#include "plan/simulate.h"
#include "session/session_impl.h"

namespace remat {
namespace {

/// Of its activations: what the first step of the next session, which has no plan yet (nor have those of the planner
/// "online"), may take more than predicted, by the times that it measures. (With times that vary by a factor of two, a
/// transformer took a 22nd more; on two cores with eight busy processes, every second step of a small MLP took more
/// than a 16th, and none of 720 more than an 11th.)
constexpr int64_t kPartForTimes = 8;

/// Of `request` bytes those that a recorded operator allocates. Others say nothing of the step's sizes: what remat does
/// for itself, such as a generator's state, what a backward pass does, or a compiled graph whose results are kept.
int64_t of_operator(int64_t request) {
  const Recorder* const recorder = Recorder::current();
  const bool recorded = recorder != nullptr && recorder->runs_recorded_operator();
  return recorded && !memory::FrozenPlain::active() ? request : 0;
}

}  // namespace

int64_t Session::Impl::gradients_now() const {
  int64_t bytes = 0;
  for (const auto& weak : gradients) {
    if (const auto storage = weak.lock(); storage != nullptr) bytes += static_cast<int64_t>(storage->nbytes());
  }
  return bytes;
}

void Session::Impl::note_gradients_of(Tape& tape) {
  gradients_at_begin = gradients_at_begin_of(tape);
  gradients = std::exchange(tape.gradients_of_others, {});
  for (const auto& [impl, weak] : std::exchange(tape.parameters, {})) {
    const auto parameter = weak.lock();
    if (parameter == nullptr) continue;
    const at::Tensor& gradient = parameter->grad();
    if (gradient.defined() && gradient.has_storage() && gradient.device() == options.device) {
      gradients.emplace_back(StoragePtr::reclaim_copy(storage_of(gradient)));
    }
  }
}

OnlineEviction::Known Session::Impl::known_of(const Tape* tape, int64_t request, int64_t baseline) const {
  OnlineEviction::Known known;
  known.larger = tape != nullptr && planner.is_outgrown_by(*tape, of_operator(request));
  const int64_t adopted = std::max(adopted_by(baseline), tape != nullptr ? tape->counts.adopted_bytes : 0);
  // Gradients that were there when the earlier step began and are not now: backward makes them. Those of parameters
  // not read yet are taken to be as those read.
  const auto gradients_to_make = [&](int64_t gradients_then) -> int64_t {
    if (tape == nullptr) return new_gradients(gradients_then);
    if (tape->counts.parameter_bytes == tape->counts.gradient_bytes) return 0;
    return std::max<int64_t>(0, gradients_then - gradients_at_begin_of(*tape));
  };
  if (smallest_step) {
    known.smallest = baseline + adopted + smallest_step->activation_peak + gradients_to_make(smallest_step->gradients);
    known.for_times = smallest_step->activation_peak / kPartForTimes;
  }
  const Graph* const graph = tape != nullptr ? planner.graph_like(*tape) : planner.graph();
  known.last = graph != nullptr && graph == planner.graph() && !known.larger;
  if (graph != nullptr && !known.larger) {
    const std::optional<int64_t> planned = planner.lowest_plan(*graph);
    const int64_t least = planned ? *planned : least_without_plan(*graph);
    const int64_t kept = kept_peak_bytes(*graph) - graph->baseline_bytes;
    known.predicted = baseline + adopted + std::clamp(least + least / kPartForTimes, least, std::max(least, kept)) +
                      gradients_to_make(graph->gradient_bytes);
  }
  return known;
}

bool Session::Impl::covers(const Tape& tape, int64_t request, const std::vector<int64_t>& results,
                           int64_t plain) const {
  if (tape.program.size() == 0 && planner.covers_unrecorded(plain)) return true;
  if (planner.graph() != nullptr) return planner.covers(tape, of_operator(request));
  const size_t now = std::min(results.size(), static_cast<size_t>(tape.forgotten_from));
  const size_t then = std::min(std::max<size_t>(now, 1), largest_results.size());
  const int64_t bytes = now > 0 ? results[now - 1] : of_operator(request);
  return then > 0 && bytes <= largest_results[then - 1];
}

int64_t Session::Impl::least_without_plan(const Graph& graph) const {
  return smallest_online_budget(graph, {.pack = options.pack}) - graph.baseline_bytes;
}

int64_t Session::Impl::limit_for(int64_t baseline) const {
  const int64_t most = memory::limit(options.device);
  return std::min(wanted_for(baseline).value_or(most), most);
}

void Session::Impl::begin_eviction(Step::Impl& step, int64_t limit, int64_t expected_baseline) {
  const bool own_budget = options.budget.kind() != Budget::Kind::kDeviceLimit;
  const int64_t baseline = step.report.baseline_bytes;
  const auto known = [this, baseline, limit, follower = step.follower](const Tape* tape, int64_t request) {
    OnlineEviction::Known told = known_of(tape, request, baseline);
    const bool may_be_read = tape != nullptr || request == 0;  // else another thread may be following them
    if (may_be_read && follower->schedules.empty()) told.need = known_need(baseline, limit);
    return told;
  };
  const auto* const measured = &*step.measured;
  const int64_t others_limit = memory::Ledger::of(options.device).enforced_limit();
  const auto is_covered = [this, baseline, measured, follower = step.follower](const Tape& tape, int64_t request) {
    return covers(tape, request, follower->result_bytes, measured->plain_peak() - baseline);
  };
  const auto fits_in_plain = [this](const Tape& tape, int64_t bytes) {
    return planner.fits_in_plain(tape, bytes, gradients_before);
  };
  eviction.begin({.name = "step " + std::to_string(step.report.step) + " of " +
                          (options.name.empty() ? "the session" : options.name),
                  .baseline = baseline,
                  .measured = measured,
                  .of_device = !own_budget || wanted_for(expected_baseline).value_or(limit) > limit,
                  .pool = step.pool ? &*step.pool : nullptr,
                  .beside_others = others_limit != INT64_MAX && !(step.pool && others_limit >= limit),
                  .known = known,
                  .is_covered = is_covered,
                  .fits_in_plain = fits_in_plain});
}

int64_t Session::Impl::agree_on_room(int64_t baseline, int64_t limit, int64_t room, bool& traces) {
  if (baseline > limit) {
    try {
      eviction.refuse(baseline, 0, limit);
    } catch (...) {
      if (ranks != nullptr) ranks->begin(room, traces, eviction.refusal());
      throw;
    }
  }
  return ranks == nullptr ? room : ranks->begin(room, traces, {});
}

/// Nothing was limited while the plan was made, and other threads may have allocated meanwhile.
void Session::Impl::check_beginning(int64_t limit, int64_t room) {
  if (memory_followed) return;  // it rises
  memory::Ledger& ledger = memory::Ledger::of(options.device);
  const int64_t alive = ledger.current();
  if (alive <= limit || memory::fits_after_a_while([&] { return ledger.current() <= limit; })) return;
  try {
    eviction.refuse(alive, 0, limit);
  } catch (...) {
    if (ranks != nullptr) ranks->end({.refusal = eviction.refusal(), .room = room});
    throw;
  }
}

std::string Session::Impl::known_need(int64_t baseline, int64_t limit) const {
  if (planner.graph() == nullptr) return {};
  Floor floor = floor_of(*planner.graph());
  const int64_t now = baseline + new_gradients(floor.gradient_bytes);
  floor.peak_bytes += now - floor.baseline_bytes;
  floor.baseline_bytes = now;
  if (floor.peak_bytes <= limit) return {};
  return "; any plan for a step like the one recorded last takes " + format_bytes(floor.peak_bytes) +
         " at least: " + to_text(floor) + "; " + advice(floor, limit);
}

OnlineEviction::Share Session::Impl::share(int64_t baseline, int64_t limit) const {
  if (memory_followed) return {.gives_way = true, .limit = limit, .most = memory::limit(options.device)};
  const bool known = plain_activation_peak.has_value();
  return {.percent = options.budget.share(),
          .of = plain_activation_peak,
          .beyond = beyond_share(),
          .limit = known ? limit : baseline,
          .expected_older = known ? adopted_by(baseline) : 0,
          .most = memory::limit(options.device)};
}

std::optional<int64_t> Session::Impl::wanted_for(int64_t baseline) const {
  switch (options.budget.kind()) {
    case Budget::Kind::kBytes:
    case Budget::Kind::kPool:
      return options.budget.byte_count();
    case Budget::Kind::kDeviceLimit:
      return memory::limit(options.device);
    case Budget::Kind::kPressure:
      return std::max(memory_followed->limit(), baseline);
    case Budget::Kind::kPercent:
      break;
  }
  if (!plain_activation_peak) return std::nullopt;
  return baseline + beyond_share() +
         static_cast<int64_t>(static_cast<double>(*plain_activation_peak) * options.budget.share() / 100);
}

}  // namespace remat
