#include "cli/train.h"

#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include <remat/tile_trials.h>

#include "cli/budget_refusal.h"
#include "cli/checkpoint_file.h"
#include "cli/checkpoint_lock.h"
#include "cli/interrupt.h"
#include "cli/json_file.h"
#include "cli/launch_ranks.h"
#include "cli/model_contents.h"
#include "cli/output_file.h"
#include "cli/printable.h"
#include "cli/rank_group.h"
#include "cli/rank_meeting.h"
#include "cli/rank_place.h"
#include "cli/read_training_data.h"
#include "cli/saved_steps.h"
#include "cli/train_game.h"
#include "cli/train_model.h"
#include "cli/trainer.h"
#include "cli/training_checkpoint.h"
#include "cli/training_summary.h"
#include "cli/wrong_usage.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

bool saves_model(const TrainSettings& settings) {
  return !settings.save_model.empty() || !settings.save_adapter.empty();
}

void check_results(const TrainSettings& settings) {
  check_no_model_file(settings, settings.json, "--json");
  check_no_model_file(settings, settings.checkpoint, "--checkpoint");
  check_no_model_file(settings, settings.save_plan, "--save-plan");
  check_no_model_file(settings, settings.save_run, "--save-run");
}

void check_before_training(const TrainSettings& settings) {
  check_json_path(settings.json);
  check_output_path(settings.save_plan, "save-plan");
  check_model_paths(settings);
  check_output_path(settings.save_run, "save-run");
  if (settings.checkpoint.empty()) return;
  if (!settings.resume && fs::exists(settings.checkpoint) && fs::is_regular_file(settings.checkpoint)) {
    throw UsageError("[checkpoint] '" + settings.checkpoint +
                     "' exists; continue it with --resume, delete it, or give another path");
  }
  check_checkpoint_path(settings.checkpoint);
}

}  // namespace

