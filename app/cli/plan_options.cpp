#include "cli/plan_options.h"

#include <vector>

#include <remat/budget.h>
#include <remat/planner.h>

#include "cli/different_files.h"
#include "cli/model_options.h"
#include "cli/recording.h"
#include "cli/wrong_usage.h"

namespace remat::cli {
namespace {

void check_budget(const std::string& budget) {
  if (budget.empty() || Budget::parse(budget).kind() != Budget::Kind::kDeviceLimit) return;
  throw UsageError("[options] --budget " + budget +
                   " means nothing for a graph, which is of no device; give bytes (2GiB) or a share (40%)");
}

}  // namespace

void add_record_options(CLI::App& app, RecordSettings& settings) {
  OptionAdder add(app);
  std::string batches;
  for (const RecordableModel& model : recordable_models()) {
    batches += (batches.empty() ? "" : ", ") + model.name + ": " + std::to_string(model.batch);
  }
  add_model(add, settings.model, "The model of the zoo whose training step to record:");
  add.file("--out", settings.out, "Write the graph here, as JSON")->required();
  add.file("--save-run", settings.save_run, "Write the step here too, with the names of layers, for `remat report`");
  add.count("--steps", settings.steps,
            "Steps to run; the times of operators are the medians of the first of them, 4 at most");
  app.add_option("--batch", settings.batch, "Examples per step (" + batches + ")")
      ->transform(range(int64_t{1}, kMostBatch))
      ->type_name("N");
  add.head(settings.head);
  add.budget("--budget", settings.budget,
             "Run the steps within a budget, as for train; the graph is the same, its times are taken under pressure");
}

void add_plan_options(CLI::App& app, PlanSettings& settings) {
  OptionAdder add(app);
  std::vector<std::string> names;
  std::string text = "Who decides what to recompute:";
  for (const PlannerInfo& info : list_planners()) {
    names.emplace_back(info.name);
    text += "\n" + names.back() + ": " + std::string(info.description);
  }
  add.word("GRAPH", settings.graph, "A recorded step, from `remat record`, or a run: --save-run, Report.save()")
      ->check(path_given())
      ->type_name("FILE");
  add.budget("--budget", settings.budget,
             "The most memory for tensors, parameters included: 2GiB, 1500MB; or 40% of the peak that activations have "
             "without remat. 50% where neither this nor --curve is given",
             /*show_default=*/false);
  add.choice("--planner", settings.planner, names, text);
  app.add_flag_callback(
      "--no-pack", [&settings] { settings.pack = false; }, "Hold no values packed");
  add.flag("--refine", settings.refine,
           "auto: search on around the budget, as sessions do once they know a step's times. Then a larger budget may "
           "get a slower plan, by a little");
  add.flag("--all", settings.all, "Compare all planners; the exit code is that of --planner");
  add.group("Files");
  add.file("--out", settings.out, "Write the plan here, as JSON");
  add.file("--curve", settings.curve,
           "Plan for budgets of 100%, 95%, 90% and so on, and write them to a .json or .svg");
  add.file("--json", settings.json, "Write all figures here");
}

void add_report_options(CLI::App& app, ReportSettings& settings) {
  OptionAdder add(app);
  add.word("RUN", settings.run, "A step: from `remat train --save-run`, `remat record` or Report.save()")
      ->check(path_given())
      ->type_name("FILE");
  add.budget("--budget", settings.budget,
             "Show the step as auto would plan it within this budget: 2GiB, 1500MB; or 40% of the peak that "
             "activations have without remat. 50% where RUN has no plan and --plan is not given",
             /*show_default=*/false);
  add.file("--plan", settings.plan, "Show the step under this plan, from `remat plan --out` or --save-plan");
  add.flag(
      "--layers", settings.layers,
      "Print what became of each layer's saved values, equal layers in one row. RUN must have the names of layers");
  add.group("Files");
  add.file("--html", settings.html, "Write the page here; where no file is named, nor --layers given, beside RUN");
  add.file("--svg", settings.svg, "Write a picture of memory over the step here");
  add.file("--trace", settings.trace, "Write trace events here, for Perfetto (ui.perfetto.dev) and chrome://tracing");
}

void check_report_options(const ReportSettings& settings) {
  check_budget(settings.budget);
  if (!settings.budget.empty() && !settings.plan.empty()) {
    throw UsageError("[options] --budget asks for a plan and --plan gives one; leave one of them out");
  }
  check_different_files({{"RUN", settings.run}, {"--plan", settings.plan}},
                        {{"--html", settings.html}, {"--svg", settings.svg}, {"--trace", settings.trace}});
}

void check_record_options(const RecordSettings& settings) {
  check_head(settings.model, settings.head);
  check_different_files({}, {{"--out", settings.out}, {"--save-run", settings.save_run}});
}

void check_plan_options(const PlanSettings& settings) {
  check_budget(settings.budget);
  if (!settings.curve.empty() && !settings.curve.ends_with(".json") && !settings.curve.ends_with(".svg")) {
    throw UsageError(
        "[options] --curve '" + settings.curve +
        "' is no .json or .svg; give a path that ends in one (`python -m remat plot` makes a .png of the .json)");
  }
  if (settings.refine && !settings.all && settings.planner != "auto") {
    throw UsageError("[options] --refine has no effect with --planner " + settings.planner + "; leave one of them out");
  }
  check_different_files({{"the graph", settings.graph}},
                        {{"--out", settings.out}, {"--curve", settings.curve}, {"--json", settings.json}});
}

}  // namespace remat::cli
