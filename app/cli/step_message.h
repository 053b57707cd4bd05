// cli/step_message.h -- what a step gave, as a line of JSON between two processes: every bit of it arrives.
#pragma once

#include <exception>
#include <string>

#include "cli/training.h"

namespace remat::cli {

/// A line without its newline.
std::string step_message(const StepResult& result);
/// What step_message() wrote.
StepResult read_step_message(const std::string& line);

/// Why there is no step.
std::string error_message(const std::exception_ptr& error);
/// Throws what `line` tells of, where it is an error's: BudgetError, or Error with the message of failure_of().
void throw_if_error(const std::string& line);

}  // namespace remat::cli
