#include "cli/planning.h"

#include <chrono>
#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>

#include <remat/error.h>

#include "cli/input_file.h"

namespace remat::cli {
namespace {

// A graph takes some hundred bytes for each operator.
constexpr int64_t kMostBytes = int64_t{1} << 30;

// Errors of the file and of `parse` name it.
template <class Parse>
auto read_document(const std::string& path, const InputKind& kind, const Parse& parse) {
  const std::string text = read_input(path, kind);
  try {
    return parse(std::string_view(text));
  } catch (const Error& error) {
    const std::string where = "[" + kind.what + "] ";
    std::string message = error.what();
    if (message.starts_with(where)) message.erase(0, where.size());
    throw Error(where + "'" + path + "': " + message);
  }
}

/// Both name their format first; a run has a graph within it.
bool is_run(std::string_view text) {
  const auto begin = text.substr(0, 200);
  return begin.find("\"remat-run\"") < begin.find("\"remat-graph\"");
}

bool is_choice(const GraphValue& value) { return value.droppable || value.packed_bytes > 0; }

}  // namespace

Graph read_graph(const std::string& path) {
  const auto parse = [](std::string_view text) {
    return is_run(text) ? run_from_json(text).graph : graph_from_json(text);
  };
  return read_document(path, {"graph", "give the file that `remat record` wrote, or a run", kMostBytes}, parse);
}

Plan read_plan(const std::string& path) {
  return read_document(path, {"plan", "give a file from --save-plan, or from `remat plan --out`", kMostBytes},
                       plan_from_json);
}

Run read_run(const std::string& path) {
  const auto parse = [&](std::string_view text) {
    // What names no format is refused as a run.
    const auto graph = text.substr(0, 200).find("\"remat-graph\"");
    if (is_run(text) || graph == std::string_view::npos) return run_from_json(text);
    Run run;
    run.name = utf8(std::filesystem::path(path).filename());
    run.graph = graph_from_json(text);
    return run;
  };
  return read_document(path, {"run", "give a file from `remat train --save-run` or `remat record`", kMostBytes}, parse);
}

std::string utf8(const std::string& text) {
  using nlohmann::json;
  return json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace));
}

PlainStep::PlainStep(const Graph& graph)
    : baseline_bytes(graph.baseline_bytes), peak_bytes(graph.plain_peak_bytes()), seconds(graph.step_seconds) {}

std::optional<double> PlainStep::activation_percent(int64_t peak) const {
  if (activation_bytes() <= 0) return std::nullopt;
  return 100 * static_cast<double>(peak - baseline_bytes) / static_cast<double>(activation_bytes());
}

std::optional<double> PlainStep::extra_percent(double extra) const {
  if (seconds <= 0) return std::nullopt;
  return 100 * extra / seconds;
}

int64_t PlainStep::bytes_of(const Budget& budget) const {
  if (budget.kind() == Budget::Kind::kBytes) return budget.byte_count();
  // As a session takes it.
  return baseline_bytes + static_cast<int64_t>(static_cast<double>(activation_bytes()) * budget.share() / 100);
}

int64_t count_choices(const Graph& graph) {
  int64_t count = 0;
  for (const GraphValue& value : graph.values) count += is_choice(value) ? 1 : 0;
  return count;
}

ActionCounts count_actions(const Graph& graph, const Plan& plan) {
  ActionCounts counts;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (!is_choice(graph.values[v])) continue;
    const Action action = plan.actions[v];
    int64_t& count = action.kind == Action::Kind::kKeep ? counts.kept
                     : action == Action::kPack          ? counts.packed
                     : action == Action::kMove          ? counts.moved
                     : action == Action::kRecompute     ? counts.recomputed
                                                        : counts.held_later;
    ++count;
  }
  return counts;
}

Attempt try_plan(const Graph& graph, int64_t budget_bytes, const std::string& planner, PlannerOptions options) {
  Attempt attempt;
  attempt.planner = planner;
  const auto begin = std::chrono::steady_clock::now();
  try {
    attempt.plan = make_plan(graph, budget_bytes, planner, options);
  } catch (const BudgetError& error) {
    attempt.smallest_peak_bytes = error.smallest_known_bytes();
    attempt.error = std::current_exception();
    attempt.message = error.what();
  } catch (const Error& error) {
    attempt.error = std::current_exception();
    attempt.message = error.what();
  }
  attempt.planning_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return attempt;
}

}  // namespace remat::cli
