#include "cli/report.h"

#include <cstdio>
#include <filesystem>
#include <string>

#include <remat/error.h>
#include <remat/run.h>
#include <remat/timeline.h>

#include "cli/different_files.h"
#include "cli/output_file.h"
#include "cli/planning.h"
#include "cli/printable.h"
#include "cli/special_file.h"
#include "cli/table.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

/// What was measured belongs to the plan that the step followed.
void follow(Run& run, Plan plan) {
  run.plan = std::move(plan);
  run.report.reset();
}

/// At half of plain's peak, or the least that works where that is more.
Plan usual_plan(const Graph& graph) {
  try {
    return make_plan(graph, PlainStep(graph).bytes_of(Budget::parse(kUsualBudget)));
  } catch (const BudgetError& error) {
    std::fprintf(stderr, "remat: no plan keeps this step within %s; here is one for %s\n", kUsualBudget,
                 format_bytes(error.needed_bytes()).c_str());
    return make_plan(graph, error.needed_bytes());
  }
}

Run planned_run(const ReportSettings& settings) {
  Run run = read_run(settings.run);
  if (!settings.plan.empty()) {
    Plan plan = read_plan(settings.plan);
    if (const std::string wrong = plan.problem(run.graph); !wrong.empty()) {
      throw Error("[plan] '" + settings.plan + "' does not suit the step in '" + settings.run + "': " + wrong +
                  "; plan that step with `remat plan`");
    }
    follow(run, std::move(plan));
  } else if (!settings.budget.empty()) {
    follow(run, make_plan(run.graph, PlainStep(run.graph).bytes_of(Budget::parse(settings.budget))));
  } else if (!run.plan && !run.report) {
    follow(run, usual_plan(run.graph));
  }
  return run;
}

/// Beside the run: "run.json" gives "run.html".
std::string usual_page(const std::string& run) {
  std::error_code ignored;
  if (is_special_file(run) || !fs::is_regular_file(run, ignored)) {
    throw Error("[html] '" + run + "' is no file beside which the page could be written; give a path with --html");
  }
  std::string page = fs::path(run).replace_extension(".html").string();
  check_different_files({{"RUN", run}}, {{"the page", page}});
  return page;
}

/// Names of layers come from a file.
std::string layer_table(Run run, const std::string& path) {
  if (run.layers.empty()) {
    throw Error(
        "[layers] '" + path +
        "' has no names of layers; write the run with --save-run of `remat train` or `remat record`, or in Python "
        "by Report.save() after a session.step(layers=model)");
  }
  for (std::string& layer : run.layers) layer = printable(layer);
  return to_text(run);
}

void print_summary(const Run& run) {
  const PlainStep plain(run.graph);
  Table table;
  const bool measured = run.report && run.report->completed;
  table.add({"plain's peak", format_bytes(measured ? run.report->plain_peak_bytes : plain.peak_bytes)});
  if (run.plan) {
    const Prediction expected = predict(run.graph, run.plan->actions, run.plan->budget_bytes);
    table.add({"planned peak", format_bytes(expected.peak_bytes)});
    if (run.plan->budget_bytes > 0) table.add({"budget", format_bytes(run.plan->budget_bytes)});
    const auto extra = plain.extra_percent(expected.seconds);
    table.add({"planned extra time", format_seconds(expected.seconds), extra ? format_number(*extra, 1) + "%" : ""});
  }
  if (run.report) {
    table.add({"measured peak", format_bytes(run.report->peak_bytes),
               run.report->completed ? "" : "the step did not complete"});
    if (run.report->completed) {
      table.add({"measured extra time", format_seconds(run.report->recompute_seconds),
                 format_number(run.report->cost_percent(), 1) + "%"});
    }
  }
  std::fputs(table.to_string().c_str(), stdout);
}

}  // namespace

void run_report(const ReportSettings& settings) {
  check_output_path(settings.html, "html");
  check_output_path(settings.svg, "svg");
  check_output_path(settings.trace, "trace");
  const Run run = planned_run(settings);
  const std::string layers = settings.layers ? layer_table(run, settings.run) : "";
  std::string html = settings.html;
  if (html.empty() && settings.svg.empty() && settings.trace.empty() && !settings.layers)
    html = usual_page(settings.run);
  if (!html.empty()) write_output(html, to_html(run), "html");
  if (!settings.svg.empty()) write_output(settings.svg, to_svg(run), "svg");
  if (!settings.trace.empty()) write_output(settings.trace, to_trace(run), "trace");
  print_summary(run);
  if (!layers.empty()) std::printf("\n%s", layers.c_str());
  const auto say = [](const char* what, const std::string& path) {
    if (!path.empty()) std::printf("the %s is in %s\n", what, printable(path).c_str());
  };
  say("page", html);
  say("picture", settings.svg);
  say("trace", settings.trace);
}

}  // namespace remat::cli
