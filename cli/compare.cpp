#include "cli/compare.h"

#include <algorithm>
#include <cstdio>

#include "cli/comparison.h"
#include "cli/interrupt.h"
#include "cli/json_file.h"
#include "cli/table.h"
#include "cli/training_loop.h"

namespace remat::cli {
namespace {

constexpr size_t kOperatorsShown = 6;

std::string share(int64_t part, int64_t whole) {
  return whole > 0 ? format_number(100.0 * static_cast<double>(part) / static_cast<double>(whole), 1) + "%" : "";
}

std::string speed(const TrainSettings& settings, double seconds) {
  return format_count(static_cast<int64_t>(static_cast<double>(tokens_per_step(settings)) / seconds));
}

// One run from its own fresh start: the other's tensors are gone by then, and so count for neither.
std::vector<StepResult> train(const TrainSettings& settings, const TextData& data, std::optional<Budget> budget,
                              int64_t& parameters) {
  Trainer trainer(settings, data, budget);
  trainer.record_fingerprints();
  parameters = trainer.parameter_count();
  std::vector<StepResult> results;
  const PoliteStop polite;  // the bar on the terminal is left in order
  run_steps(trainer, settings, budget ? "remat" : "plain", results);
  return results;
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
  table.add({"tokens per second", speed(settings, plain_seconds), speed(settings, remat_seconds)});
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
  const TextData data(settings.data, settings.model.seq, settings.seed);
  const auto asked = Budget::parse(settings.budget);
  std::printf("%s: %lld layers of width %lld, %lld steps of %lld x %lld bytes of %s, seed %llu, budget %s\n",
              settings.model.kind.c_str(), static_cast<long long>(settings.model.layers),
              static_cast<long long>(settings.model.width), static_cast<long long>(settings.steps),
              static_cast<long long>(settings.batch), static_cast<long long>(settings.model.seq), settings.data.c_str(),
              static_cast<unsigned long long>(settings.seed), asked.to_string().c_str());

  int64_t parameters = 0;
  const auto plain = train(settings, data, std::nullopt, parameters);
  if (interrupted() != 0) return 128 + interrupted();
  const auto budget = budget_bytes(asked, plain);
  const auto remat = train(settings, data, budget > 0 ? Budget::bytes(budget) : Budget(), parameters);
  if (interrupted() != 0) return 128 + interrupted();

  const auto difference = first_difference(plain, remat);
  const bool within = budget == 0 || peak_bytes(remat) <= budget;
  std::printf("\n%s\n%s\n", comparison_table(settings, plain, remat, budget).c_str(), recomputed_table(remat).c_str());
  if (difference.empty()) {
    std::printf("bit-identical: yes. %zu losses, and in each of %zu steps %s gradients and %s parameters.\n",
                plain.size(), plain.size(), format_count(parameters).c_str(), format_count(parameters).c_str());
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
