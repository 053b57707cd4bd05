// cli/export.h -- `remat export`. Needs no torch.
#pragma once

#include <string>

namespace remat::cli {

struct ExportSettings {
  std::string step;  ///< the file to read
  std::string out;   ///< the folder to write
  std::string ram, stack = "1KiB", optimizer = "sgd", planner = "auto", name = "model";
  double momentum = 0.9, weight_decay = 0;
  std::string json;
};

/// Plans a step, writes its C into a folder and prints what it takes. Throws BudgetError where it does not fit.
void run_export(const ExportSettings& settings);

}  // namespace remat::cli
