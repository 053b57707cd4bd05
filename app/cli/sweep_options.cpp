#include "cli/sweep_options.h"

#include <string>
#include <vector>

#include <remat/planner.h>

#include "cli/fitting.h"
#include "cli/model_options.h"
#include "cli/sweep.h"
#include "cli/wrong_usage.h"

namespace remat::cli {
namespace {

/// `list`, or the word `word` alone.
CLI::Validator list_or(const std::string& word, CLI::Validator list) {
  return {[word, list = std::move(list)](std::string& text) { return text == word ? std::string() : list(text); }, ""};
}

CLI::Validator graph_budget() {
  return {[](const std::string& text) {
            if (std::string problem = budget_given()(text); !problem.empty()) return problem;
            if (Budget::parse(text).kind() != Budget::Kind::kDeviceLimit) return std::string();
            return "'" + text + "' is no budget to plan for; give bytes (2GiB) or a share (40%)";
          },
          ""};
}

/// The option is called --depths here.
void check_depth(FitSettings sizes, int64_t depth) {
  sizes.depth = depth;
  try {
    check_sizes(sizes);
  } catch (const UsageError& error) {
    std::string message = error.what();
    throw UsageError(message.replace(message.find("--depth"), std::string("--depth").size(), "--depths"));
  }
}

}  // namespace

void add_sweep_options(CLI::App& app, SweepSettings& settings) {
  OptionAdder add(app);
  std::vector<std::string> planners;
  std::string planner_text = "The planners to try, or all: ";
  for (const PlannerInfo& info : list_planners()) {
    planner_text += (planners.empty() ? "" : ", ") + std::string(info.name);
    planners.emplace_back(info.name);
  }
  const auto list = [&](const std::string& name, std::string& value, const CLI::Validator& each,
                        const std::string& help) { add.add(name, value, help)->check(each)->type_name("LIST"); };
  const auto count = range(int64_t{1}, kMostLayers);
  add_model(add, settings.model);
  list("--budgets", settings.budgets, list_or("none", list_of(graph_budget())),
       "The budgets to plan for: 2GiB, 1500MB, parameters and gradients included; or 40% of the peak that activations "
       "have without remat. none: leave this part out");
  list("--planners", settings.planners, list_or("all", list_of(one_of(planners))), planner_text);
  list("--checkpoints", settings.checkpoints, list_or("none", list_of(count)),
       "Numbers of checkpoints, evenly spaced (default: 1,2,4,8 and so on, as many as there are places for). none: "
       "leave this part out");
  list("--depths", settings.depths, list_of(count),
       "Depths of the model: what storing all, recomputing all and checkpoints take at each");
  add.flag("--measure", settings.measure, "Run the steps that were planned, and put what they took beside");
  add.count("--rounds", settings.rounds, "Pairs of steps for each measurement, plain and planned in turn", 1000);
  add.head(settings.head);
  add.disk(settings.disk);
  add_sizes(app, settings);
  app.add_option("--out", settings.out,
                 "Write sweep.json and the plots here: what is there already is replaced, and kept up to date as the "
                 "sweep goes on")
      ->check(path_given())
      ->type_name("DIRECTORY")
      ->group("Files");
}

void check_sweep_options(const SweepSettings& settings) {
  const SweepLists lists = sweep_lists(settings);
  FitSettings sizes;
  sizes.model = settings.model;
  sizes.batch = settings.batch;
  sizes.length = settings.length;
  sizes.depth = settings.depth;
  sizes.width = settings.width;
  check_sizes(sizes);
  check_head(settings.model, settings.head);
  if (!lists.depths.empty() && settings.depth > 0) {
    throw UsageError("[options] --depths has the depths and --depth another; leave one of them out");
  }
  if (!settings.measure && settings.rounds != SweepSettings().rounds) {
    throw UsageError("[options] --rounds has no effect without --measure; leave it out, or measure");
  }
  for (const int64_t depth : lists.depths) check_depth(sizes, depth);
  const bool anything = !lists.budgets.empty() || settings.checkpoints != "none" || !lists.depths.empty();
  if (!anything) throw UsageError("[options] nothing is left to sweep; give --budgets, --checkpoints or --depths");
}

}  // namespace remat::cli
