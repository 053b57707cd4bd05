// cli/options.h -- the command line, and the JSON file that can stand for it.
#pragma once

#include <string>
#include <vector>

#include "cli/export.h"
#include "cli/settings.h"

namespace remat::cli {

struct Command {
  enum class Kind { kPrint, kTrain, kCompare, kRecord, kPlan, kExport, kFit, kSweep, kReport };
  Kind kind = Kind::kPrint;
  TrainSettings settings;  ///< kTrain, kCompare
  RecordSettings record;
  PlanSettings plan;
  ExportSettings exported;
  FitSettings fit;
  SweepSettings sweep;
  ReportSettings report;
  std::string text;  ///< kPrint: what to print (help, version)
};

/// `arguments`: without the program's name. Throws UsageError.
Command parse_options(const std::vector<std::string>& arguments);

}  // namespace remat::cli
