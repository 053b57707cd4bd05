// Which plan or policy chose the values that a step evicted, and why: for reports.
#include <remat/budget.h>
#include <remat/planner.h>

#include "session/step_planner.h"

namespace remat {
namespace {

/// Where a plan was made for another step.
std::string whose_plan(const Schedule& followed, const PlanFollower& following) {
  if (following.has_gaps()) return "the plan is that of a step that ran some operators more or fewer";
  return followed.resized ? "the plan is that of a step of other sizes" : "";
}

}  // namespace

/// Why the plan given cannot be followed on `graph` within `room` bytes above the baseline (nothing: any); empty where
/// it can be.
std::string StepPlanner::given_problem(const Graph& graph, std::optional<int64_t> room) const {
  if (given_->graph_fingerprint != graph.fingerprint()) return "is of another graph";
  if (!given_->is_valid(graph)) return "is damaged: " + given_->problem(graph);
  if (!room) return {};
  const int64_t taken = predict(graph, given_->actions).peak_bytes - graph.baseline_bytes;
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
                                                                           : whose_plan(*followed, following)};
}

}  // namespace remat
