#include "run/step_planner.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <remat/budget.h>
#include <remat/error.h>
#include <remat/planner.h>

namespace remat {
namespace {

/// Steps whose times are looked at. The first is often slow: nothing is in any cache yet.
constexpr size_t kSamples = 4;
constexpr size_t kMostKnown = 32;  ///< different steps: lengths that inputs are padded to, say

double median(std::vector<double>& numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
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

bool StepPlanner::wants_trace() const {
  if (planner_ == "online" && !given_) return false;
  return to_look_for_ > 0 || known_.empty() || known_.front().samples.size() < kSamples;
}

void StepPlanner::use_medians(Graph& graph, const std::vector<StepTimes>& samples) {
  std::vector<double> seen;
  const auto median_of = [&](auto seconds) {
    seen.clear();
    for (const StepTimes& sample : samples) seen.push_back(seconds(sample));
    return median(seen);
  };
  graph.step_seconds = median_of([](const StepTimes& sample) { return sample.step; });
  for (size_t o = 0; o < graph.operators.size(); ++o) {
    GraphOperator& op = graph.operators[o];
    const double share = op.seconds > 0 ? op.replay_seconds / op.seconds : 1;
    op.seconds = median_of([o](const StepTimes& sample) { return sample.operators[o]; });
    op.replay_seconds = share * op.seconds;
  }
}

/// What contents can be packed to differs from step to step; a plan counts on the most that was seen.
void StepPlanner::use_largest_packed(const Graph& before, Graph& graph) {
  for (size_t v = 0; v < std::min(before.values.size(), graph.values.size()); ++v) {
    int64_t& now = graph.values[v].packed_bytes;
    const int64_t then = before.values[v].packed_bytes;
    now = now == 0 || then == 0 ? 0 : std::max(now, then);
  }
}

bool StepPlanner::same_memory(const Graph& a, const Graph& b) {
  const auto same_packed = [](const GraphValue& x, const GraphValue& y) { return x.packed_bytes == y.packed_bytes; };
  return a.events == b.events &&
         std::equal(a.values.begin(), a.values.end(), b.values.begin(), b.values.end(), same_packed);
}

void StepPlanner::observe(Graph graph, int64_t room) {
  const uint64_t fingerprint = graph.fingerprint();
  auto step = std::find_if(known_.begin(), known_.end(), [&](const auto& k) { return k.fingerprint == fingerprint; });
  to_look_for_ = std::max(0, to_look_for_ - 1);
  if (step == known_.end()) {
    to_look_for_ = 0;
    if (known_.size() == kMostKnown) known_.pop_back();
    step = known_.emplace(known_.end());
    step->fingerprint = fingerprint;
  }
  std::rotate(known_.begin(), step, step + 1);
  KnownStep& seen = known_.front();
  StepTimes times{.operators = {}, .step = graph.step_seconds};
  for (const GraphOperator& op : graph.operators) times.operators.push_back(op.seconds);
  use_largest_packed(seen.graph, graph);
  const bool same = same_memory(seen.graph, graph);
  seen.graph = std::move(graph);
  const bool more = seen.samples.size() < kSamples;
  if (more) seen.samples.push_back(std::move(times));
  use_medians(seen.graph, seen.samples);
  // After 1, 2 and 4 steps the times are worth a new plan.
  const bool news = !same || (more && (seen.samples.size() & (seen.samples.size() - 1)) == 0);
  if (!news) return;
  seen.frontier.reset();
  seen.room.reset();
  seen.exploration = Search();  // waits for one that nobody asked for
  if (planner_ != "auto") return;
  const int64_t budget = seen.budget_within(room);
  // Else only where it turns out to be needed.
  if (!given_plan(seen, budget) && !plain_plan(seen, budget)) explore(seen, room);
}

const Graph* StepPlanner::graph_like(const Tape& tape) const {
  for (const KnownStep& step : known_) {
    if (tape.begins_like(step.graph)) return &step.graph;
  }
  return nullptr;
}

bool StepPlanner::is_outgrown_by(const Tape& tape, int64_t request) const {
  bool any = false;
  for (const KnownStep& step : known_) {
    const auto compared = tape.compare_sizes(step.graph);
    if (compared == Tape::Sizes::kOther) continue;
    any = true;
    if (compared == Tape::Sizes::kLarger) continue;
    if (tape.operations.size() >= step.graph.operators.size()) return false;
    const GraphOperator& next = step.graph.operators[tape.operations.size()];
    int64_t most = next.scratch_bytes;
    for (const int32_t made : next.results) most = std::max(most, step.graph.values[static_cast<size_t>(made)].bytes);
    if (request <= most) return false;
  }
  return any;
}

/// What was seen once among others may never come again: not worth planning.
bool StepPlanner::is_worth_planning(const KnownStep& step) const {
  return step.samples.size() > 1 || known_.size() == 1;
}

void StepPlanner::explore(KnownStep& step, int64_t room) const {
  if (!is_worth_planning(step)) return;
  // Now the times are known well, and the frontier is there to stay: the room may change a little in every step.
  const bool refine = step.samples.size() == kSamples;
  const PlannerOptions options{.pack = pack_};
  const auto search = [graph = step.graph, refine, limit = step.budget_within(room), options] {
    auto frontier = planners::explore(graph, options);
    if (refine) planners::refine(graph, frontier, limit, options);
    return frontier;
  };
  using Future = std::future<planners::Frontier>;
  step.explored_baseline = step.graph.baseline_bytes;
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
  const Prediction now = predict(step.graph, plan.actions);  // the times and the baseline may be others
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

/// The fastest plan within the budget that a search finds, if there is one.
std::optional<Plan> StepPlanner::searched_plan(KnownStep& step, int64_t room) const {
  if (!step.frontier) {
    if (!is_in_progress(step.exploration)) explore(step, room);
    step.frontier = step.exploration->get();
    step.exploration = Search();
  }
  const auto* const point = step.frontier->within(step.explored_baseline + room);
  if (point == nullptr) return std::nullopt;
  return finished_plan(step.graph, step.budget_within(room), planner_, point->actions);
}

std::optional<Plan> StepPlanner::best_plan(KnownStep& step, int64_t room) const {
  const int64_t budget = step.budget_within(room);
  if (auto given = given_plan(step, budget)) return given;
  if (planner_ == "online") return std::nullopt;
  if (planner_ != "auto") return make_plan(step.graph, budget, planner_, {.pack = pack_});
  if (!step.frontier) {
    if (auto plain = plain_plan(step, budget)) return plain;
  }
  return searched_plan(step, room);
}

void StepPlanner::plan(KnownStep& step, int64_t room) const {
  if (step.room == room) return;
  step.room = room;
  step.schedule = nullptr;
  try {
    if (auto plan = best_plan(step, room)) {
      step.schedule = std::make_shared<const Schedule>(Schedule{step.graph, *std::move(plan)});
    }
  } catch (const BudgetError&) {  // what decides when memory runs short may still find a way
  }
}

std::vector<std::shared_ptr<const Schedule>> StepPlanner::schedules(int64_t room) {
  std::vector<std::shared_ptr<const Schedule>> result;
  for (KnownStep& step : known_) {
    if (!is_worth_planning(step)) continue;
    plan(step, room);
    if (step.schedule) result.push_back(step.schedule);
  }
  return result;
}

// ---- Who decided: for reports. ----

/// Why the plan given cannot be followed on `graph` within `budget` (nothing: any); empty where it can be.
std::string StepPlanner::given_problem(const Graph& graph, std::optional<int64_t> budget) const {
  if (given_->graph_fingerprint != graph.fingerprint()) return "is of another graph";
  if (!given_->is_valid(graph)) return "is damaged: " + given_->problem(graph);
  if (!budget) return {};
  const int64_t peak = predict(graph, given_->actions).peak_bytes;
  if (peak <= *budget) return {};
  return "takes " + format_bytes(peak) + ", the budget is " + format_bytes(*budget);
}

const StepPlanner::KnownStep* StepPlanner::find(uint64_t fingerprint) const {
  const auto step = std::ranges::find(known_, fingerprint, &KnownStep::fingerprint);
  return step == known_.end() ? nullptr : &*step;
}

/// Empty where the plan given is not what stood in the way.
std::string StepPlanner::why_not_given(const Schedule* followed, const Graph* traced) const {
  if (!given_ || (followed == nullptr && traced == nullptr && known_.empty())) return {};
  // A step that is not traced is most likely as the last.
  const Graph& graph = followed != nullptr ? followed->graph : traced != nullptr ? *traced : known_.front().graph;
  const KnownStep* const known = find(graph.fingerprint());
  if (known == nullptr || !known->room) return given_problem(graph, {});
  return given_problem(known->graph, known->budget_within(*known->room));
}

std::string StepPlanner::why_online(const Graph* traced) const {
  if (planner_ == "online" && !given_) return {};
  if (known_.empty()) return "the first step is recorded";
  const KnownStep* const known = traced == nullptr ? &known_.front() : find(traced->fingerprint());
  if (known == nullptr) return "the step was like none recorded before";
  if (!known->room) return "a step like this one was recorded only once";
  return known->schedule ? "the step was like none that there is a plan for" : "there is no plan within the budget";
}

StepPlanner::Decision StepPlanner::decision(const Schedule* followed, const Graph* traced) const {
  // A planner's own plan that gives up the same is the plan given.
  const auto is_given = [this](const Plan& plan) {
    return given_ && given_->graph_fingerprint == plan.graph_fingerprint && given_->actions == plan.actions;
  };
  if (followed != nullptr && is_given(followed->plan)) return {"plan given", ""};
  const std::string problem = why_not_given(followed, traced);
  return {followed != nullptr ? planner_ : "online", !problem.empty()      ? "the plan given " + problem
                                                     : followed == nullptr ? why_online(traced)
                                                                           : ""};
}

}  // namespace remat