int run_train(const TrainSettings& asked) {
  auto settings = asked;
  auto place = place_from_environment();
  const bool plays = settings.model.task == kReinforce, torchrun = place.has_value();
  if (plays && torchrun) throw UsageError("[options] --task rl plays in one process; start it without torchrun");
  if (torchrun) begin_meeting(*place);
  check_results(settings);
  std::optional<CheckpointLock> lock;
  if (!torchrun || place->rank == 0) {
    if (!settings.checkpoint.empty()) lock.emplace(settings.checkpoint);  // before it is looked at
    check_before_training(settings);
  }
  if (plays) return run_game(settings, lock);
  const auto data = read_training_data(settings);
  std::unique_ptr<TrainingData> held_out;
  if (!settings.held_out.empty()) held_out = read_held_out_data(settings, data->labels());
  const auto& directory = settings.model.directory;
  const std::string model = directory.empty() ? "" : model_contents(directory);  // now: it may be gone at the end
  std::optional<CheckpointReader> checkpoint;
  if (settings.resume) {
    checkpoint.emplace(settings.checkpoint);
    check_continues(checkpoint->about(), settings, *data, model);
  }
  const TrainingTask task{.settings = settings,
                          .data = *data,
                          .budget = settings.plain ? std::nullopt : std::optional(Budget::parse(settings.budget)),
                          .held_out = held_out.get(),
                          .checkpoint = checkpoint ? &*checkpoint : nullptr};

  // From here on each rank runs the same. What was read is shared by those that start here.
  if (settings.ranks > 1 && !torchrun) {
    const Launched launched = launch_ranks(static_cast<int>(settings.ranks));
    if (!launched.place) return launched.code;
    place = launched.place;
  }
  const auto ranks = place ? join_ranks(*place) : nullptr;
  const bool first = !place || place->rank == 0;
  if (!first) {
    leave_printing_to_rank_0();
    settings.json.clear();
  }
  const auto refuse = [&](const BudgetError& refusal) {
    refuse_with_smallest_budget(refusal, settings, [&](const Budget& budget) {
      TrainingTask other = task;
      other.budget = budget;
      forget_tile_choices();  // else it would need less than a process that begins with this budget
      return steps_of(std::make_unique<Trainer>(other, ranks.get()));
    });
  };
  std::unique_ptr<Trainer> training;
  try {
    training = std::make_unique<Trainer>(task, ranks.get());
  } catch (const BudgetError& refusal) {
    refuse(refusal);
  }
  print_header(settings, *data, *training);
  for (const TrainingData* each : {data.get(), held_out.get()}) {
    if (each != nullptr && !each->notice().empty()) std::printf("%s\n", printable(each->notice()).c_str());
  }
  if (settings.resume) std::printf("resumed after step %lld\n", static_cast<long long>(training->steps_done()));
  // What follows the last step may be wanted still: that of a run that was interrupted there.
  if (training->steps_done() >= settings.steps && !saves_model(settings) && settings.held_out.empty()) {
    std::printf("nothing to do: --steps is %lld\n", static_cast<long long>(settings.steps));
    write_json(settings.json, results_json(settings, *training, {}));
    return 0;
  }

  std::optional<Evaluation> before;
  if (held_out) before = training->evaluate();

  std::optional<PoliteStop> polite(std::in_place);  // from now on there is something to lose
  std::vector<StepResult> results;
  IgnoredPlan ignored_plan(settings.plan);
  const auto save_state = [&](const std::string& path) {
    training->write(Output::kCheckpoint, path, about_checkpoint(settings, *data, model, training->steps_done()));
  };
  try {
    run_saved_steps(*training, settings, "train", results, save_state, [&](const StepResult& result) {
      ignored_plan.look_at(result);
      print_budget_change(result);
    });
  } catch (const BudgetError& refusal) {
    if (results.size() >= kFirstSteps) throw;
    training.reset();  // its memory is for the trials
    refuse(refusal);
  }

  bool stopped = training->steps_done() < settings.steps;
  auto path = settings.checkpoint;
  bool saved = settings.resume && results.empty();  // by the run before
  std::exception_ptr failure;
  const auto attempt = [&](const auto& work) {
    try {
      work();
    } catch (...) {
      if (training->is_between_steps()) throw;  // nothing can be saved
      if (failure) return;                      // the first one is reported
      failure = std::current_exception();
    }
  };
  const auto save_at_end = [&] {
    save_state(path);
    saved = true;
  };
  if (!path.empty() && !saved) attempt(save_at_end);
  const bool state_failed = failure != nullptr;
  std::optional<Evaluation> after;
  if (!stopped && before) {
    attempt([&] { after = results.empty() ? before : training->evaluate(); });
    stopped = !after && !failure;  // a signal
  }
  if (!stopped && !settings.save_model.empty()) attempt([&] { training->write(Output::kModel, settings.save_model); });
  if (!stopped && !settings.save_adapter.empty()) {
    attempt([&] { training->write(Output::kAdapter, settings.save_adapter); });
  }
  const bool keep = stopped || (failure && saves_model(settings));
  if (keep && !saved && !state_failed) {  // what a checkpoint holds is worth more than the reason why it is needed
    attempt([&] {
      if (path.empty() && first) path = unused_checkpoint_path(lock);
      save_at_end();
    });
  }
  const int signal = training->stop_signal();
  const char* const how = torchrun ? "under torchrun with" : "with";
  polite.reset();
  auto json = results_json(settings, *training, results);
  const auto paging = training->paging();
  if (paging) json["paging"] = paging_json(*paging);
  if (const auto gradients = training->gradient_paging()) json["gradient_paging"] = paging_json(*gradients);
  if (before && after) json["evaluation"] = evaluation_json(*before, *after);
  attempt([&] { write_json(settings.json, json); });
  if (stopped && saved) {
    std::printf("stopped after step %lld; saved in %s; continue %s:\n  %s\n",
                static_cast<long long>(training->steps_done()), printable(path).c_str(), how,
                printable(how_to_resume(settings, path)).c_str());
  } else {
    print_summary(settings, results, paging);
    if (json.contains("evaluation")) print_evaluation(settings, json["evaluation"]);
    if (keep && saved) {
      std::printf("step %lld is saved in %s; continue %s:\n  %s\n", static_cast<long long>(training->steps_done()),
                  printable(path).c_str(), how, printable(how_to_resume(settings, path)).c_str());
    }
  }
  if (failure) std::rethrow_exception(failure);
  try {  // last: where there is no plan, the training is worth no less
    if (!settings.save_run.empty()) training->write(Output::kRun, settings.save_run);
    if (!settings.save_plan.empty()) training->write(Output::kPlan, settings.save_plan);
  } catch (const Error& error) {
    if (!stopped && !results.empty()) throw;
    print_notice(error.what());
  }
  return stopped ? 128 + signal : 0;
}

}  // namespace remat::cli
