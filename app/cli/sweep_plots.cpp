// The pictures of `remat sweep`.
#include <algorithm>
#include <map>
#include <optional>

#include "cli/chart.h"
#include "cli/sweep_results.h"
#include "cli/table.h"

namespace remat::cli {
namespace {

/// Beyond this, in percent of a step, extra time runs out of the picture: recomputing all would flatten everything
/// else.
constexpr double kMostExtra = 200;
/// The same for whole steps, in slowest plain ones.
constexpr double kMostSteps = 3;

/// Lines by name, in the order in which names came; what was measured is dashed, in the colour of what was predicted.
class Lines {
 public:
  /// `what`: the tooltip says it before the numbers. A share of nothing is no point.
  void add(const std::string& name, bool measured, std::optional<double> x, std::optional<double> y,
           const std::string& what) {
    if (!x || !y) return;
    auto [found, fresh] = index_.try_emplace(name + (measured ? ", measured" : ""), lines_.size());
    if (fresh) {
      const auto colour = colours_.try_emplace(name, colours_.size()).first->second;
      lines_.push_back({.name = found->first, .points = {}, .colour = colour, .dashed = measured});
    }
    lines_[found->second].points.push_back({*x, *y, what + ": " + format_number(*x, 1) + ", " + format_number(*y, 1)});
  }
  std::vector<ChartLine> take() { return std::move(lines_); }

 private:
  std::vector<ChartLine> lines_;
  std::map<std::string, size_t> index_, colours_;
};

/// Memory across, extra time up.
void add_trade(Lines& lines, const SweepCell& cell, const PlainStep& plain, const std::string& what) {
  if (!cell.attempt.plan) return;
  const Plan& plan = *cell.attempt.plan;
  lines.add(cell.name, false, plain.activation_percent(plan.predicted_peak_bytes),
            plain.extra_percent(plan.predicted_seconds), what);
  if (!cell.measured) return;
  lines.add(cell.name, true, plain.activation_percent(cell.measured->peak_bytes), cell.measured->extra_percent(),
            what + ", measured");
}

constexpr const char* kMemoryAxis = "activation peak, % of plain";
constexpr const char* kTimeAxis = "extra time, % of the step";

void cut(Chart& chart, double most) {
  for (const auto& line : chart.lines) {
    for (const auto& point : line.points) {
      if (point.y > most) chart.y_end = most;
    }
  }
}

std::string trade_chart(const std::string& title, Lines& lines) {
  Chart chart{.title = title, .x_label = kMemoryAxis, .y_label = kTimeAxis, .lines = lines.take()};
  cut(chart, kMostExtra);
  return to_svg(chart);
}

std::string checkpoints_chart(const SweepResults& results) {
  Lines lines;
  const PlainStep& plain = results.step->plain;
  for (const auto& row : results.checkpoints) {
    const auto x = static_cast<double>(row.places.size());
    const std::string what = checkpoints_name(row.places.size());
    const Plan& plan = *row.cell.attempt.plan;
    lines.add("activation peak", false, x, plain.activation_percent(plan.predicted_peak_bytes), what);
    lines.add("extra time", false, x, plain.extra_percent(plan.predicted_seconds), what);
    if (const auto& measured = row.cell.measured) {
      lines.add("activation peak", true, x, plain.activation_percent(measured->peak_bytes), what);
      lines.add("extra time", true, x, measured->extra_percent(), what);
    }
    if (row.better) {
      lines.add("extra time of auto there", false, x, plain.extra_percent(row.better->attempt.plan->predicted_seconds),
                "auto");
    }
  }
  return to_svg({.title = results.model + ": how many checkpoints?",
                 .x_label = "checkpoints",
                 .y_label = "% of plain",
                 .lines = lines.take(),
                 .x_end = 0});
}

/// `figure`: of a cell of a row, measured or predicted, or nothing.
template <class Figure>
Chart depths_chart(const SweepResults& results, const std::string& title, const std::string& y_label,
                   const Figure& figure) {
  Lines lines;
  for (const auto& row : results.depths) {
    for (const auto& cell : row.cells) {
      const auto x = static_cast<double>(row.depth);
      for (const bool measured : {false, true}) {
        if (!cell.attempt.plan || (measured && !cell.measured)) continue;
        lines.add(cell.name, measured, x, figure(cell, row.plain, measured), cell.name);
      }
    }
  }
  return {.title = title, .x_label = "depth", .y_label = y_label, .lines = lines.take(), .x_end = 0};
}

constexpr double kMebibyte = 1 << 20;

double mebibytes(const SweepCell& cell, const PlainStep& plain, bool measured) {
  const auto peak = measured ? cell.measured->peak_bytes : cell.attempt.plan->predicted_peak_bytes;
  return static_cast<double>(peak - plain.baseline_bytes) / kMebibyte;
}

/// Of what was measured, how much longer than plain in the same minutes: the machine may have been busier by then.
/// Nothing where times vary too much to tell.
std::optional<double> milliseconds(const SweepCell& cell, const PlainStep& plain, bool measured) {
  if (!measured) return 1e3 * (plain.seconds + cell.attempt.plan->predicted_seconds);
  const auto extra = cell.measured->extra_percent();
  return extra ? std::optional(1e3 * plain.seconds * (1 + *extra / 100)) : std::nullopt;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> sweep_plots(const SweepResults& results) {
  const std::string& model = results.model;
  std::vector<std::pair<std::string, std::string>> plots;
  if (!results.budgets.empty()) {
    Lines lines;
    for (const auto& cell : results.budgets) {
      add_trade(lines, cell, results.step->plain, cell.name + ", budget " + cell.budget);
    }
    const bool none =
        std::ranges::none_of(results.budgets, [](const auto& cell) { return cell.attempt.plan.has_value(); });
    if (const auto point = published_point(model)) {
      lines.add("published, of all memory", false, point->memory_percent, point->extra_percent, point->what);
    }
    plots.emplace_back("budgets.svg",
                       trade_chart(model + (none ? ": no planner has a plan" : ": planners and budgets"), lines));
  }
  if (!results.checkpoints.empty()) plots.emplace_back("checkpoints.svg", checkpoints_chart(results));
  if (!results.depths.empty()) {
    plots.emplace_back("depth-memory.svg",
                       to_svg(depths_chart(results, model + ": memory and depth", "activation peak, MiB", mebibytes)));
    Chart times = depths_chart(results, model + ": time and depth", "a step, ms", milliseconds);
    double slowest = 0;
    for (const auto& row : results.depths) slowest = std::max(slowest, row.plain.seconds);
    cut(times, kMostSteps * 1e3 * slowest);
    plots.emplace_back("depth-time.svg", to_svg(times));
  }
  return plots;
}

}  // namespace remat::cli
