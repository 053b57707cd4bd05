#include "cli/train.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "cli/checkpoint_file.h"
#include "cli/checkpoint_lock.h"
#include "cli/interrupt.h"
#include "cli/json_file.h"
#include "cli/options.h"
#include "cli/output_file.h"
#include "cli/rank_place.h"
#include "cli/rank_processes.h"
#include "cli/table.h"
#include "cli/train_game.h"
#include "cli/train_model.h"
#include "cli/training_data.h"
#include "cli/training_loop.h"
#include "data/file_error.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

// What a checkpoint says of itself: everything that must agree for a resumed run to give the same bits.
nlohmann::json about(const TrainSettings& settings, const TrainingData& data, int64_t step) {
  nlohmann::json json = {{"settings", decisive(settings)},
                         {"text", {{"bytes", data.bytes()}, {"xxh3", data.fingerprint()}}},
                         {"step", step}};
  if (!data.labels().empty()) json["labels"] = data.labels().names;
  return json;
}

void save(const std::string& path, const TrainSettings& settings, const TrainingData& data, const Trainer& trainer) {
  CheckpointWriter file(path, about(settings, data, trainer.steps_done()));
  trainer.save([&](const void* bytes, size_t size) { file.append(bytes, size); });
  file.commit();
}

void resume(const TrainSettings& settings, const TrainingData& data, Trainer& trainer) {
  const CheckpointReader file(settings.checkpoint);
  const auto& theirs = file.about();
  const auto ours = about(settings, data, 0);
  if (const auto different = differences(theirs.at("settings"), ours.at("settings")); !different.empty()) {
    throw Error("[checkpoint] '" + settings.checkpoint + "' is of another training: " + different +
                "; give the same options, or start anew without --resume");
  }
  if (theirs.at("text") != ours.at("text")) {
    throw Error("[checkpoint] '" + settings.checkpoint + "' was trained on another text (" +
                theirs.at("text").at("bytes").dump() + " bytes, '" + settings.data + "' has " +
                std::to_string(data.bytes()) + " or others); give the same --data");
  }
  if (const auto labels = ours.find("labels"); labels != ours.end() && theirs.value("labels", *labels) != *labels) {
    throw Error("[checkpoint] '" + settings.checkpoint + "' tells the labels " + theirs.at("labels").dump() +
                " apart, and these are " + labels->dump() +
                "; give the same labels in the same order, or start anew "
                "without --resume");
  }
  trainer.load([&](size_t offset, void* to, size_t size) { return file.read(offset, to, size); }, file.payload_size());
}

// A place for the state of a run that named none: never one where something is, or where another run is about to save.
std::string unused_path(std::optional<CheckpointLock>& lock) {
  for (int i = 1;; ++i) {
    std::string path = "remat-interrupted";
    if (i > 1) path.append("-").append(std::to_string(i));
    path += ".ckpt";
    try {
      lock.emplace(path);
    } catch (const Error&) {
      continue;
    }
    if (!fs::exists(path)) return path;
  }
}

std::string how_to_resume(const TrainSettings& settings, const std::string& path) {
  auto command = settings.command_line;
  if (settings.checkpoint.empty()) command += " --checkpoint " + path;
  if (!settings.resume) command += " --resume";
  return command;
}

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

/// The step under the budget that peaked highest; null where there is none.
const StepResult* highest_under_budget(const std::vector<StepResult>& results) {
  const StepResult* highest = nullptr;
  for (const auto& result : results) {
    if (result.budget_bytes && (highest == nullptr || result.report->peak_bytes > highest->report->peak_bytes)) {
      highest = &result;
    }
  }
  return highest;
}

}  // namespace

