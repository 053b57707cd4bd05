#include "cli/sweep_cells.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <utility>

#include <remat/checkpoints.h>

namespace remat::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// In % of plain's step: a figure is told where it may vary by this, or by as much as it is itself.
constexpr double kSmallRange = 20;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// A plan of these actions, for a budget of just what it takes.
SweepCell cell_of(const Graph& graph, const std::string& name, std::vector<Action> actions, Clock::time_point begin) {
  const Prediction expected = predict(graph, actions);
  SweepCell cell{.name = name, .budget = {}, .budget_bytes = expected.peak_bytes, .attempt = {}, .measured = {}};
  cell.attempt.planner = name;
  cell.attempt.plan = Plan{.planner = name,
                           .graph_fingerprint = graph.fingerprint(),
                           .budget_bytes = expected.peak_bytes,
                           .predicted_peak_bytes = expected.peak_bytes,
                           .predicted_seconds = expected.seconds,
                           .actions = std::move(actions)};
  cell.attempt.planning_seconds = seconds_since(begin);
  return cell;
}

/// What `auto` plans from one search for all of `bytes`; a longer one each where that finds nothing.
std::vector<Attempt> plan_together(const Graph& graph, const std::vector<int64_t>& bytes) {
  const auto begin = Clock::now();
  const std::vector<Plan> plans = plan_curve(graph, bytes);
  const double seconds = seconds_since(begin);
  std::vector<Attempt> attempts;
  for (const int64_t budget : bytes) {
    const auto found = std::ranges::find(plans, budget, &Plan::budget_bytes);
    if (found == plans.end()) {
      attempts.push_back(try_plan(graph, budget, "auto", {}));
      continue;
    }
    attempts.emplace_back();
    attempts.back().planner = "auto";
    attempts.back().plan = *found;
    attempts.back().planning_seconds = seconds;
  }
  return attempts;
}

}  // namespace

std::optional<double> Measurement::extra_percent() const {
  const double told = 100 * (times_plain.told - 1), range = most_extra_percent() - least_extra_percent();
  return range <= std::max(kSmallRange, std::abs(told)) ? std::optional(told) : std::nullopt;
}

std::exception_ptr measure_cell(SweepCell& cell, const std::function<Measurement(const Plan&)>& measure) {
  try {
    cell.measured = measure(*cell.attempt.plan);
    return nullptr;
  } catch (const std::exception& error) {
    const std::string message = error.what();
    cell.refused = message.substr(0, message.find('\n'));  // torch's is followed by a backtrace
    return std::current_exception();
  }
}

void carry_forward(std::vector<SweepCell>& cells) {
  for (size_t i = cells.size(); i-- > 1;) {
    const auto& smaller = cells[i].attempt.plan;
    auto& larger = cells[i - 1].attempt.plan;
    if (!smaller || (larger && smaller->predicted_seconds >= larger->predicted_seconds)) continue;
    larger = smaller;
    larger->budget_bytes = cells[i - 1].budget_bytes;
  }
}

std::vector<SweepCell> plan_budgets(const Graph& graph, const std::string& planner,
                                    const std::vector<std::string>& budgets) {
  const PlainStep plain(graph);
  std::vector<SweepCell> cells;
  std::vector<int64_t> bytes;
  cells.reserve(budgets.size());
  bytes.reserve(budgets.size());
  for (const auto& budget : budgets) {
    cells.push_back({planner, budget, plain.bytes_of(Budget::parse(budget)), {}, {}});
  }
  std::ranges::stable_sort(cells, std::greater(), &SweepCell::budget_bytes);
  for (const auto& cell : cells) bytes.push_back(cell.budget_bytes);
  auto together = planner == "auto" ? plan_together(graph, bytes) : std::vector<Attempt>();
  for (size_t i = 0; i < cells.size(); ++i) {
    cells[i].attempt = together.empty() ? try_plan(graph, bytes[i], planner, {}) : std::move(together[i]);
  }
  carry_forward(cells);
  return cells;
}

