#include "cli/options.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include <CLI/CLI.hpp>

#include "cli/config_arguments.h"
#include "cli/export_options.h"
#include "cli/fit_options.h"
#include "cli/help_text.h"
#include "cli/plan_options.h"
#include "cli/progress.h"
#include "cli/rank_place.h"
#include "cli/suggestion.h"
#include "cli/sweep_options.h"
#include "cli/train_options.h"
#include "cli/wrong_usage.h"

namespace remat::cli {
namespace {

constexpr const char* kText = R"(
The text can be any file; `scripts/kjv FILE` writes the King James Bible (1611, public domain) from Debian's packages bible-kjv and bible-kjv-text.
)";
constexpr const char* kExitCodes = R"(
Exit codes: 0 done, 1 failure, 2 wrong usage, 3 the budget is too small, 128 + signal when interrupted (a training finishes its step and saves a checkpoint, to --checkpoint or else remat-interrupted.ckpt).
)";

/// Of the terminal: narrower ones are rare, and lines that are longer are hard to read.
size_t help_width() { return static_cast<size_t>(std::clamp(terminal_width(stdout), 80, 100)); }

std::string with_help(const std::string& problem, const CLI::App* subcommand) {
  return problem + (problem.ends_with('?') ? "" : ";") + " see: remat " +
         (subcommand != nullptr ? subcommand->get_name() + " " : "") + "--help";
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::set<std::string> options_given(const CLI::App& app) {
  std::set<std::string> names;
  for (const auto* option : app.get_options()) {
    if (option->count() > 0) names.insert(option->get_name());
  }
  return names;
}

// The first word that is no option: the subcommand, if there is one.
std::vector<std::string>::const_iterator find_subcommand(const std::vector<std::string>& arguments) {
  return std::ranges::find_if(arguments, [](const auto& word) { return !word.starts_with('-'); });
}

// CLI11 would say that a subcommand is required.
void check_subcommand(const CLI::App& app, const std::vector<std::string>& arguments) {
  const auto word = find_subcommand(arguments);
  if (word == arguments.end()) return;
  std::vector<std::string> names;
  for (const auto* subcommand : app.get_subcommands({})) names.push_back(subcommand->get_name());
  if (std::ranges::find(names, *word) != names.end()) return;
  throw UsageError(with_help("[options] there is no subcommand '" + *word + "'" + did_you_mean(*word, names), nullptr));
}

// What CLI11 found wrong. It names what is left over after looking for what is missing: a misspelt option is both.
std::string problem(const CLI::App* subcommand, const CLI::ParseError& error) {
  const bool words_may_be_left = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                                 dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (subcommand == nullptr || !words_may_be_left) return error.what();
  const auto left = subcommand->remaining();
  if (left.empty()) return error.what();
  const auto word = left.front().substr(0, left.front().find('='));
  if (!word.starts_with('-')) return "'" + word + "' was not expected";
  return "there is no option '" + word + "'" + did_you_mean(word, option_names(*subcommand));
}

}  // namespace

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
  auto* train =
      app.add_subcommand("train", "Train a model on a text, labelled texts, pictures or a game, within a budget");
  auto* compare =
      app.add_subcommand("compare", "Train twice, plain and within a budget, and compare time, memory and bits");
  auto* record = app.add_subcommand("record", "Write down what a training step does, as a graph for `remat plan`");
  auto* plan = app.add_subcommand("plan", "Plan a recorded step within a budget: what it will take, and what it costs");
  auto* exported = app.add_subcommand("export", "Write a training step as C for a microcontroller, within its RAM");
  auto* fit = app.add_subcommand("fit", "Find the largest batch that fits a budget, with remat and without");
  auto* sweep = app.add_subcommand(
      "sweep", "Try every planner, budget and number of checkpoints on a model's step: a table, JSON and plots");
  auto* report =
      app.add_subcommand("report", "Show where the bytes of a step went: a page for browsers, pictures, a trace");
  for (auto* subcommand : {train, compare}) {
    subcommand->footer(std::string(kText) + kExitCodes);
    add_train_options(*subcommand, training, /*train=*/subcommand == train);
  }
  for (auto* subcommand : {record, plan, exported, fit, sweep, report}) subcommand->footer(kExitCodes);
  add_record_options(*record, command.record);
  add_plan_options(*plan, command.plan);
  add_export_options(*exported, command.exported);
  add_fit_options(*fit, command.fit);
  add_sweep_options(*sweep, command.sweep);
  add_report_options(*report, command.report);

  check_subcommand(app, arguments);
  const auto parse = [&](std::vector<std::string> words) {
    std::ranges::reverse(words);  // CLI11 takes them from the back
    app.parse(std::move(words));
  };
  std::string where = "[options] ";
  try {
    parse(arguments);
    if (train->parsed() || compare->parsed()) training.on_command_line = options_given(*app.get_subcommands().front());
    if (!training.config.empty()) {
      // The file's options first: where both name one, the last counts.
      auto words = config_arguments(training.config);
      const auto subcommand = find_subcommand(arguments);
      words.insert(words.begin(), *subcommand);
      const auto line = words.size();
      words.insert(words.end(), arguments.begin(), subcommand);
      words.insert(words.end(), subcommand + 1, arguments.end());
      where = "[config] '" + training.config + "': ";  // the command line alone was sound
      parse({words.begin(), words.begin() + static_cast<std::ptrdiff_t>(line)});
      training.in_config = options_given(*app.get_subcommands().front());
      parse(std::move(words));
    }
  } catch (const CLI::CallForVersion& version) {
    command.text = std::string(version.what()) + "\n";
    return command;
  } catch (const CLI::CallForHelp&) {
    command.text = wrapped_help(app.help(), help_width());
    return command;
  } catch (const CLI::ParseError& error) {
    const auto* parsed = app.get_subcommands().empty() ? nullptr : app.get_subcommands().front();
    throw UsageError(with_help(where + problem(parsed, error), parsed));
  }
  if (record->parsed()) {
    command.kind = Command::Kind::kRecord;
    check_record_options(command.record);
  } else if (plan->parsed()) {
    command.kind = Command::Kind::kPlan;
    check_plan_options(command.plan);
  } else if (exported->parsed()) {
    command.kind = Command::Kind::kExport;
  } else if (fit->parsed()) {
    command.kind = Command::Kind::kFit;
    check_fit_options(command.fit);
  } else if (sweep->parsed()) {
    command.kind = Command::Kind::kSweep;
    check_sweep_options(command.sweep);
  } else if (report->parsed()) {
    command.kind = Command::Kind::kReport;
    check_report_options(command.report);
  } else {
    command.kind = train->parsed() ? Command::Kind::kTrain : Command::Kind::kCompare;
    if (const auto place = train->parsed() ? place_from_environment() : std::nullopt) {
      if (training.on_command_line.contains("--ranks")) {
        throw UsageError("[options] --ranks has no effect where torchrun has started the processes; leave it out");
      }
      training.settings.ranks = place->size;
    }
    command.settings = finish_train_options(training, arguments);
  }
  return command;
}

}  // namespace remat::cli
