#include "cli/sweep_results.h"

#include <map>

namespace remat::cli {
namespace {

using nlohmann::json;

json or_null(std::optional<double> number) { return number ? json(*number) : json(); }

json measured_json(const Measurement& measured, const PlainStep& plain) {
  return {{"rounds", measured.rounds},
          {"peak_bytes", measured.peak_bytes},
          {"activation_percent", or_null(plain.activation_percent(measured.peak_bytes))},
          {"plain_peak_bytes", measured.plain_peak_bytes},
          {"seconds", measured.seconds},
          {"plain_seconds", measured.plain_seconds},
          {"extra_percent", or_null(measured.extra_percent())},
          {"least_extra_percent", measured.least_extra_percent()},
          {"most_extra_percent", measured.most_extra_percent()},
          {"followed", measured.not_followed.empty()},
          {"not_followed", measured.not_followed}};
}

json cell_json(const SweepCell& cell, const PlainStep& plain) {
  json result = {{"name", cell.name},
                 {"budget_bytes", cell.budget_bytes},
                 {"within_budget", cell.attempt.plan.has_value()},
                 {"planning_seconds", cell.attempt.planning_seconds}};
  if (!cell.budget.empty()) result["budget"] = cell.budget;
  if (cell.attempt.plan) {
    const Plan& plan = *cell.attempt.plan;
    result.update({{"predicted_peak_bytes", plan.predicted_peak_bytes},
                   {"activation_bytes", plan.predicted_peak_bytes - plain.baseline_bytes},
                   {"activation_percent", or_null(plain.activation_percent(plan.predicted_peak_bytes))},
                   {"predicted_seconds", plan.predicted_seconds},
                   {"extra_percent", or_null(plain.extra_percent(plan.predicted_seconds))}});
  } else if (cell.attempt.smallest_peak_bytes) {
    result["smallest_peak_bytes"] = *cell.attempt.smallest_peak_bytes;
  } else {
    result["error"] = utf8(cell.attempt.message);
  }
  if (cell.measured) result["measured"] = measured_json(*cell.measured, plain);
  if (!cell.refused.empty()) result["refused"] = cell.refused;
  return result;
}

json plain_json(const PlainStep& plain, int64_t operators) {
  return {{"operators", operators},
          {"baseline_bytes", plain.baseline_bytes},
          {"plain_peak_bytes", plain.peak_bytes},
          {"activation_bytes", plain.activation_bytes()},
          {"step_seconds", plain.seconds}};
}

json saved_json(const std::vector<SavedValue>& saved, int64_t batch) {
  const auto each = [&](int64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(batch); };
  auto values = json::array();
  int64_t sum = 0;
  for (const auto& value : saved) {
    values.push_back(
        {{"operator", value.operator_name}, {"bytes", value.bytes}, {"bytes_per_example", each(value.bytes)}});
    sum += value.bytes;
  }
  return {{"bytes", sum}, {"bytes_per_example", each(sum)}, {"values", std::move(values)}};
}

}  // namespace

json to_json(const SweepResults& results) {
  json document = {{"format", "remat-sweep"},
                   {"version", 1},
                   {"complete", results.complete},
                   {"remat", results.remat_version},
                   {"torch", results.surroundings.torch},
                   {"device", results.surroundings.device},
                   {"threads", results.surroundings.threads},
                   {"model", results.model},
                   {"sizes", results.sizes}};
  if (results.step) {
    const SweptStep& step = *results.step;
    document["batch"] = results.batch;
    document["step"] = plain_json(step.plain, step.operators);
    document["step"]["floor_bytes"] = step.floor.peak_bytes;
    document["saved"] = saved_json(step.saved, results.batch);
    auto& budgets = document["budgets"] = json::array();
    for (const auto& cell : results.budgets) budgets.push_back(cell_json(cell, step.plain));
    auto& checkpoints = document["checkpoints"] = json::array();
    for (const auto& row : results.checkpoints) {
      json entry = cell_json(row.cell, step.plain);
      entry.update({{"asked", row.asked},
                    {"checkpoints", row.places.size()},
                    {"places", row.places},
                    {"segments", row.places.size() + 1},
                    {"longest_segment_operators", row.longest_segment},
                    {"auto", row.better ? cell_json(*row.better, step.plain) : json()}});
      checkpoints.push_back(std::move(entry));
    }
  }
  auto& depths = document["depths"] = json::array();
  std::map<std::string, std::vector<std::pair<int64_t, int64_t>>> bytes;
  for (const auto& row : results.depths) {
    json entry = plain_json(row.plain, row.operators);
    entry.update({{"depth", row.depth}, {"checkpoints", row.checkpoints}, {"strategies", json::array()}});
    for (const auto& cell : row.cells) {
      entry["strategies"].push_back(cell_json(cell, row.plain));
      if (!cell.attempt.plan) continue;
      bytes[cell.name].emplace_back(row.depth, cell.attempt.plan->predicted_peak_bytes - row.plain.baseline_bytes);
    }
    depths.push_back(std::move(entry));
  }
  auto& exponents = document["growth"] = json::object();
  for (const auto& [name, points] : bytes) exponents[name] = or_null(growth(points));
  if (const auto point = published_point(results.model)) {
    document["published"] = {{"what", point->what},
                             {"source", point->source},
                             {"memory_percent", point->memory_percent},
                             {"extra_percent", point->extra_percent}};
  }
  return document;
}

}  // namespace remat::cli
