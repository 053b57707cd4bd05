#include <remat/planner.h>

#include <algorithm>
#include <array>

#include <remat/budget.h>
#include <remat/error.h>

#include "plan/form_costs.h"
#include "plan/pareto_front.h"
#include "plan/planners.h"
#include "plan/simulate.h"

namespace remat {
namespace {

struct Entry {
  PlannerInfo info;
  planners::Actions (*plan)(const Graph&, int64_t, PlannerOptions);
};

constexpr std::array<Entry, 10> kPlanners = {{
    {{"auto", "operator by operator, near the optimum, within the budget"}, planners::automatic},
    {{"keep-all", "nothing is dropped: plain"}, planners::keep_all},
    {{"drop-all", "every saved value is dropped"}, planners::drop_all},
    {{"segments", "runs of operators are replayed from what crosses between them (Chen et al.)"}, planners::segments},
    {{"articulation-memory", "keeps values that all paths go through"}, planners::articulation_memory},
    {{"articulation-speed", "keeps the results of products and convolutions"}, planners::articulation_speed},
    {{"selective", "keeps the results of products, convolutions and attention"}, planners::selective},
    {{"revolve", "a chain of equal steps, replayed several times (Griewank and Walther)"}, planners::revolve},
    {{"rotor", "a chain of blocks, the optimum for it by a dynamic programme (Herrmann et al.)"}, planners::rotor},
    {{"online", "the cheapest per byte is evicted when memory runs short, as at run time"}, planners::online},
}};

}  // namespace

const std::vector<PlannerInfo>& list_planners() {
  static const std::vector<PlannerInfo> infos = [] {
    std::vector<PlannerInfo> result;
    result.reserve(kPlanners.size());
    for (const Entry& entry : kPlanners) result.push_back(entry.info);
    return result;
  }();
  return infos;
}

namespace {

Prediction predict_sound(const Graph& graph, const std::vector<Action>& actions, int64_t limit) {
  const Simulation simulation = Simulator(graph).run(actions, limit);
  return {simulation.peak_bytes, simulation.seconds};
}

void check_sound(const Graph& graph) {
  if (const std::string problem = graph.problem(); !problem.empty()) {
    throw Error("[plan] the graph is not sound: " + problem + "; record it again");
  }
}

}  // namespace

Prediction predict(const Graph& graph, const std::vector<Action>& actions, int64_t budget_bytes) {
  check_sound(graph);
  Plan plan;
  plan.graph_fingerprint = graph.fingerprint();
  plan.actions = actions;
  if (const std::string problem = plan.problem(graph); !problem.empty()) {
    throw Error("[plan] cannot predict: " + problem + "; give one action for each value, as Plan::problem() asks");
  }
  return predict_sound(graph, actions, budget_bytes > 0 ? budget_bytes : INT64_MAX);
}

Plan finished_plan(const Graph& graph, int64_t budget_bytes, std::string_view planner, planners::Actions actions) {
  const Prediction prediction = predict_sound(graph, actions, budget_bytes);
  if (prediction.peak_bytes > budget_bytes) {
    const Floor floor = floor_of(graph);
    throw BudgetError("[plan] " + std::string(planner) + " found no plan within " + format_exact_bytes(budget_bytes) +
                          "; its smallest needs " + format_exact_bytes(prediction.peak_bytes) +
                          ", and no plan can do with less than " + format_exact_bytes(floor.peak_bytes) + ": " +
                          to_text(floor) + "; " + advice(floor, budget_bytes),
                      budget_bytes, floor.peak_bytes, prediction.peak_bytes);
  }
  return {.planner = std::string(planner),
          .graph_fingerprint = graph.fingerprint(),
          .budget_bytes = budget_bytes,
          .predicted_peak_bytes = prediction.peak_bytes,
          .predicted_seconds = prediction.seconds,
          .forms = form_costs(graph),
          .actions = std::move(actions)};
}

Plan make_plan(const Graph& graph, int64_t budget_bytes, std::string_view planner, PlannerOptions options) {
  check_sound(graph);
  budget_bytes = std::max<int64_t>(0, budget_bytes);  // planners subtract it from peaks
  for (const Entry& entry : kPlanners) {
    if (entry.info.name == planner) {
      return finished_plan(graph, budget_bytes, planner, entry.plan(graph, budget_bytes, options));
    }
  }
  std::string names;
  for (const PlannerInfo& info : list_planners()) names += (names.empty() ? "" : ", ") + std::string(info.name);
  throw Error("[plan] there is no planner \"" + std::string(planner) + "\"; there are " + names);
}

std::vector<Plan> plan_curve(const Graph& graph, const std::vector<int64_t>& budgets, PlannerOptions options) {
  check_sound(graph);
  std::vector<int64_t> wanted = budgets;
  for (int64_t& budget : wanted) budget = std::max<int64_t>(0, budget);
  const planners::ParetoFront front = planners::plans_of_curve(graph, wanted, options);
  std::vector<Plan> plans;
  for (const int64_t budget : wanted) {
    const auto* const point = front.within(budget);
    if (point != nullptr) plans.push_back(finished_plan(graph, budget, "auto", point->actions));
  }
  plans.push_back(finished_plan(graph, front.lowest_peak(), "auto", front.lowest().actions));
  return plans;
}

}  // namespace remat
