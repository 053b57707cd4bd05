// cli/rank_processes.h -- a training on several processes of this machine, which take each step together.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/training_process.h"

namespace remat::cli {

class RankProcesses final : public ModelTraining {
 public:
  /// Starts `task.settings.ranks` processes, as TrainingProcess does. Throws what their trainers throw.
  explicit RankProcesses(const TrainingTask& task);
  ~RankProcesses() override;
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  /// The mean loss, the longest time, bytes and report of the process that peaked highest. Throws what the first
  /// process to fail throws: another's BudgetError is told to all, and not thrown where there is the original.
  StepResult step() override;
  std::optional<Evaluation> evaluate() override;
  void write(Output output, const std::string& path, const nlohmann::json& about) override;
  using ModelTraining::write;
  int64_t steps_done() const override { return steps_done_; }
  ParameterCount parameter_count() const override { return parameter_count_; }
  /// Of all processes together.
  int64_t current_bytes() const override;

 private:
  /// What each process answers. Throws what the first process to fail throws.
  std::vector<std::string> answers(const std::string& order);

  std::string folder_;  ///< where they meet
  std::vector<std::unique_ptr<TrainingProcess>> processes_;
  ParameterCount parameter_count_;
  int64_t steps_done_ = 0;
};

}  // namespace remat::cli
