#include "cli/record.h"

#include <cstdio>

#include <remat/budget.h>

#include "cli/output_file.h"
#include "cli/planning.h"
#include "cli/printable.h"
#include "cli/recording.h"
#include "cli/table.h"

namespace remat::cli {

void run_record(const RecordSettings& settings) {
  check_output_path(settings.out, "out");
  check_output_path(settings.save_run, "save-run");
  const auto recording = record_steps(settings);
  const Graph& graph = recording.run.graph;
  const PlainStep plain(graph);
  write_output(settings.out, to_json(graph), "out");
  if (!settings.save_run.empty()) write_output(settings.save_run, to_json(recording.run), "save-run");
  std::printf("%s: %lld step%s of batch %lld, budget %s; the graph is in %s\n", settings.model.c_str(),
              static_cast<long long>(settings.steps), settings.steps == 1 ? "" : "s",
              static_cast<long long>(recording.batch), budget_text(settings.budget).c_str(),
              printable(settings.out).c_str());
  Table table;
  table.add({"operators", format_count(static_cast<int64_t>(graph.operators.size()))});
  table.add({"saved values", format_count(recording.values_saved)});
  table.add({"  that plans can give up", format_count(count_choices(graph))});
  table.add({"baseline", format_bytes(plain.baseline_bytes)});
  table.add({"activation peak", format_bytes(plain.activation_bytes())});
  table.add({"time per step", format_seconds(plain.seconds)});
  std::fputs(table.to_string().c_str(), stdout);
  std::printf("without an optimizer: add its state to a budget in bytes\n");
}

}  // namespace remat::cli