std::vector<CheckpointRow> plan_checkpoints(const Graph& graph, std::vector<int64_t> numbers) {
  const int64_t most = most_checkpoints(graph);
  if (numbers.empty()) {
    for (int64_t number = 1; number < most; number *= 2) numbers.push_back(number);
    if (most > 0) numbers.push_back(most);
  }
  std::ranges::sort(numbers);
  std::vector<CheckpointRow> rows;
  std::vector<int64_t> peaks;
  for (const int64_t number : numbers) {
    const auto begin = Clock::now();
    auto placed = place_checkpoints(graph, number);
    const auto same = [&](const CheckpointRow& row) { return row.places.size() == placed.places.size(); };
    if (std::ranges::any_of(rows, same)) continue;
    CheckpointRow row{.asked = number, .places = placed.places, .longest_segment = 0, .cell = {}, .better = {}};
    int32_t before = 0;
    placed.places.push_back(static_cast<int32_t>(graph.operators.size()));
    for (const int32_t place : placed.places) {
      row.longest_segment = std::max<int64_t>(row.longest_segment, place - before);
      before = place;
    }
    row.cell = cell_of(graph, kCheckpoints, std::move(placed.actions), begin);
    rows.push_back(std::move(row));
  }
  std::ranges::sort(rows, {}, [](const CheckpointRow& row) { return row.places.size(); });
  peaks.reserve(rows.size());
  for (const auto& row : rows) peaks.push_back(row.cell.budget_bytes);
  const auto better = plan_together(graph, peaks);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (better[i].plan) rows[i].better = SweepCell{kSamePeak, {}, peaks[i], better[i], {}};
  }
  return rows;
}

DepthRow plan_depth(const Graph& graph, int64_t depth) {
  DepthRow row{.depth = depth,
               .plain = PlainStep(graph),
               .operators = static_cast<int64_t>(graph.operators.size()),
               .checkpoints = 0,
               .cells = {}};
  const auto add = [&](const char* name, std::vector<Action> actions, Clock::time_point begin) {
    row.cells.push_back(cell_of(graph, name, std::move(actions), begin));
  };
  add(kStoreAll, std::vector<Action>(graph.values.size(), Action::kKeep), Clock::now());
  add(kRecomputeAll, recompute_all(graph), Clock::now());
  const auto begin = Clock::now();
  auto placed = best_checkpoints(graph);
  row.checkpoints = static_cast<int64_t>(placed.places.size());
  add(kCheckpoints, std::move(placed.actions), begin);
  const int64_t peak = row.cells.back().budget_bytes;
  row.cells.push_back({kSamePeak, {}, peak, try_plan(graph, peak, "auto", {}), {}});
  return row;
}

std::optional<double> growth(const std::vector<std::pair<int64_t, int64_t>>& bytes_by_depth) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [depth, bytes] : bytes_by_depth) {
    if (depth <= 0 || bytes <= 0) return std::nullopt;
    const double a = std::log(static_cast<double>(depth)), b = std::log(static_cast<double>(bytes));
    n += 1, x += a, y += b, xx += a * a, xy += a * b;
  }
  const double spread = n * xx - x * x;
  if (spread <= 1e-12) return std::nullopt;
  return (n * xy - x * y) / spread;
}

std::vector<SavedValue> saved_values(const Graph& graph) {
  std::vector<SavedValue> saved;
  for (const GraphValue& value : graph.values) {
    if (value.producer < 0 || (!value.droppable && value.packed_bytes == 0)) continue;
    saved.push_back({graph.operators[static_cast<size_t>(value.producer)].name, value.bytes});
  }
  return saved;
}

std::optional<PublishedPoint> published_point(const std::string& model) {
  if (model != "bert") return std::nullopt;
  return PublishedPoint{
      .memory_percent = 40,
      .extra_percent = 25,
      .what = "BERT with PyTorch's checkpoints, on GPUs, 2021",
      .source = "residentmario.github.io/pytorch-training-performance-guide/gradient-checkpoints.html"};
}

}  // namespace remat::cli
