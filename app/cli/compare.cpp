#include "cli/compare.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>

#include "cli/budget_refusal.h"
#include "cli/comparison.h"
#include "cli/interrupt.h"
#include "cli/json_file.h"
#include "cli/printable.h"
#include "cli/progress.h"
#include "cli/read_training_data.h"
#include "cli/table.h"
#include "cli/training_loop.h"
#include "cli/training_process.h"

namespace remat::cli {
namespace {

constexpr size_t kOperatorsShown = 6;

std::string share(int64_t part, int64_t whole) {
  return whole > 0 ? format_number(100.0 * static_cast<double>(part) / static_cast<double>(whole), 1) + "%" : "";
}

std::string speed(const TrainSettings& settings, double seconds) {
  return format_count(static_cast<int64_t>(static_cast<double>(items_per_step(settings)) / seconds));
}

// A percent budget is a share of what plain takes once the optimizer's state exists: these steps are taken ahead.
constexpr int64_t kStepsAhead = 2;

// Both trainings, step by step in turn, so that what else the machine does meets both alike.
class Turns {
 public:
  Turns(const TrainSettings& settings, const TrainingData& data)
      : settings_(settings),
        data_(data),
        plain_process_("the plain training",
                       {.settings = settings, .data = data, .budget = std::nullopt, .fingerprints = true}),
        progress_(stdout) {}

  // Until the steps are done, or to the end of the one in which a signal arrives.
  void run(const Budget& asked) {
    const PoliteStop polite;  // the bar on the terminal is left in order
    while (next(plain) && plain.size() < kStepsAhead) step_plain();
    if (interrupted() != 0) return;
    budget = cli::budget_bytes(asked, plain);
    try {
      const auto process = begin(budget > 0 ? Budget::bytes(budget) : Budget());
      while (next(remat)) {
        if (plain.size() == remat.size()) step_plain();
        if (interrupted() == 0) step_remat(*process);
      }
    } catch (const BudgetError& refusal) {
      if (remat.size() >= kFirstSteps) throw;
      progress_.finish();
      const auto other = [this](const Budget& within) {
        return [process = std::shared_ptr(begin(within))]() -> std::optional<StepResult> {
          return interrupted() == 0 ? std::optional(process->step()) : std::nullopt;
        };
      };
      const bool percent = asked.kind() == Budget::Kind::kPercent;
      refuse_with_smallest_budget(refusal, settings_, other,
                                  [&](int64_t bytes) { return percent ? percentage_of(bytes, plain) : std::nullopt; });
    }
    progress_.finish();
  }

  ParameterCount parameter_count() { return plain_process_.parameter_count(); }

  std::vector<StepResult> plain, remat;
  int64_t budget = 0;  ///< in bytes; 0: the device's limit

 private:
  bool next(const std::vector<StepResult>& results) const {
    return interrupted() == 0 && std::ssize(results) < settings_.steps;
  }

  std::unique_ptr<TrainingProcess> begin(const Budget& within) const {
    return std::make_unique<TrainingProcess>(
        "the budgeted training",
        TrainingTask{.settings = settings_, .data = data_, .budget = within, .fingerprints = true});
  }

  void step_plain() {
    plain.push_back(plain_process_.step());
    check_loss(plain.back());
    if (std::ssize(plain) <= kStepsAhead) show(plain, "plain", plain_process_, std::nullopt);
  }

  void step_remat(TrainingProcess& process) {
    remat.push_back(process.step());
    check_loss(remat.back());
    show(remat, "both", process, median_seconds(remat) / median_seconds(plain));
  }

  void show(const std::vector<StepResult>& results, const std::string& label, const TrainingProcess& process,
            std::optional<double> times_plain) {
    const auto& result = results.back();
    const double seconds = median_seconds(plain) + median_seconds(remat.empty() ? plain : remat);
    std::optional<int64_t> limit;
    if (times_plain && budget > 0) limit = budget;
    progress_.show({.label = label,
                    .step = result.step,
                    .steps = settings_.steps,
                    .loss = result.loss,
                    .item_name = item_name(settings_),
                    .items_per_second = static_cast<double>(items_per_step(settings_)) / result.seconds,
                    .times_plain = times_plain,
                    .current_bytes = process.current_bytes(),
                    .peak_bytes = peak_bytes(results),
                    .budget_bytes = limit,
                    .seconds_left = seconds * static_cast<double>(settings_.steps - std::ssize(remat))});
  }

