// cli/rank_processes.h -- a training on several processes of this machine, which take each step together.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "cli/training_process.h"

namespace remat::cli {

/// A file that processes can open by its path while this one lives, and that is in no folder.
class MeetingPlace {
 public:
  MeetingPlace();
  ~MeetingPlace();
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;

  /// In processes that were forked from this one.
  std::string path() const;

 private:
  int file_;
};

class RankProcesses final : public ModelTraining {
 public:
  /// Starts `task.settings.ranks` processes, as TrainingProcess does. Throws what their trainers throw.
  explicit RankProcesses(const TrainingTask& task);

  /// The mean loss, the longest time, bytes and report of the process that peaked highest. Throws what the first
  /// process to fail throws: another's BudgetError is told to all, and not thrown where there is the original.
  StepResult step() override;
  std::optional<Evaluation> evaluate() override;
  void write(Output output, const std::string& path, const nlohmann::json& about) override;
  using ModelTraining::write;
  int64_t steps_done() const override { return steps_done_; }
  ParameterCount parameter_count() const override { return parameter_count_; }
  /// Of the process that has the most.
  int64_t current_bytes() const override;
  /// Has one of them ended? Then there is no state any more.
  bool is_between_steps() const override { return ended_; }

 private:
  template <class F>
  using Answers = std::vector<std::invoke_result_t<F, TrainingProcess&>>;

  template <class F>
  Answers<F> of_each(const std::string& order, const F& call);
  /// All processes do what `order` says at the same time; `answer` reads what each gives.
  template <class F>
  Answers<F> together(const std::string& order, const F& answer);

  MeetingPlace meeting_place_;
  std::vector<std::unique_ptr<TrainingProcess>> processes_;
  ParameterCount parameter_count_;
  int64_t steps_done_ = 0;
  bool ended_ = false;
};

}  // namespace remat::cli