void print_summary(const TrainSettings& settings, const std::vector<StepResult>& results) {
  if (results.empty()) return;
  int64_t peak = 0;
  for (const auto& result : results) peak = std::max(peak, result.peak_bytes);
  const double seconds = median_seconds(results);
  Table table;
  table.add({"loss", format_number(results.front().loss, 4) + " -> " + format_number(results.back().loss, 4)});
  if (const auto* const step = highest_under_budget(results)) {
    table.add({"peak memory", format_bytes(step->report->peak_bytes)});
    table.add({"budget", format_bytes(*step->budget_bytes)});
    // The budget is that of forward and backward: what the optimizer allocates is outside of it.
    int64_t optimizers = 0;
    for (const auto& result : results) {
      if (result.peak_bytes > result.report->peak_bytes) optimizers = std::max(optimizers, result.peak_bytes);
    }
    if (optimizers > *step->budget_bytes) table.add({"optimizer's peak", format_bytes(optimizers)});
  } else {
    table.add({"peak memory", format_bytes(peak)});
  }
  table.add({"time per step", format_seconds(seconds)});
  table.add({item_name(settings) + " per second",
             format_count(static_cast<int64_t>(static_cast<double>(items_per_step(settings)) / seconds))});
  std::fputs(table.to_string().c_str(), stdout);
}

namespace {

nlohmann::json evaluation_json(const Evaluation& before, const Evaluation& after) {
  nlohmann::json json = {{"before", before.loss}, {"after", after.loss}};
  if (before.accuracy) json["accuracy"] = {{"before", *before.accuracy}, {"after", *after.accuracy}};
  return json;
}

void print_evaluation(const TrainSettings& settings, const nlohmann::json& evaluation) {
  const double before = evaluation["before"], after = evaluation["after"];
  const auto change = [](const std::string& name, double from, double to, int digits) {
    return ", " + name + " " + format_number(from, digits) + " -> " + format_number(to, digits);
  };
  auto text = change("loss", before, after, 4).substr(2);
  if (evaluation.contains("accuracy")) {
    const auto& accuracy = evaluation["accuracy"];
    text += change("accuracy", accuracy["before"], accuracy["after"], 4);
  } else {
    text += change("perplexity", std::exp(before), std::exp(after), 1);
  }
  std::printf("%s: %s\n", settings.held_out.c_str(), text.c_str());
}

}  // namespace

nlohmann::json results_json(const TrainSettings& settings, const Training& training,
                            const std::vector<StepResult>& results) {
  auto steps = nlohmann::json::array();
  for (const auto& result : results) steps.push_back(to_json(result));
  nlohmann::json json = {{"command", "train"},        {"settings", decisive(settings)},
                         {"plain", settings.plain},   {"parameters", training.parameter_count().all},
                         {"steps", std::move(steps)}, {"median_seconds", median_seconds(results)}};
  if (settings.ranks > 1) {
    json["ranks"] = settings.ranks;
    json["shard"] = settings.shard;
  }
  if (!results.empty() && results.back().budget_bytes) json["budget_bytes"] = *results.back().budget_bytes;
  return json;
}

namespace {

// Says once that the plan given is ignored, and why.
class IgnoredPlan {
 public:
  explicit IgnoredPlan(std::string path) : path_(std::move(path)) {}

  void look_at(const StepResult& result) {
    if (told_ || !result.report || !result.report->decision_reason.starts_with("the plan given ")) return;
    std::fprintf(stderr,
                 "\nremat: [plan] step %lld did not follow '%s': %s; record the step with the same options, or give a "
                 "larger --budget\n",
                 static_cast<long long>(result.step), path_.c_str(), result.report->decision_reason.c_str());
    told_ = true;
  }

