#include "cli/export.h"

#include <cstdio>
#include <filesystem>
#include <string>

#include <remat/budget.h>
#include <remat/error.h>
#include <remat/export.h>

#include "cli/input_file.h"
#include "cli/json_file.h"
#include "cli/output_file.h"
#include "cli/planning.h"
#include "cli/printable.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

int64_t bytes_of(const std::string& text, const std::string& option) {
  const Budget budget = Budget::parse(text);
  if (budget.kind() == Budget::Kind::kBytes) return budget.byte_count();
  throw Error("[export] --" + option + " " + text + " is no number of bytes; give one, as in 256KiB");
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw Error("[out] cannot make the folder '" + path.string() + "' (" + error.message() +
                "); give another path with --out");
  }
}

}  // namespace

void run_export(const ExportSettings& settings) {
  check_json_path(settings.json);
  const std::string step =
      read_input(settings.step, {"step", "give a file that `python -m remat export --step` wrote"});
  const ExportedStep exported = export_step(step, {.ram_bytes = bytes_of(settings.ram, "ram"),
                                                   .stack_bytes = bytes_of(settings.stack, "stack"),
                                                   .optimizer = settings.optimizer,
                                                   .momentum = settings.momentum,
                                                   .weight_decay = settings.weight_decay,
                                                   .name = settings.name,
                                                   .planner = settings.planner});
  make_folder(fs::path(settings.out) / "kernels");
  for (const auto& [name, text] : exported.files) write_output((fs::path(settings.out) / name).string(), text, "out");
  std::printf("%s: %zu files\n%s", printable(settings.out).c_str(), exported.files.size(), exported.summary().c_str());
  write_json(settings.json, {{"command", "export"},
                             {"step", utf8(settings.step)},
                             {"ram_bytes", exported.ram_bytes},
                             {"parameter_bytes", exported.parameter_bytes},
                             {"optimizer_bytes", exported.optimizer_bytes},
                             {"state_bytes", exported.state_bytes},
                             {"batch_bytes", exported.batch_bytes},
                             {"fixed_bytes", exported.fixed_bytes},
                             {"arena_bytes", exported.arena_bytes},
                             {"constant_bytes", exported.constant_bytes},
                             {"predicted_bytes", exported.predicted_bytes},
                             {"kept_bytes", exported.kept_bytes},
                             {"instructions", exported.instructions},
                             {"replay_instructions", exported.replay_instructions},
                             {"calls", exported.calls},
                             {"replays", exported.replays}});
}

}  // namespace remat::cli
