#include "cli/train_game.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <numeric>
#include <optional>
#include <span>

#include "cli/budget_refusal.h"
#include "cli/checkpoint_file.h"
#include "cli/game_training.h"
#include "cli/interrupt.h"
#include "cli/json_file.h"
#include "cli/printable.h"
#include "cli/saved_steps.h"
#include "cli/table.h"
#include "cli/training_checkpoint.h"
#include "cli/training_summary.h"

namespace remat::cli {
namespace {

constexpr int64_t kJudged = 100;  // episodes
constexpr size_t kRecent = 10;    // episodes whose mean return tells how it is going

double mean(std::span<const double> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

std::string recent_return(std::span<const double> returns) {
  return format_number(mean(returns.last(std::min(kRecent, returns.size()))), 2);
}

}  // namespace

int run_game(const TrainSettings& asked, std::optional<CheckpointLock>& lock) {
  const auto budget = asked.plain ? std::nullopt : std::optional(Budget::parse(asked.budget));
  std::optional<CheckpointReader> checkpoint;
  if (asked.resume) checkpoint.emplace(asked.checkpoint);
  auto settings = asked;
  const auto begin = [&](const std::optional<Budget>& within) {
    auto training = std::make_unique<GameTraining>(asked, within);
    settings.batch = training->batch();
    if (checkpoint) {
      check_continues(checkpoint->about(), settings);
      training->load(*checkpoint);
    }
    return training;
  };
  auto own = begin(budget);
  GameTraining& training = *own;
  std::printf("%s, %s parameters, %s, %s\n", settings.model.kind.c_str(),
              format_count(training.parameter_count().all).c_str(), settings.game.c_str(),
              settings.plain ? "plain" : ("budget " + budget_text(settings.budget)).c_str());
  if (settings.resume) std::printf("resumed after step %lld\n", static_cast<long long>(training.steps_done()));
  if (training.steps_done() >= settings.steps) {
    std::printf("no step to take: --steps is %lld\n", static_cast<long long>(settings.steps));
  }
  const double before = training.mean_return(kJudged);

  std::optional<PoliteStop> polite(std::in_place);
  std::vector<StepResult> results;
  std::string label = "train";  // shown with each step, as it is then
  const auto save_state = [&](const std::string& path) {
    training.save(path, about_checkpoint(settings, training.steps_done()));
  };
  try {
    run_saved_steps(training, settings, label, results, save_state, [&](const StepResult&) {
      if (!training.returns().empty()) label = "return " + recent_return(training.returns());
    });
  } catch (const BudgetError& refusal) {
    if (results.size() >= kFirstSteps) throw;
    own.reset();  // its memory is for the trials
    refuse_with_smallest_budget(refusal, settings, [&](const Budget& other) { return steps_of(begin(other)); });
  }
  const bool stopped = training.steps_done() < settings.steps;
  std::string path = settings.checkpoint;
  std::exception_ptr unsaved;
  try {
    if (path.empty() && stopped) path = unused_checkpoint_path(lock);
    if (!path.empty() && !results.empty()) save_state(path);
  } catch (const Error&) {
    unsaved = std::current_exception();
  }
  const int signal = interrupted();
  polite.reset();
  const double after = results.empty() ? before : training.mean_return(kJudged);

  const auto& returns = training.returns();
  auto json = results_json(settings, training, results);
  json["returns"] = returns;
  json["evaluation"] = {{"before", before}, {"after", after}};
  write_json(settings.json, json);
  print_summary(settings, results);
  if (!returns.empty()) {
    const auto some = std::min(kRecent, returns.size());
    std::printf("%zu episodes, mean return of the first %zu: %s, of the last: %s\n", returns.size(), some,
                format_number(mean(std::span(returns).first(some)), 2).c_str(), recent_return(returns).c_str());
  }
  std::printf("mean return of %lld others, without random actions: %s -> %s\n", static_cast<long long>(kJudged),
              format_number(before, 2).c_str(), format_number(after, 2).c_str());
  if (unsaved) std::rethrow_exception(unsaved);
  if (!stopped) return 0;
  std::printf("stopped after step %lld; saved in %s; continue with:\n  %s\n",
              static_cast<long long>(training.steps_done()), printable(path).c_str(),
              printable(how_to_resume(settings, path)).c_str());
  return 128 + signal;
}

}  // namespace remat::cli