 private:
  const std::string path_;
  bool told_ = false;
};

std::optional<Budget> budget_of(const TrainSettings& settings) {
  return settings.plain ? std::nullopt : std::optional(Budget::parse(settings.budget));
}

void print_header(const TrainSettings& settings, const TrainingData& data, const Training& training) {
  const auto count = training.parameter_count();
  std::printf("%s, %s parameters, %s, %s\n",
              (settings.model.directory.empty() ? settings.model.kind : settings.model.directory).c_str(),
              format_count(count.all).c_str(), settings.data.c_str(),
              settings.plain ? "plain" : ("budget " + budget_text(settings.budget)).c_str());
  if (const auto& lora = settings.model.lora; lora.rank > 0) {
    std::printf("LoRA of rank %lld trains %s of them\n", static_cast<long long>(lora.rank),
                format_count(count.trained).c_str());
  }
  if (const auto& labels = data.labels(); !labels.empty()) {
    std::printf("%lld classes: %s\n", static_cast<long long>(labels.classes()), data::list_names(labels.names).c_str());
  }
}

// On several processes: nothing is saved.
int run_ranks(const TrainSettings& settings) {
  check_json_path(settings.json);
  const auto data = read_training_data(settings);
  RankProcesses training(settings, *data, budget_of(settings));
  print_header(settings, *data, training);
  std::printf("%lld processes, each with %s\n", static_cast<long long>(settings.ranks),
              settings.shard ? "its part of the parameters" : "all parameters");
  std::optional<PoliteStop> polite(std::in_place);
  std::vector<StepResult> results;
  run_steps(training, settings, "train", results);
  const int signal = interrupted();
  polite.reset();
  write_json(settings.json, results_json(settings, training, results));
  print_summary(settings, results);
  if (!results.empty()) {
    int64_t sum = 0;
    for (const auto& result : results) {
      sum = std::max(sum, std::accumulate(result.rank_peak_bytes.begin(), result.rank_peak_bytes.end(), int64_t{0}));
    }
    std::printf("all processes together: %s at most\n", format_bytes(sum).c_str());
  }
  if (training.steps_done() == settings.steps) return 0;
  std::printf("stopped after step %lld; nothing is saved\n", static_cast<long long>(training.steps_done()));
  return 128 + signal;
}

// One of several processes that others have started (torchrun): the first of them reports.
int run_rank(const TrainSettings& settings, const RankPlace& place) {
  const auto data = read_training_data(settings);
  Trainer trainer(settings, *data, budget_of(settings), place);
  std::vector<StepResult> results;
  if (place.rank > 0) {
    while (trainer.steps_done() < settings.steps) check_loss(trainer.step());
    return 0;
  }
  check_json_path(settings.json);
  print_header(settings, *data, trainer);
  run_steps(trainer, settings, "train", results);
  write_json(settings.json, results_json(settings, trainer, results));
  print_summary(settings, results);
  return 0;
}

}  // namespace

