#include "cli/options.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "cli/plan_options.h"
#include "cli/train_options.h"

namespace remat::cli {
namespace {

constexpr const char* kText = R"(
The text can be any file; `scripts/kjv FILE` writes the King James Bible (1611, public domain) from Debian's packages
bible-kjv and bible-kjv-text.
)";
constexpr const char* kExitCodes = R"(
Exit codes: 0 done, 1 failure, 2 wrong usage, 3 the budget is too small, 128 + signal when interrupted (a training
finishes its step and saves a checkpoint).
)";

}  // namespace

Budget parse_budget(const std::string& text) {
  try {
    return Budget::parse(text);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

Command parse_options(const std::vector<std::string>& arguments) {
  Command command;
  TrainOptions training;
  CLI::App app(
      "Trains within a byte budget: what does not fit is dropped and recomputed, and every bit stays the same.",
      "remat");
  app.set_version_flag("--version", "remat " REMAT_VERSION);
  app.require_subcommand(1);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.footer(std::string(kText) + kExitCodes);
  auto* train = app.add_subcommand("train", "Train a model on a text, within a budget");
  auto* compare =
      app.add_subcommand("compare", "Train twice, plain and within a budget, and compare time, memory and bits");
  auto* record = app.add_subcommand("record", "Write down what a training step does, as a graph for `remat plan`");
  auto* plan = app.add_subcommand("plan", "Plan a recorded step within a budget: what it will take, and what it costs");
  for (auto* subcommand : {train, compare}) {
    subcommand->footer(std::string(kText) + kExitCodes);
    add_train_options(*subcommand, training, /*train=*/subcommand == train);
  }
  for (auto* subcommand : {record, plan}) subcommand->footer(kExitCodes);
  add_record_options(*record, command.record);
  add_plan_options(*plan, command.plan);

  const auto parse = [&](std::vector<std::string> words) {
    std::ranges::reverse(words);  // CLI11 takes them from the back
    app.parse(std::move(words));
  };
  try {
    parse(arguments);
    if (!training.config.empty()) {
      // The file's options first: where both name one, the last counts.
      auto words = config_arguments(training.config);
      const auto subcommand = std::ranges::find_if(arguments, [](const auto& word) { return word[0] != '-'; });
      words.insert(words.begin(), *subcommand);
      words.insert(words.end(), arguments.begin(), subcommand);
      words.insert(words.end(), subcommand + 1, arguments.end());
      parse(std::move(words));
    }
  } catch (const CLI::CallForVersion& version) {
    command.text = std::string(version.what()) + "\n";
    return command;
  } catch (const CLI::CallForHelp&) {
    command.text = app.help();
    return command;
  } catch (const CLI::ParseError& error) {
    const auto* parsed = app.get_subcommands().empty() ? nullptr : app.get_subcommands().front();
    throw UsageError("[options] " + std::string(error.what()) + "; see: remat " +
                     (parsed != nullptr ? parsed->get_name() + " " : "") + "--help");
  }
  if (record->parsed()) {
    command.kind = Command::Kind::kRecord;
    check_record_options(command.record);
  } else if (plan->parsed()) {
    command.kind = Command::Kind::kPlan;
    check_plan_options(command.plan);
  } else {
    command.kind = train->parsed() ? Command::Kind::kTrain : Command::Kind::kCompare;
    command.settings = finish_train_options(training, arguments);
  }
  return command;
}

}  // namespace remat::cli
