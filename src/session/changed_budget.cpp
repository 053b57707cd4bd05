// A session's budget that changes between its steps: by its user, by the memory that is left, or
// by what a pool grants.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <remat/memory.h>
#include <remat/planner.h>

#include "device/cpu_ledger.h"
#include "plan/simulate.h"
#include "pytorch/raise.h"
#include "session/session_impl.h"
#include "util/seconds_since.h"

namespace remat {
namespace {

/// Of what a step takes in plain, the part that a pool leaves free for what a plan does not foresee.
constexpr int64_t kPartUnforeseen = 64;

}  // namespace

int64_t Session::Impl::next_baseline() const {
  const int64_t now = memory::current(options.device);
  if (report.step == 0) return now;
  // What is alive now, is when the next step begins: an optimizer's state, a result that is kept. But gradients that
  // the last step made are made again, whether they are there or not.
  const int64_t came = report.completed ? now - gradients_now() - (report.baseline_bytes - gradients_at_begin) : 0;
  return report.baseline_bytes + std::max<int64_t>(0, came);
}

void Session::Impl::use(const Budget& budget) {
  options.budget = budget;
  memory_followed.reset();
  company.clear();
  asks_for_all = false;
  if (budget.kind() == Budget::Kind::kPressure) memory_followed.emplace();
}

void Session::Impl::change_budget(const Budget& budget) {
  const Budget before = options.budget;
  if (budget == before && ranks == nullptr) return;
  auto followed_before = std::exchange(memory_followed, std::nullopt);
  use(budget);
  const auto keep = [&] {
    options.budget = before;
    memory_followed = std::exchange(followed_before, std::nullopt);
  };
  std::optional<TooSmall> problem;
  try {
    if (budget != before) problem = budget_problem();
    if (ranks != nullptr) ranks->change_budget(problem ? std::optional(problem->refusal) : std::nullopt);
  } catch (...) {
    keep();
    throw;
  }
  if (problem) {
    keep();
    const auto& refusal = problem->refusal;
    raise(BudgetError(problem->message + "; the one before, " + before.to_string() + ", stays in force",
                      refusal.budget_bytes, refusal.lower_bound_bytes, std::nullopt, refusal.needed_bytes,
                      problem->percent));
  }
  if (budget == before) {  // the other ranks' may be another
    keep();
    return;
  }
  const auto note = [](const Budget& was) { return "set_budget(): was " + was.to_string(); };
  if (budget_note == note(budget)) {
    budget_note.clear();  // the last step's again
  } else if (budget_note.empty()) {
    budget_note = note(before);
  }
  if (ranks != nullptr) return;  // which search for what they agree on
  const int64_t baseline = next_baseline();
  if (wanted_for(baseline)) planner.expect_room(limit_for(baseline) - baseline);
}

std::optional<Session::Impl::TooSmall> Session::Impl::budget_problem() {
  const Graph* const graph = planner.graph();
  const int64_t alive = next_baseline();
  const int64_t baseline = graph != nullptr ? std::max(alive, graph->baseline_bytes) : alive;
  const auto wanted = wanted_for(baseline);
  // Nothing is known of a share yet; the device's limit may be another by the next step; one by memory gives way.
  // What is alive beside a pool's steps is not known while some are in progress.
  const bool is_pool = options.budget.kind() == Budget::Kind::kPool;
  if (!wanted || memory_followed || is_pool || options.budget.kind() == Budget::Kind::kDeviceLimit) return std::nullopt;
  const int64_t limit = *wanted;
  int64_t least = 0;  // above the baseline
  if (graph != nullptr) {
    least = least_without_plan(*graph);
    if (baseline + least > limit)
      least = std::min(least, planner.smallest_planned(limit - baseline, ranks == nullptr).value_or(least));
  }
  const int64_t needed = baseline + least;
  if (needed <= limit) return std::nullopt;
  const int64_t bound = graph != nullptr ? baseline + floor_of(*graph).activation_bytes() : baseline;
  TooSmall problem{.refusal = {.budget_bytes = limit, .lower_bound_bytes = bound, .needed_bytes = needed}};
  std::string share;
  if (follows_plain()) {
    const double percent = std::ceil(100 * static_cast<double>(least) / static_cast<double>(*plain_activation_peak));
    if (percent <= 100) problem.percent = percent;
    if (percent <= 100) share = " or " + Budget::percent(percent).to_string();
  }
  problem.message = "[budget] the next step of " + (options.name.empty() ? "the session" : options.name) +
                    (graph != nullptr ? ", if it is like that recorded last, takes " : " begins with ") +
                    format_exact_bytes(needed) + ", the budget is " + format_exact_bytes(limit) + "; give " +
                    format_exact_bytes(needed) + share + ", or less work per step; no budget below " +
                    format_exact_bytes(bound) + " can work";
  return problem;
}

void Session::Impl::follow_memory(StepReport& to) {
  to.budget_reason = std::exchange(budget_note, "");
  if (!memory_followed) return;
  const memory::MemoryLeft left = memory::left_for_tensors();
  const int64_t own = memory::current(options.device) + memory::cached(options.device);
  const std::string change = memory_followed->follow(own, left, PressureBudget::Clock::now());
  if (!change.empty()) planner.expect_room(memory_followed->limit() - next_baseline());
  if (!change.empty()) to.budget_reason += (to.budget_reason.empty() ? "" : "; ") + change;
  to.available_bytes = left.bytes == INT64_MAX ? 0 : left.bytes;
  to.stalled_percent = left.stalled_percent;
}

void Session::Impl::ask_pool(Step::Impl& step) {
  const auto& pool = options.budget.pool();
  if (pool == nullptr) return;
  const auto planning = std::chrono::steady_clock::now();
  PoolDemand demand;
  int64_t beyond = 0;  // what is not in the graph, of which the demand is made
  if (const Graph* const graph = planner.graph(); graph != nullptr && !asks_for_all) {
    const int64_t kept = kept_peak_bytes(*graph) - graph->baseline_bytes;
    beyond = first_seen.adopted + new_gradients(graph->gradient_bytes) + room_beyond_plain + kept / kPartUnforeseen;
    const int64_t most = limit_for(0) - memory::current(options.device);
    demand = planner.demand(!company.empty() || pool->running() + pool->waiting() > 0 || kept + beyond > most);
    for (auto& point : demand.curve) point.bytes += beyond;
  }
  demand.session = this;
  step.report.planning_seconds = seconds_since(planning);
  const auto arrival = std::chrono::steady_clock::now();
  step.pool.emplace(pool, memory::Ledger::of(options.device), std::move(demand), company);
  step.begin += std::chrono::steady_clock::now() - arrival;
  step.report.granted_bytes = step.pool->granted();
  step.report.waited_seconds = step.pool->waited_seconds();
  if (!step.pool->runs_alone()) step.pool_room = step.pool->granted() - beyond;
}

int64_t Session::Impl::limit_by_memory() const {
  PressureBudget next = *memory_followed;
  const int64_t own = memory::current(options.device) + memory::cached(options.device);
  next.follow(own, memory::left_for_tensors(), PressureBudget::Clock::now());
  return next.limit();
}

}  // namespace remat