  const TrainSettings& settings_;
  const TrainingData& data_;
  TrainingProcess plain_process_;
  Progress progress_;
};

// "8 x 128 bytes".
std::string batch_text(const TrainSettings& settings) {
  const auto batch = std::to_string(settings.batch), seq = std::to_string(settings.model.seq);
  if (learns_pictures(settings)) return batch + " pictures";
  if (settings.model.task == kClassify) return batch + " texts of at most " + seq + " tokens";
  return batch + " x " + seq + (settings.model.directory.empty() ? " bytes" : " tokens");
}

std::string comparison_table(const TrainSettings& settings, const std::vector<StepResult>& plain,
                             const std::vector<StepResult>& remat, int64_t budget) {
  const auto plain_added = peak_bytes(plain) - baseline_bytes(plain);
  const auto remat_added = peak_bytes(remat) - baseline_bytes(remat);
  const auto plain_seconds = median_seconds(plain), remat_seconds = median_seconds(remat);
  Table table;
  table.add({"", "plain", "remat", "remat / plain"});
  table.add({"peak memory", format_bytes(peak_bytes(plain)), format_bytes(peak_bytes(remat)),
             share(peak_bytes(remat), peak_bytes(plain))});
  table.add({"  alive between steps", format_bytes(baseline_bytes(plain)), format_bytes(baseline_bytes(remat))});
  table.add(
      {"  activation peak", format_bytes(plain_added), format_bytes(remat_added), share(remat_added, plain_added)});
  table.add({"budget", "-", budget > 0 ? format_bytes(budget) : "device limit"});
  table.add({"time per step", format_seconds(plain_seconds), format_seconds(remat_seconds),
             format_number(100 * remat_seconds / plain_seconds, 1) + "%"});
  table.add({item_name(settings) + " per second", speed(settings, plain_seconds), speed(settings, remat_seconds)});
  table.add({"loss in the first step", format_number(plain.front().loss, 6), format_number(remat.front().loss, 6)});
  table.add({"loss in the last step", format_number(plain.back().loss, 6), format_number(remat.back().loss, 6)});
  return table.to_string();
}

std::string recomputed_table(const std::vector<StepResult>& results) {
  const auto operators = replayed_operators(results);
  if (operators.empty()) return "recomputed: nothing\n";
  const auto steps = static_cast<double>(std::max<size_t>(results.size() - 1, 1));
  Table table;
  table.add({"recomputed per step", "times", "time", "memory"});
  for (size_t i = 0; i < std::min(operators.size(), kOperatorsShown); ++i) {
    const auto& replayed = operators[i];
    table.add({"  " + replayed.name, format_number(static_cast<double>(replayed.count) / steps, 1),
               format_seconds(replayed.seconds / steps),
               format_bytes(static_cast<int64_t>(static_cast<double>(replayed.bytes) / steps))});
  }
  if (operators.size() > kOperatorsShown) {
    table.add({"  and " + std::to_string(operators.size() - kOperatorsShown) + " other operators"});
  }
  return table.to_string();
}

nlohmann::json run_json(const std::vector<StepResult>& results) {
  auto steps = nlohmann::json::array();
  for (const auto& result : results) steps.push_back(to_json(result));
  return {{"peak_bytes", peak_bytes(results)},
          {"baseline_bytes", baseline_bytes(results)},
          {"median_seconds", median_seconds(results)},
          {"steps", std::move(steps)}};
}

}  // namespace

int run_compare(const TrainSettings& settings) {
  check_json_path(settings.json);
  const auto data = read_training_data(settings);
  const auto asked = Budget::parse(settings.budget);
  std::printf("%s, %lld steps of %s of %s, seed %llu, budget %s\n", printable(model_text(settings.model)).c_str(),
              static_cast<long long>(settings.steps), batch_text(settings).c_str(), printable(settings.data).c_str(),
              static_cast<unsigned long long>(settings.seed), budget_text(settings.budget).c_str());

  std::fflush(stdout);
  Turns turns(settings, *data);
  turns.run(asked);
  if (interrupted() != 0) return 128 + interrupted();
  const auto &plain = turns.plain, &remat = turns.remat;
  const auto budget = turns.budget;
  const auto [parameters, trained] = turns.parameter_count();

  const auto difference = first_difference(plain, remat);
  const bool within = budget == 0 || peak_bytes(remat) <= budget;
  std::printf("\n%s\n%s\n", comparison_table(settings, plain, remat, budget).c_str(), recomputed_table(remat).c_str());
  if (difference.empty()) {
    std::printf("bit-identical: yes. %zu losses, and in each of %zu steps %s gradients and %s parameters.\n",
                plain.size(), plain.size(), format_count(trained).c_str(), format_count(trained).c_str());
  } else {
    std::printf("bit-identical: NO. The first difference is %s.\n", difference.c_str());
  }
  std::printf("within the budget: %s\n", within ? "yes" : "NO");
  write_json(settings.json, {{"command", "compare"},
                             {"settings", decisive(settings)},
                             {"parameters", parameters},
                             {"budget", settings.budget},
                             {"budget_bytes", budget},
                             {"bit_identical", difference.empty()},
                             {"within_budget", within},
                             {"plain", run_json(plain)},
                             {"remat", run_json(remat)}});
  return difference.empty() && within ? 0 : 1;
}

}  // namespace remat::cli
