// What `remat sweep` prints.
#include <algorithm>
#include <functional>
#include <map>

#include "cli/sweep_results.h"
#include "cli/table.h"

namespace remat::cli {
namespace {

constexpr size_t kValuesShown = 8;
constexpr const char* kVaries = "; ? where times vary too much to tell";

std::string percent_text(std::optional<double> value) { return value ? format_number(*value, 1) : "-"; }

std::optional<double> predicted_percent(const SweepCell& cell, const PlainStep& plain) {
  if (!cell.attempt.plan) return std::nullopt;
  return plain.extra_percent(cell.attempt.plan->predicted_seconds);
}

/// "?" where times vary too much to tell.
std::string measured_percent(const SweepCell& cell) {
  if (!cell.measured) return "-";
  const auto extra = cell.measured->extra_percent();
  return extra ? percent_text(extra) : "?";
}

/// "12.3 MiB", "10.1 %" of an activation peak, as two cells.
void add_peak(std::vector<std::string>& row, std::optional<int64_t> peak, const PlainStep& plain) {
  row.push_back(peak ? format_bytes(*peak - plain.baseline_bytes) : "-");
  row.push_back(peak ? percent_text(plain.activation_percent(*peak)) : "-");
}

/// Predicted peak and time, then what was measured of both where anything was.
void add_figures(std::vector<std::string>& row, const SweepCell& cell, const PlainStep& plain, bool measured) {
  const auto& plan = cell.attempt.plan;
  add_peak(row, plan ? std::optional(plan->predicted_peak_bytes) : std::nullopt, plain);
  row.push_back(percent_text(predicted_percent(cell, plain)));
  if (!measured) return;
  add_peak(row, cell.measured ? std::optional(cell.measured->peak_bytes) : std::nullopt, plain);
  row.push_back(measured_percent(cell));
}

std::vector<std::string> figure_names(bool measured) {
  std::vector<std::string> names = {"peak", "% of plain", "extra time, %"};
  if (measured) names.insert(names.end(), {"measured peak", "% of plain", "extra time, %"});
  return names;
}

/// A row for each planner, a column for each budget.
template <class Figure>
std::string matrix(const std::vector<SweepCell>& cells, const Figure& figure) {
  Table table;
  std::vector<std::string> head = {"planner"};
  for (const auto& cell : cells) {
    if (cell.name == cells.front().name) head.push_back(cell.budget);
  }
  table.add(head);
  for (size_t i = 0; i < cells.size(); i += head.size() - 1) {
    std::vector<std::string> row = {cells[i].name};
    for (size_t j = i; j < std::min(cells.size(), i + head.size() - 1); ++j) row.push_back(figure(cells[j]));
    table.add(std::move(row));
  }
  return table.to_string();
}

std::string published_text(const SweepResults& results) {
  const auto point = published_point(results.model);
  if (!point) return "";
  std::string text = "published: " + format_number(point->memory_percent, 0) +
                     "% of all memory, weights included, for " + format_number(point->extra_percent, 0) +
                     "% more time (" + point->what + "; " + point->source + ")\n";
  for (const auto& cell : results.budgets) {
    if (cell.name != "auto" || cell.budget != format_number(point->memory_percent, 0) + "%") continue;
    if (!cell.attempt.plan) continue;
    const PlainStep& plain = results.step->plain;
    const auto peak = static_cast<double>(cell.attempt.plan->predicted_peak_bytes);
    text += "here:      " + cell.budget + " of the activations alone, which is " +
            format_number(100 * peak / static_cast<double>(plain.peak_bytes), 1) +
            "% of all memory, weights and gradients included, for " + percent_text(predicted_percent(cell, plain)) +
            "% more time, predicted" + (cell.measured ? "; " + measured_percent(cell) + "%, measured" : "") + "\n";
  }
  return text;
}

}  // namespace

std::string step_text(const SweepResults& results) {
  const SweptStep& step = *results.step;
  const PlainStep& plain = step.plain;
  std::string text = results.model + ", batch " + std::to_string(results.batch) + ": " + format_count(step.operators) +
                     " operators; plain takes " + format_bytes(plain.peak_bytes) + ", " +
                     format_bytes(plain.activation_bytes()) + " of it above the baseline, in " +
                     format_seconds(plain.seconds) + "\nno plan can do with less than " +
                     format_bytes(step.floor.peak_bytes) + ": " + to_text(step.floor) + "\n\n";
  // By value where there are few, by operator where there are many.
  std::vector<std::pair<std::string, int64_t>> parts;
  int64_t sum = 0;
  std::map<std::string, std::pair<int64_t, int64_t>> by_operator;
  for (const auto& value : step.saved) {
    sum += value.bytes;
    parts.emplace_back(value.operator_name, value.bytes);
    auto& [count, bytes] = by_operator[value.operator_name];
    count += 1, bytes += value.bytes;
  }
  if (parts.size() > kValuesShown) {
    parts.clear();
    for (const auto& [name, both] : by_operator) {
      parts.emplace_back(name + " x " + std::to_string(both.first), both.second);
    }
    std::ranges::stable_sort(parts, std::greater(), &std::pair<std::string, int64_t>::second);
  }
  Table table;
  const auto each = [&](int64_t bytes) { return format_bytes(bytes / results.batch); };
  table.add({"saved for the backward pass", "a step", "an example"});
  int64_t others = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i < kValuesShown) {
      table.add({"  " + parts[i].first, format_bytes(parts[i].second), each(parts[i].second)});
    } else {
      others += parts[i].second;
    }
  }
  if (others > 0) table.add({"  others", format_bytes(others), each(others)});
  table.add({"together", format_bytes(sum), each(sum)});
  return text + table.to_string();
}

