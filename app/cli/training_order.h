// cli/training_order.h -- what a training in another process is asked to do, and its answers, as lines of JSON.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/training.h"

namespace remat::cli {

// Orders, each a line without its newline.
std::string step_order();
std::string evaluation_order();
std::string write_order(Output output, const std::string& path, const nlohmann::json& about);

/// Does what a line asks `training` for, and answers; the answer to a step has two lines, the first with
/// "current_bytes". Throws what the training throws.
std::string carry_out(const std::string& order, ModelTraining& training);

/// May a training that threw `error` at `order` be asked for more? What was begun is undone then, in all processes that
/// train together: by a step that the budget refused, and where something was not written.
bool goes_on_after(const std::string& order, const std::exception_ptr& error);

/// Of the answer to evaluation_order().
std::optional<Evaluation> read_evaluation(const std::string& answer);

}  // namespace remat::cli
