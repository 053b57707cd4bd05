// The pictures of `remat sweep`.
#include <algorithm>
#include <map>

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

std::string described(const std::string& what, double x, double y) {
  return what + ": " + format_number(x, 1) + ", " + format_number(y, 1);
}

/// Lines by name, in the order in which names came; what was measured is dashed, in the colour of what was predicted.
class Lines {
 public:
  void add(const std::string& name, bool measured, double x, double y, const std::string& tooltip) {
    auto [found, fresh] = index_.try_emplace(name + (measured ? ", measured" : ""), lines_.size());
    if (fresh) {
      const auto colour = colours_.try_emplace(name, colours_.size()).first->second;
      lines_.push_back({.name = found->first, .points = {}, .colour = colour, .dashed = measured});
    }
    lines_[found->second].points.push_back({x, y, tooltip});
  }
  std::vector<ChartLine> take() { return std::move(lines_); }

 private:
  std::vector<ChartLine> lines_;
  std::map<std::string, size_t> index_, colours_;
};

/// Memory across, extra time up.
void add_trade(Lines& lines, const SweepCell& cell, const PlainStep& plain, const std::string& what) {
  if (!cell.attempt.plan) return;
  const double x = plain.activation_percent(cell.attempt.plan->predicted_peak_bytes).value_or(0);
  const double y = plain.extra_percent(cell.attempt.plan->predicted_seconds).value_or(0);
  lines.add(cell.name, false, x, y, described(what, x, y));
  if (!cell.measured) return;
  const double measured_x = plain.activation_percent(cell.measured->peak_bytes).value_or(0);
  const double measured_y = 100 * (cell.measured->times_plain - 1);
  lines.add(cell.name, true, measured_x, measured_y, described(what + ", measured", measured_x, measured_y));
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
    const double peak = plain.activation_percent(plan.predicted_peak_bytes).value_or(0);
    const double extra = plain.extra_percent(plan.predicted_seconds).value_or(0);
    lines.add("activation peak", false, x, peak, described(what, x, peak));
    lines.add("extra time", false, x, extra, described(what, x, extra));
    if (const auto& measured = row.cell.measured) {
      const double measured_peak = plain.activation_percent(measured->peak_bytes).value_or(0);
      const double measured_extra = 100 * (measured->times_plain - 1);
      lines.add("activation peak", true, x, measured_peak, described(what, x, measured_peak));
      lines.add("extra time", true, x, measured_extra, described(what, x, measured_extra));
    }
    if (row.better) {
      const double better = plain.extra_percent(row.better->attempt.plan->predicted_seconds).value_or(0);
      lines.add("extra time of auto there", false, x, better, described("auto", x, better));
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
        const double y = figure(cell, row.plain, measured);
        lines.add(cell.name, measured, x, y, described(cell.name, x, y));
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
double milliseconds(const SweepCell& cell, const PlainStep& plain, bool measured) {
  return 1e3 *
         (measured ? plain.seconds * cell.measured->times_plain : plain.seconds + cell.attempt.plan->predicted_seconds);
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
