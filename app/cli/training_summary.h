// cli/training_summary.h -- what a training did: on standard output, and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <remat/state_pager.h>

#include "cli/settings.h"
#include "cli/training.h"
#include "cli/training_data.h"

namespace remat::cli {

/// What is about to be trained.
void print_header(const TrainSettings& settings, const TrainingData& data, const Training& training);
/// What steps took, as a table; `paging`: of the optimizer's state, where it is in a file.
void print_summary(const TrainSettings& settings, const std::vector<StepResult>& results,
                   const std::optional<PagingReport>& paging = std::nullopt);
void print_evaluation(const TrainSettings& settings, const nlohmann::json& evaluation);

/// Settings and all steps.
nlohmann::json results_json(const TrainSettings& settings, const Training& training,
                            const std::vector<StepResult>& results);
nlohmann::json paging_json(const PagingReport& report);
nlohmann::json evaluation_json(const Evaluation& before, const Evaluation& after);

/// Says on standard error what a budget that follows the memory that is left has done in the step, if anything.
void print_budget_change(const StepResult& result);

/// Says once on standard error that the plan given is ignored, and why.
class IgnoredPlan {
 public:
  explicit IgnoredPlan(std::string path) : path_(std::move(path)) {}
  void look_at(const StepResult& result);

 private:
  const std::string path_;
  bool told_ = false;
};

}  // namespace remat::cli
