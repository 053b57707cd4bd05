#include "cli/plan.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/json_file.h"
#include "cli/output_file.h"
#include "cli/printable.h"
#include "cli/table.h"

namespace remat::cli {
namespace {

// --curve alone asks for no single budget.
bool wants_budget(const PlanSettings& settings) {
  return settings.curve.empty() || !settings.budget.empty() || settings.all || !settings.out.empty();
}

nlohmann::json or_null(std::optional<double> number) { return number ? nlohmann::json(*number) : nlohmann::json(); }

nlohmann::json attempt_json(const Graph& graph, const PlainStep& plain, const Attempt& attempt) {
  nlohmann::json json = {{"planner", attempt.planner},
                         {"within_budget", attempt.plan.has_value()},
                         {"planning_seconds", attempt.planning_seconds}};
  if (attempt.plan) {
    const Plan& plan = *attempt.plan;
    const auto counts = count_actions(graph, plan);
    json.update({{"predicted_peak_bytes", plan.predicted_peak_bytes},
                 {"activation_percent", or_null(plain.activation_percent(plan.predicted_peak_bytes))},
                 {"predicted_seconds", plan.predicted_seconds},
                 {"extra_percent", or_null(plain.extra_percent(plan.predicted_seconds))},
                 {"kept", counts.kept},
                 {"recomputed", counts.recomputed},
                 {"held_later", counts.held_later},
                 {"packed", counts.packed},
                 {"moved", counts.moved}});
  } else if (attempt.smallest_peak_bytes) {
    json["smallest_peak_bytes"] = *attempt.smallest_peak_bytes;
  } else {
    json["error"] = utf8(attempt.message);
  }
  return json;
}

class PlanCommand {
 public:
  explicit PlanCommand(const PlanSettings& settings)
      : settings_(settings), graph_(read_graph(settings.graph)), plain_(graph_), floor_(floor_of(graph_)) {
    json_ = {{"command", "plan"},
             {"graph", utf8(settings.graph)},
             {"planner", settings.planner},
             {"pack", settings.pack},
             {"refine", settings.refine},
             {"baseline_bytes", plain_.baseline_bytes},
             {"plain_peak_bytes", plain_.peak_bytes},
             {"floor_bytes", floor_.peak_bytes},
             {"floor", to_text(floor_)},
             {"step_seconds", plain_.seconds}};
  }

  void run() {
    std::printf("%s: %s operators, %s values to decide on; plain takes %s, %s of it above the baseline, in %s\n",
                printable(settings_.graph).c_str(), format_count(static_cast<int64_t>(graph_.operators.size())).c_str(),
                format_count(count_choices(graph_)).c_str(), format_bytes(plain_.peak_bytes).c_str(),
                format_bytes(plain_.activation_bytes()).c_str(), format_seconds(plain_.seconds).c_str());
    std::printf("no plan can do with less than %s: %s\n", format_bytes(floor_.peak_bytes).c_str(),
                printable(to_text(floor_)).c_str());
    std::fflush(stdout);  // planning may take a while
    std::exception_ptr error;
    if (wants_budget(settings_)) error = plan_budget();
    if (!settings_.curve.empty()) plan_curve();
    write_json(settings_.json, json_);
    if (error) std::rethrow_exception(error);
  }

 private:
  // Why the planner asked for has no plan, where it has none. What else was asked for is done nevertheless.
  std::exception_ptr plan_budget() {
    const auto text = settings_.budget.empty() ? kUsualBudget : settings_.budget;
    const int64_t budget = plain_.bytes_of(Budget::parse(text));
    std::vector<std::string> planners;
    if (settings_.all) {
      for (const PlannerInfo& info : list_planners()) planners.emplace_back(info.name);
    } else {
      planners.push_back(settings_.planner);
    }
    std::vector<Attempt> attempts;
    Attempt asked;
    auto list = nlohmann::json::array();
    for (const auto& planner : planners) {
      attempts.push_back(attempt(planner, budget));
      list.push_back(attempt_json(graph_, plain_, attempts.back()));
      if (planner == settings_.planner) asked = attempts.back();
    }
    const double least = seconds_bound(graph_, budget, {.pack = settings_.pack});
    json_.update({{"budget", text},
                  {"budget_bytes", budget},
                  {"least_seconds", std::isfinite(least) ? nlohmann::json(least) : nlohmann::json()},
                  {"plans", std::move(list)}});
    if (settings_.all) {
      std::printf("\n%s", planners_table(graph_, plain_, budget, least, attempts).c_str());
    } else if (asked.plan) {
      std::printf("\n%s", plan_table(graph_, plain_, asked).c_str());
    }
    if (asked.plan) write_output(settings_.out, to_json(*asked.plan), "out");
    return asked.error;
  }

  Attempt attempt(const std::string& planner, int64_t budget) const {
    return try_plan(graph_, budget, planner, {.pack = settings_.pack, .refine = settings_.refine});
  }

  // What `auto` plans from one search for all budgets of a curve; nothing where each has a search of its own.
  std::vector<Attempt> planned_together() const {
    if (settings_.planner != "auto" || settings_.refine) return {};
    const auto begin = std::chrono::steady_clock::now();
    const auto plans = remat::plan_curve(graph_, curve_budgets(plain_), {.pack = settings_.pack});
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::vector<Attempt> attempts(plans.size());
    for (size_t i = 0; i < plans.size(); ++i) {
      attempts[i].planner = settings_.planner;
      attempts[i].plan = plans[i];
      attempts[i].planning_seconds = seconds;
    }
    return attempts;
  }

  void plan_curve() {
    std::fflush(stdout);  // here too
    const std::vector<Attempt> together = planned_together();
    const auto plan_for = [&](int64_t budget) {
      const auto found = std::ranges::find(together, budget, [](const Attempt& a) { return a.plan->budget_bytes; });
      return found == together.end() ? attempt(settings_.planner, budget) : *found;
    };
    const Curve curve = make_curve(plain_, settings_.planner, plan_for);
    std::printf("\n%s", curve_table(curve, plain_).c_str());
    json_["curve"] = to_json(curve.points, plain_);
    json_["smallest_peak_bytes"] =
        curve.smallest_peak_bytes ? nlohmann::json(*curve.smallest_peak_bytes) : nlohmann::json();
    if (settings_.curve.ends_with(".svg")) {
      write_output(settings_.curve, to_svg(curve, plain_, utf8(std::filesystem::path(settings_.graph).filename())),
                   "curve");
    } else {
      const nlohmann::json file = {{"graph", utf8(settings_.graph)},
                                   {"planner", settings_.planner},
                                   {"baseline_bytes", plain_.baseline_bytes},
                                   {"plain_peak_bytes", plain_.peak_bytes},
                                   {"step_seconds", plain_.seconds},
                                   {"points", json_["curve"]},
                                   {"smallest_peak_bytes", json_["smallest_peak_bytes"]}};
      write_output(settings_.curve, file.dump(1) + '\n', "curve");
    }
  }

  const PlanSettings& settings_;
  const Graph graph_;
  const PlainStep plain_;
  const Floor floor_;
  nlohmann::json json_;
};

}  // namespace

void run_plan(const PlanSettings& settings) {
  check_output_path(settings.out, "out");
  check_output_path(settings.curve, "curve");
  check_json_path(settings.json);
  PlanCommand(settings).run();
}

}  // namespace remat::cli
