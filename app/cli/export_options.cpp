#include "cli/export_options.h"

#include <string>
#include <vector>

#include <remat/planner.h>

#include "cli/option_adder.h"

namespace remat::cli {

void add_export_options(CLI::App& app, ExportSettings& settings) {
  OptionAdder add(app);
  std::vector<std::string> planners;
  for (const PlannerInfo& info : list_planners()) planners.emplace_back(info.name);
  add.word("STEP", settings.step, "A training step, from `python -m remat export --step`")
      ->check(path_given())
      ->type_name("FILE");
  add.file("--out", settings.out, "Write the C into this folder")->type_name("FOLDER")->required();
  app.add_option("--ram", settings.ram, "The RAM that the training may take, all counted: 256KiB")
      ->check(budget_given())
      ->type_name("BYTES")
      ->required();
  app.add_option("--name", settings.name, "Of the files, and what names in the C begin with")
      ->capture_default_str()
      ->type_name("NAME");
  add.budget("--stack", settings.stack, "Of it, for the stack");
  add.choice("--optimizer", settings.optimizer, {"sgd", "momentum", "adam"},
             "What updates the parameters: sgd keeps nothing, momentum a number for each of them, adam two");
  app.add_option("--momentum", settings.momentum, "Of --optimizer momentum")
      ->transform(range(0.0, 1.0))
      ->capture_default_str()
      ->type_name("NUMBER");
  app.add_option("--weight-decay", settings.weight_decay, "Of every optimizer")
      ->transform(range(0.0, 1.0))
      ->capture_default_str()
      ->type_name("NUMBER");
  add.choice("--planner", settings.planner, planners, "Who decides what to recompute");
  add.group("Files");
  add.file("--json", settings.json, "Write the figures here, as JSON");
}

}  // namespace remat::cli
