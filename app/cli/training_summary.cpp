#include "cli/training_summary.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include <remat/budget.h>

#include "cli/head_loss.h"
#include "cli/printable.h"
#include "cli/table.h"
#include "cli/training_loop.h"
#include "data/file_error.h"

namespace remat::cli {
namespace {

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

void print_header(const TrainSettings& settings, const TrainingData& data, const Training& training) {
  const auto count = training.parameter_count();
  std::printf("%s, %s parameters, %s, %s\n",
              printable(settings.model.directory.empty() ? settings.model.kind : settings.model.directory).c_str(),
              format_count(count.all).c_str(), printable(settings.data).c_str(),
              settings.plain ? "plain" : ("budget " + budget_text(settings.budget)).c_str());
  if (const auto& lora = settings.model.lora; lora.rank > 0) {
    std::printf("LoRA of rank %lld trains %s of them\n", static_cast<long long>(lora.rank),
                format_count(count.trained).c_str());
  }
  if (const auto& labels = data.labels(); !labels.empty()) {
    std::printf("%lld classes: %s\n", static_cast<long long>(labels.classes()),
                printable(data::list_names(labels.names)).c_str());
  }
  if (settings.ranks > 1) {
    std::printf("%lld processes, each with %s\n", static_cast<long long>(settings.ranks),
                settings.shard ? "its part of the parameters" : "all parameters");
  }
}

void print_summary(const TrainSettings& settings, const std::vector<StepResult>& results,
                   const std::optional<PagingReport>& paging) {
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
  if (paging) {
    const auto steps = static_cast<double>(results.size());
    table.add({"optimizer's state on disk", format_bytes(paging->paged_bytes)});
    table.add({"waited for it per step", format_seconds(paging->waited_seconds / steps)});
  }
  std::fputs(table.to_string().c_str(), stdout);
  if (const auto& head = results.back().head) std::printf("head: %s\n", head_text(*head).c_str());
  int64_t together = 0;
  for (const auto& result : results) {
    const auto& peaks = result.rank_peak_bytes;
    together = std::max(together, std::accumulate(peaks.begin(), peaks.end(), int64_t{0}));
  }
  if (together > 0) std::printf("all processes together: %s at most\n", format_bytes(together).c_str());
}

nlohmann::json paging_json(const PagingReport& report) {
  return {{"written_bytes", report.written_bytes},   {"read_bytes", report.read_bytes},
          {"write_seconds", report.write_seconds},   {"read_seconds", report.read_seconds},
          {"waited_seconds", report.waited_seconds}, {"file_bytes", report.file_bytes},
          {"paged_bytes", report.paged_bytes},       {"unwritten_bytes", report.unwritten_bytes}};
}

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
  std::printf("%s: %s\n", printable(settings.held_out).c_str(), text.c_str());
}

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

void print_budget_change(const StepResult& result) {
  if (!result.report || result.report->budget_reason.empty()) return;
  print_notice("[budget] " + format_bytes(result.report->budget_bytes) + " in step " + std::to_string(result.step) +
                   ": " + result.report->budget_reason,
               /*in_progress=*/true);
}

void IgnoredPlan::look_at(const StepResult& result) {
  if (told_ || !result.report || !result.report->decision_reason.starts_with("the plan given ")) return;
  print_notice("[plan] step " + std::to_string(result.step) + " did not follow '" + path_ +
                   "': " + result.report->decision_reason +
                   "; record the step with the same options, or give a larger --budget",
               /*in_progress=*/true);
  told_ = true;
}

}  // namespace remat::cli