int run_train(const TrainSettings& settings) {
  if (settings.model.task == kReinforce) return run_game(settings);
  check_results(settings);
  if (const auto place = place_from_environment()) {
    if (settings.optimizer_in_backward) {
      throw UsageError("[options] --optimizer-in-backward has no effect with several processes yet; leave it out");
    }
    return run_rank(settings, *place);
  }
  if (settings.ranks > 1) return run_ranks(settings);
  std::optional<CheckpointLock> lock;
  if (!settings.checkpoint.empty()) lock.emplace(settings.checkpoint);  // before it is looked at
  check_before_training(settings);
  const auto data = read_training_data(settings);
  Trainer trainer(settings, *data, budget_of(settings));
  if (settings.resume) resume(settings, *data, trainer);
  print_header(settings, *data, trainer);
  if (settings.resume) std::printf("resumed after step %lld\n", static_cast<long long>(trainer.steps_done()));
  // What follows the last step may be wanted still: that of a run that was interrupted there.
  if (trainer.steps_done() >= settings.steps && !saves_model(settings) && settings.held_out.empty()) {
    std::printf("nothing to do: --steps is %lld\n", static_cast<long long>(settings.steps));
    return 0;
  }

  std::unique_ptr<TrainingData> held_out;
  std::optional<Evaluation> before;
  if (!settings.held_out.empty()) {
    held_out = read_held_out_data(settings, data->labels());
    before = trainer.evaluate(*held_out);
  }

  std::optional<PoliteStop> polite(std::in_place);  // from now on there is something to lose
  const auto first_step = trainer.steps_done();
  std::vector<StepResult> results;
  IgnoredPlan ignored_plan(settings.plan);
  const auto after_step = [&](const StepResult& result) {
    ignored_plan.look_at(result);
    if (settings.checkpoint_every == 0 || result.step % settings.checkpoint_every != 0) return;
    if (result.step == settings.steps) return;  // the end saves
    try {
      save(settings.checkpoint, settings, *data, trainer);
    } catch (const Error& error) {
      // A disk can be full for a moment; the training is worth more than this checkpoint. The last one decides.
      std::fprintf(stderr, "\nremat: %s; training goes on\n", error.what());
    }
  };
  try {
    run_steps(trainer, settings, "train", results, after_step);
  } catch (const Error&) {
    // Not a loss that diverged, or parameters of which some were updated: that state is worth nothing.
    const bool sound = !trainer.is_between_steps() && (results.empty() || std::isfinite(results.back().loss));
    if (sound && !settings.checkpoint.empty() && trainer.steps_done() > first_step) {
      save(settings.checkpoint, settings, *data, trainer);
      std::printf("saved step %lld in %s\n", static_cast<long long>(trainer.steps_done()), settings.checkpoint.c_str());
    }
    throw;
  }

  bool stopped = trainer.steps_done() < settings.steps;
  auto path = settings.checkpoint;
  bool saved = settings.resume && results.empty();  // by the run before
  std::exception_ptr failure;
  const auto attempt = [&](const auto& work) {
    try {
      work();
    } catch (...) {
      if (failure) return;  // the first one is reported
      failure = std::current_exception();
    }
  };
  const auto save_state = [&] {
    save(path, settings, *data, trainer);
    saved = true;
  };
  if (!path.empty() && !saved) attempt(save_state);
  const bool state_failed = failure != nullptr;
  std::optional<Evaluation> after;
  if (!stopped && before) {
    attempt([&] { after = results.empty() ? before : trainer.evaluate(*held_out); });
    stopped = !after && !failure;  // a signal
  }
  if (!stopped && !settings.save_model.empty()) attempt([&] { trainer.save_model(settings.save_model); });
  if (!stopped && !settings.save_adapter.empty()) attempt([&] { trainer.save_adapter(settings.save_adapter); });
  const bool keep = stopped || (failure && saves_model(settings));
  if (keep && !saved && !state_failed) {  // what a checkpoint holds is worth more than the reason why it is needed
    attempt([&] {
      if (path.empty()) path = unused_path(lock);
      save_state();
    });
  }
  const int signal = interrupted();
  polite.reset();
  auto json = results_json(settings, trainer, results);
  if (before && after) json["evaluation"] = evaluation_json(*before, *after);
  attempt([&] { write_json(settings.json, json); });
  if (stopped && saved) {
    std::printf("stopped after step %lld; saved in %s; continue with:\n  %s\n",
                static_cast<long long>(trainer.steps_done()), path.c_str(), how_to_resume(settings, path).c_str());
  } else {
    print_summary(settings, results);
    if (json.contains("evaluation")) print_evaluation(settings, json["evaluation"]);
    if (keep && saved) {
      std::printf("step %lld is saved in %s; continue with:\n  %s\n", static_cast<long long>(trainer.steps_done()),
                  path.c_str(), how_to_resume(settings, path).c_str());
    }
  }
  if (failure) std::rethrow_exception(failure);
  try {  // last: where there is no plan, the training is worth no less
    if (!settings.save_run.empty()) write_output(settings.save_run, to_json(trainer.last_step()), "save-run");
    if (!settings.save_plan.empty()) write_output(settings.save_plan, trainer.plan(), "save-plan");
  } catch (const Error& error) {
    if (!stopped && !results.empty()) throw;
    std::fprintf(stderr, "remat: %s\n", error.what());
  }
  return stopped ? 128 + signal : 0;
}

}  // namespace remat::cli
