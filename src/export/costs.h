// src/export/costs.h -- how many instructions a kernel takes on a Cortex-M4F, by a table that was measured in qemu.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "export/step.h"

namespace remat::exporting {

/// What a call's instructions are made of: names of rows of the table, and how many times each. `rule`: what becomes of
/// a gradient's elements, "store", "sgd", "momentum" or "adam".
using Work = std::vector<std::pair<std::string, double>>;
Work work_of(const StepOperator& op, std::string_view rule = "store");

/// Instructions, by the table.
double instructions_of(const Work& work);
double instructions_of(const StepOperator& op, std::string_view rule = "store");

}  // namespace remat::exporting
