// src/export/write_c.h -- the C text of a scheduled step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <remat/export.h>

#include "export/placement.h"
#include "export/schedule.h"

namespace remat::exporting {

/// Where the buffers that live as long as the model are: elements from the beginning of the array of their kind.
struct FixedPlaces {
  explicit FixedPlaces(const Step& step);

  std::vector<int64_t> offset;  ///< by buffer: within parameters, state, constants of floats, or those of integers
  /// By buffer, of parameters and inputs: what C calls it, without a prefix; no two alike.
  std::vector<std::string> names;
  int64_t parameters = 0, state = 0, constants = 0, int_constants = 0;  ///< elements
};

/// Everything that the text is made of.
struct ProgramParts {
  const Step& step;
  const StepFlow& flow;
  const ExportOptions& options;
  const FixedPlaces& places;
  const Schedule& training;
  const Placement& training_places;
  const Schedule& prediction;
  const Placement& prediction_places;
  const ExportedStep& figures;
};

/// "model_": what names that the C exports begin with; "MODEL_": and those of macros.
std::string prefix_of(const ExportOptions& options);
std::string macro_prefix_of(const ExportOptions& options);
/// How many numbers the optimizer keeps for each parameter: 0, 1 or 2.
int states_of(std::string_view optimizer);

std::string model_header(const ProgramParts& parts);
std::string model_source(const ProgramParts& parts);
std::string example_source(const ProgramParts& parts);
std::string cmake_lists(const ProgramParts& parts);
/// The calls with their addresses and instructions, as JSON.
std::string schedule_json(const ProgramParts& parts);

/// "1.5f": the float nearest to a number, as C reads it back.
std::string float_text(double number);
/// A name that C takes: letters, digits and underscores.
std::string c_name(std::string_view name);

}  // namespace remat::exporting