std::string budgets_text(const SweepResults& results) {
  if (results.budgets.empty()) return "";
  const PlainStep& plain = results.step->plain;
  std::string text =
      "planners and budgets: predicted extra time, % of the step; - where a planner has no plan\n" +
      matrix(results.budgets, [&](const SweepCell& cell) { return percent_text(predicted_percent(cell, plain)); });
  const bool measured =
      std::ranges::any_of(results.budgets, [](const auto& cell) { return cell.measured.has_value(); });
  if (measured) {
    text += std::string("\nmeasured extra time, % of plain's step") + kVaries + "\n" +
            matrix(results.budgets, [](const SweepCell& cell) { return measured_percent(cell); }) +
            "\nmeasured activation peak, % of plain's\n" + matrix(results.budgets, [&](const SweepCell& cell) {
              return percent_text(cell.measured ? plain.activation_percent(cell.measured->peak_bytes) : std::nullopt);
            });
  }
  const std::string published = published_text(results);
  return text + (published.empty() ? "" : "\n" + published);
}

std::string checkpoints_text(const SweepResults& results) {
  if (results.checkpoints.empty()) return "";
  const PlainStep& plain = results.step->plain;
  const auto& rows = results.checkpoints;
  const bool measured = std::ranges::any_of(rows, [](const auto& row) { return row.cell.measured.has_value(); });
  Table table;
  std::vector<std::string> head = {"checkpoints", "segments", "operators in one"};
  for (auto& name : figure_names(measured)) head.push_back(std::move(name));
  head.insert(head.end(), {"auto, %"});
  table.add(std::move(head));
  for (const auto& row : rows) {
    std::vector<std::string> line = {std::to_string(row.places.size()), std::to_string(row.places.size() + 1),
                                     std::to_string(row.longest_segment)};
    add_figures(line, row.cell, plain, measured);
    line.push_back(row.better ? percent_text(predicted_percent(*row.better, plain)) : "-");
    table.add(std::move(line));
  }
  const auto& best = *std::ranges::min_element(
      rows, {}, [](const CheckpointRow& row) { return row.cell.attempt.plan->predicted_peak_bytes; });
  std::string text =
      std::string(
          "evenly spaced checkpoints: activation peak, and extra time in % of the step; auto in the same memory") +
      (measured ? kVaries : "") + "\n" + table.to_string() + "of these, " + checkpoints_name(best.places.size()) +
      (best.places.size() == 1 ? " takes" : " take") +
      " the fewest bytes: " + percent_text(plain.activation_percent(best.cell.attempt.plan->predicted_peak_bytes)) +
      "% of plain's for " + percent_text(predicted_percent(best.cell, plain)) + "% more time";
  if (best.better) text += "; auto: " + percent_text(predicted_percent(*best.better, plain)) + "%";
  return text + "\n";
}

std::string depths_text(const SweepResults& results) {
  if (results.depths.empty()) return "";
  bool measured = false;
  for (const auto& row : results.depths) {
    measured = measured || std::ranges::any_of(row.cells, [](const auto& cell) { return cell.measured.has_value(); });
  }
  Table table;
  std::vector<std::string> head = {"depth", "strategy", "checkpoints"};
  for (auto& name : figure_names(measured)) head.push_back(std::move(name));
  table.add(std::move(head));
  std::map<std::string, std::vector<std::pair<int64_t, int64_t>>> bytes;
  for (const auto& row : results.depths) {
    for (const auto& cell : row.cells) {
      std::vector<std::string> line = {std::to_string(row.depth), cell.name,
                                       cell.name == kCheckpoints ? std::to_string(row.checkpoints) : ""};
      add_figures(line, cell, row.plain, measured);
      table.add(std::move(line));
      if (!cell.attempt.plan) continue;
      bytes[cell.name].emplace_back(row.depth, cell.attempt.plan->predicted_peak_bytes - row.plain.baseline_bytes);
    }
  }
  std::string text =
      std::string("depths: activation peak, and extra time in % of the step; auto in the memory of the checkpoints") +
      (measured ? kVaries : "") + "\n" + table.to_string();
  for (const char* name : {kStoreAll, kCheckpoints, kRecomputeAll}) {
    if (const auto exponent = growth(bytes[name])) {
      text += std::string(name) + ": the activation peak grows as depth^" + format_number(*exponent, 2) + "\n";
    }
  }
  return text;
}

std::string checkpoints_name(size_t count) {
  return std::to_string(count) + (count == 1 ? " checkpoint" : " checkpoints");
}

std::string measured_text(const SweepCell& cell, const PlainStep& plain, const std::string& where) {
  const Plan& plan = *cell.attempt.plan;
  if (!cell.measured) return "  " + where + ": could not be measured: " + cell.refused + "\n";
  std::string text = "  " + where + ": predicted " + format_bytes(plan.predicted_peak_bytes) + ", extra time " +
                     percent_text(predicted_percent(cell, plain)) + "%; measured " +
                     format_bytes(cell.measured->peak_bytes) + ", extra time ";
  const auto range = percent_text(cell.measured->least_extra_percent()) + " to " +
                     percent_text(cell.measured->most_extra_percent()) + "%";
  text += cell.measured->extra_percent() ? measured_percent(cell) + "% (" + range + ")"
                                         : range + ": times vary too much to tell";
  if (!cell.measured->not_followed.empty()) text += " (not by the plan: " + cell.measured->not_followed + ")";
  return text + "\n";
}

}  // namespace remat::cli
