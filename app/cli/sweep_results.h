// cli/sweep_results.h -- what a sweep has found so far, as a table, a file and pictures. Needs no torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/sweep_cells.h"

namespace remat::cli {

/// Versions, device and threads that the figures are of.
struct Surroundings {
  std::string torch, device;
  int threads = 0;
};

/// The step that is swept.
struct SweptStep {
  explicit SweptStep(const Graph& graph)
      : plain(graph),
        operators(static_cast<int64_t>(graph.operators.size())),
        floor(floor_of(graph)),
        saved(saved_values(graph)) {}

  PlainStep plain;
  int64_t operators;
  Floor floor;
  std::vector<SavedValue> saved;
};

struct SweepResults {  // NOLINT(bugprone-exception-escape): json's constructor
  std::string model;
  int64_t batch = 0;          ///< examples per step
  nlohmann::json sizes = {};  ///< as asked for: "batch", "length", "depth", "width"
  std::string remat_version = {};
  Surroundings surroundings = {};
  std::optional<SweptStep> step = {};  ///< nothing where depths alone are swept
  std::vector<SweepCell> budgets = {};
  std::vector<CheckpointRow> checkpoints = {};
  std::vector<DepthRow> depths = {};
  bool complete = false;  ///< else the sweep was cut short
};

/// docs/sweep.md has the names.
nlohmann::json to_json(const SweepResults& results);

// What is printed. Each is a title with the units, and rows.
std::string step_text(const SweepResults& results);
std::string budgets_text(const SweepResults& results);
std::string checkpoints_text(const SweepResults& results);
std::string depths_text(const SweepResults& results);
/// "1 checkpoint", "3 checkpoints".
std::string checkpoints_name(size_t count);
/// "auto within 50%: predicted 12.1 MiB, 3.1 % more time; measured 12.1 MiB, 3.4 %".
std::string measured_text(const SweepCell& cell, const PlainStep& plain, const std::string& where);

/// Names and texts of SVG files, for the parts that there are.
std::vector<std::pair<std::string, std::string>> sweep_plots(const SweepResults& results);

}  // namespace remat::cli
