#include "session/step_planner.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <utility>

#include <remat/budget.h>
#include <remat/error.h>
#include <remat/planner.h>
#include <remat/support/number_text.h>

#include "plan/choice.h"
#include "plan/form_costs.h"
#include "plan/resize.h"
#include "plan/simulate.h"

namespace remat {
namespace {

constexpr double kPlenty = 2;  ///< times what plain takes
/// Where the room has changed by more than such a part since plans were searched for, it is searched anew: an
/// optimizer's state comes after the first step. So many times, for rooms that change in every step.
constexpr int64_t kPartsOfRoom = 32;
constexpr int kMostMoves = 3;
constexpr int64_t kPartsOfCurve = 8;  ///< of plain's activation peak: the budgets that a pool's steps are planned for

bool moves_values(const Plan& plan) { return std::ranges::find(plan.actions, Action::kMove) != plan.actions.end(); }

/// Where a plan was made for another step.
std::string whose_plan(const Schedule& followed, const PlanFollower& following) {
  if (following.has_gaps()) return "the plan is that of a step that ran some operators more or fewer";
  return followed.resized ? "the plan is that of a step of other sizes" : "";
}

}  // namespace

StepPlanner::StepPlanner(std::string planner, bool pack, std::optional<Plan> given)
    : planner_(std::move(planner)), pack_(pack), given_(std::move(given)) {
  if (planner_ == "online") return;
  std::string names = "online";
  for (const PlannerInfo& info : list_planners()) {
    if (info.name == planner_) return;
    if (info.name != "online") names += ", " + std::string(info.name);
  }
  throw Error("[session] there is no planner \"" + planner_ + "\"; there are " + names);
}

bool StepPlanner::KnownStep::is_explored(int64_t room_bytes) const {
  return std::ranges::any_of(
      explored_rooms, [=](int64_t explored) { return std::abs(room_bytes - explored) <= explored / kPartsOfRoom; });
}

/// Plans whose peaks are those of steps that began with other bytes alive.
void StepPlanner::forget_other_baseline(KnownStep& step) {
  if (step.explored_baseline == step.graph.baseline_bytes) return;
  step.explored_baseline = step.graph.baseline_bytes;
  step.found.reset();
  step.exploration = Search();
  step.explored_rooms.clear();
  step.has_curve = false;
}

void StepPlanner::explore(KnownStep& step, int64_t room) const {
  if (!is_worth_planning(step)) return;
  // Now the times are known well, and the Pareto front is there to stay: the room may change a little in every step.
  const bool refine = times_seen(step.structure) >= kSamples;
  const PlannerOptions options{.pack = pack_, .refine = refine};
  const auto search = [graph = step.graph, limit = step.budget_within(room), options] {
    return planners::plans_around(graph, limit, options);
  };
  using Future = std::future<planners::FoundPlans>;
  forget_other_baseline(step);
  step.explored_rooms.push_back(room);
  try {
    step.exploration = Search(new Future(std::async(std::launch::async, search)));
  } catch (const std::system_error&) {  // no thread to be had: when the plan is asked for, then
    step.exploration = Search(new Future(std::async(std::launch::deferred, search)));
  }
}

/// The plan that the user gave, if it is for this step and fits.
std::optional<Plan> StepPlanner::given_plan(const KnownStep& step, int64_t budget) const {
  if (!given_ || !given_->is_valid(step.graph)) return std::nullopt;
  Plan plan = *given_;
  const Prediction now = predict(step.graph, plan.actions, budget);  // the times and the baseline may be others
  if (now.peak_bytes > budget) return std::nullopt;
  plan.budget_bytes = budget;
  plan.predicted_peak_bytes = now.peak_bytes;
  plan.predicted_seconds = now.seconds;
  return plan;
}

/// The plan that keeps everything, if it fits.
std::optional<Plan> StepPlanner::plain_plan(const KnownStep& step, int64_t budget) const {
  Plan plan =
      finished_plan(step.graph, INT64_MAX, planner_, planners::Actions(step.graph.values.size(), Action::kKeep));
  if (plan.predicted_peak_bytes > budget) return std::nullopt;
  plan.budget_bytes = budget;
  return plan;
}

void StepPlanner::expect_room(int64_t room) {
  for (KnownStep& step : known_) step.moves = 0;
  if (known_.empty() || planner_ != "auto") return;
  KnownStep& step = known_.front();
  if (!step.found || is_in_progress(step.exploration) || step.is_explored(room)) return;
  if (!given_plan(step, step.budget_within(room))) explore(step, room);
}

std::optional<int64_t> StepPlanner::smallest_planned(int64_t room, bool keep_plans) {
  if (known_.empty()) return std::nullopt;
  KnownStep& step = known_.front();
  const int64_t budget = step.budget_within(room), baseline = step.graph.baseline_bytes;
  if (const auto given = given_plan(step, budget)) return given->predicted_peak_bytes - baseline;
  if (planner_ == "online") return std::nullopt;
  if (planner_ == "auto") {
    planners::FoundPlans found{.front = planners::plans_of_curve(step.graph, {budget}, {.pack = pack_}), .unmoved = {}};
    if (!keep_plans) return found.front.lowest_peak() - baseline;
    forget_other_baseline(step);
    if (step.found) found.offer(*step.found);
    step.found = std::move(found);
    step.room.reset();
    return step.found->front.lowest_peak() - baseline;
  }
  try {
    return make_plan(step.graph, budget, planner_, {.pack = pack_}).predicted_peak_bytes - baseline;
  } catch (const BudgetError& error) {
    return error.needed_bytes() - baseline;
  }
}

/// Waits for a search in progress, and adds what it has found.
void StepPlanner::take_found(KnownStep& step) {
  if (is_in_progress(step.exploration)) {
    planners::FoundPlans found = step.exploration->get();
    if (step.found) found.offer(*step.found);
    step.found = std::move(found);
  }
  step.exploration = Search();
}

void StepPlanner::explore_curve(KnownStep& step) const {
  forget_other_baseline(step);
  take_found(step);
  if (step.has_curve) return;
  step.has_curve = true;
  std::vector<int64_t> budgets;
  for (int64_t part = 1; part < kPartsOfCurve; ++part) {
    budgets.push_back(step.budget_within(step.kept_peak * part / kPartsOfCurve));
  }
  planners::FoundPlans found{.front = planners::plans_of_curve(step.graph, std::move(budgets), {.pack = pack_}),
                             .unmoved = {}};
  if (step.found) found.offer(*step.found);
  step.found = std::move(found);
  step.room.reset();
}

PoolDemand StepPlanner::demand(bool searches) {
  if (known_.empty()) return {};
  KnownStep& step = *std::ranges::max_element(known_, {}, &KnownStep::kept_peak);
  PoolDemand result{.step_seconds = step.graph.step_seconds};
  const bool plans = planner_ == "auto" && !given_;
  if (plans && searches && step.saves) explore_curve(step);
  if (plans && step.found) {
    for (const auto& [peak, point] : step.found->front.points()) {
      const int64_t bytes = peak - step.explored_baseline;
      if (bytes < step.kept_peak && point.seconds > 0) result.curve.push_back({bytes, point.seconds});
    }
  }
  result.curve.push_back({step.kept_peak, 0});
  return result;
}

/// The fastest of `plans` that is within `room` in the step's graph as it is now: plans of earlier searches may have
/// other peaks there.
std::optional<Plan> StepPlanner::fastest_within(const planners::ParetoFront& plans, const KnownStep& step,
                                                int64_t room) const {
  const int64_t budget = step.budget_within(room);
  for (auto next = plans.points().upper_bound(step.explored_baseline + room); next != plans.points().begin(); --next) {
    const planners::Actions& actions = std::prev(next)->second.actions;
    if (predict(step.graph, actions, budget).peak_bytes <= budget) {
      return finished_plan(step.graph, budget, planner_, actions);
    }
  }
  return std::nullopt;
}

/// The fastest plan within the budget that a search finds, if there is one. Where that moves values and another does
/// not, the one whose turn it is.
std::optional<Plan> StepPlanner::searched_plan(KnownStep& step, int64_t room) const {
  const bool again = step.found && !step.is_explored(room) && step.moves < kMostMoves;
  if (again) ++step.moves;
  take_found(step);  // of a search that a change of the budget began: perhaps for another one than is in force now
  if (!step.found || again) {
    explore(step, room);
    take_found(step);
  }
  if (!step.found) return std::nullopt;
  auto fastest = fastest_within(step.found->front, step, room);
  if (!fastest || !moves_values(*fastest)) return fastest;
  auto unmoved = fastest_within(step.found->unmoved, step, room);
  if (!unmoved) return fastest;
  if (!step.trial || std::abs(room - step.trial_room) > step.trial_room / kPartsOfRoom) {
    step.trial.emplace();
    step.trial_room = room;
  }
  return step.trial->wants_moves() ? fastest : unmoved;
}

std::optional<Plan> StepPlanner::best_plan(KnownStep& step, int64_t room) const {
  const int64_t budget = step.budget_within(room);
  if (auto given = given_plan(step, budget)) return given;
  if (planner_ == "online") return std::nullopt;
  if (planner_ != "auto") return make_plan(step.graph, budget, planner_, {.pack = pack_});
  if (auto plain = plain_plan(step, budget)) return plain;
  return searched_plan(step, room);
}

void StepPlanner::plan(KnownStep& step, int64_t room) const {
  if (step.room == room) return;
  step.room = room;
  step.schedule = nullptr;
  try {
    if (auto plan = best_plan(step, room)) {
      // A plan that was given is for the very graph.
      const bool given = given_ && given_->actions == plan->actions;
      step.schedule = std::make_shared<const Schedule>(
          Schedule{.graph = step.graph, .plan = *std::move(plan), .structure = given ? 0 : step.structure});
    }
  } catch (const BudgetError&) {  // what decides when memory runs short may still find a way
  }
}

/// The fastest of what was found for other sizes of the structure that fits, or plain; null if none does. With a
/// `margin`, a share of the activations, if one fits with it.
std::shared_ptr<Schedule> StepPlanner::chosen(Graph graph, uint64_t structure, int64_t limit, double margin,
                                              const std::vector<bool>& away) const {
  const int64_t room = std::max<int64_t>(0, limit - graph.baseline_bytes);
  const auto spared = static_cast<int64_t>(margin * static_cast<double>(room));
  for (const int64_t within : {limit - spared, limit}) {
    planners::Choice choice(graph, within, away);
    choice.offer(planners::Actions(graph.values.size(), Action::kKeep));
    for (const KnownStep& known : known_) {
      if (known.structure != structure) continue;
      if (known.found) choice.offer(known.avoids_moves() ? known.found->unmoved : known.found->front);
      if (known.schedule && known.schedule->structure != 0) choice.offer(known.schedule->plan.actions);
    }
    if (!choice.fits()) continue;
    auto result = std::make_shared<Schedule>(Schedule{.graph = std::move(graph), .plan = {}, .structure = structure});
    result->plan = {.planner = planner_,
                    .graph_fingerprint = result->graph.fingerprint(),
                    .budget_bytes = limit,
                    .predicted_peak_bytes = choice.run().peak_bytes,
                    .predicted_seconds = choice.run().seconds,
                    .forms = form_costs(result->graph),
                    .actions = choice.best()};
    return result;
  }
  return nullptr;
}

/// Does `followed` drop nothing, with so much room that it need not be simulated for the sizes seen?
bool StepPlanner::has_plenty(const Schedule& followed, const PlanFollower::Seen& seen) const {
  if (followed.plan.predicted_seconds > 0) return false;
  double known = 1, now = 1;
  for (size_t v = 0; v < seen.bytes.size(); ++v) {
    if (seen.bytes[v] < 0) continue;
    known += static_cast<double>(followed.graph.values[v].bytes);
    now += static_cast<double>(seen.bytes[v]);
  }
  const double growth = std::max(1.0, now / known);
  const auto taken = static_cast<double>(followed.plan.predicted_peak_bytes - followed.graph.baseline_bytes);
  return kPlenty * growth * growth * taken < static_cast<double>(room_);
}

std::shared_ptr<const Schedule> StepPlanner::resized(const std::shared_ptr<const Schedule>& followed,
                                                     const PlanFollower::Seen& seen) const {
  if (has_plenty(*followed, seen)) return followed;
  std::vector<const Graph*> graphs;
  for (const KnownStep& known : known_) {
    if (known.structure == followed->structure) graphs.push_back(&known.graph);
  }
  if (graphs.empty() || planner_ == "online") return nullptr;
  Resized foretold = resize(graphs, seen.bytes);
  const int64_t limit = foretold.graph.baseline_bytes + room_;
  const auto schedule =
      chosen(std::move(foretold.graph), followed->structure, limit, foretold.exact ? 0 : margin_, seen.away);
  if (schedule != nullptr) schedule->resized = true;
  return schedule;
}

std::vector<std::shared_ptr<const Schedule>> StepPlanner::schedules(int64_t room) {
  room_ = room;
  for (KnownStep& step : known_) {
    if (is_worth_planning(step)) plan(step, room);
  }
  std::vector<std::shared_ptr<const Schedule>> result;
  for (KnownStep& step : known_) {
    if (!is_worth_planning(step) && step.room != room && planner_ != "online") {
      step.room = room;
      step.schedule = chosen(step.graph, step.structure, step.budget_within(room), 0, {});
    }
    if (step.schedule && room > step.refused_room) result.push_back(step.schedule);
  }
  return result;
}

// ---- Which plan or policy chose the values that a step evicted, and why: for reports. ----

/// Why the plan given cannot be followed on `graph` within `room` bytes above the baseline (nothing: any); empty where
/// it can be.
std::string StepPlanner::given_problem(const Graph& graph, std::optional<int64_t> room) const {
  if (given_->graph_fingerprint != graph.fingerprint()) return "is of another graph";
  if (!given_->is_valid(graph)) return "is damaged: " + given_->problem(graph);
  if (!room) return {};
  const int64_t taken = predict(graph, given_->actions, graph.baseline_bytes + *room).peak_bytes - graph.baseline_bytes;
  if (taken <= *room) return {};
  return "takes " + format_exact_bytes(taken) + " beside what was alive before the step, the budget leaves " +
         format_exact_bytes(*room);
}

/// Empty where the plan given is not what stood in the way.
std::string StepPlanner::why_not_given(const Schedule* followed, const Graph* traced) const {
  if (!given_ || (followed == nullptr && traced == nullptr && known_.empty())) return {};
  // A step that is not traced is most likely as the last.
  const Graph& graph = followed != nullptr ? followed->graph : traced != nullptr ? *traced : known_.front().graph;
  const KnownStep* const known = find(graph.fingerprint());
  if (known != nullptr && known->once) return {};
  if (known == nullptr || !known->room) return given_problem(graph, {});
  return given_problem(known->graph, *known->room);
}

std::string StepPlanner::why_online(const PlanFollower& following, const Graph* traced) const {
  if (planner_ == "online" && !given_) return {};
  if (following.found_none()) return "there is no plan within the budget for a step of these sizes";
  if (known_.empty()) return "the first step is recorded";
  const KnownStep* const known = traced == nullptr ? &known_.front() : find(traced->fingerprint());
  if (known == nullptr) return "the step was like none recorded before";
  if (!known->room) return "a step like this one was recorded only once";
  return known->schedule ? "the step was like none that there is a plan for" : "there is no plan within the budget";
}

StepPlanner::Decision StepPlanner::decision(const Schedule* followed, const PlanFollower& following,
                                            const Graph* traced) const {
  // A planner's own plan that evicts the same values is the plan given.
  const auto is_given = [this](const Plan& plan) {
    return given_ && given_->graph_fingerprint == plan.graph_fingerprint && given_->actions == plan.actions;
  };
  if (followed != nullptr && is_given(followed->plan)) return {"plan given", ""};
  const std::string problem = why_not_given(followed, traced);
  return {followed != nullptr ? planner_ : "online", !problem.empty()      ? "the plan given " + problem
                                                     : followed == nullptr ? why_online(following, traced)
                                                                           : why_plan(*followed, following)};
}

std::string StepPlanner::why_plan(const Schedule& followed, const PlanFollower& following) const {
  const auto step =
      std::ranges::find_if(known_, [&](const KnownStep& known) { return known.schedule.get() == &followed; });
  if (step == known_.end() || !step->avoids_moves() || following.has_gaps()) return whose_plan(followed, following);
  return "moves were tried: steps took " + support::short_text(step->trial->seconds_with_moves(), 3) +
         " s with them, " + support::short_text(step->trial->seconds_without_moves(), 3) + " s without";
}

void StepPlanner::note_seconds(const Schedule& followed, double seconds) {
  for (KnownStep& step : known_) {
    if (step.schedule.get() != &followed || !step.trial || step.trial->is_over()) continue;
    step.trial->note(moves_values(followed.plan), seconds);
    step.room.reset();
  }
}

}  // namespace remat
