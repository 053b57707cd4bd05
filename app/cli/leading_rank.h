// cli/leading_rank.h -- processes that train together and that others have started (torchrun): the first one decides
// what all do next, reports and saves; the others follow it.
#pragma once

#include <memory>
#include <utility>

#include "cli/trainer.h"

namespace remat::cli {

/// The first process.
class LeadingRank final : public ModelTraining {
 public:
  explicit LeadingRank(std::unique_ptr<Trainer> trainer) : trainer_(std::move(trainer)) {}
  /// Tells the others that this is the end, but where they may be in the middle of something.
  ~LeadingRank() override;
  LeadingRank(const LeadingRank&) = delete;
  LeadingRank& operator=(const LeadingRank&) = delete;

  StepResult step() override;
  std::optional<Evaluation> evaluate() override;
  void write(Output output, const std::string& path, const nlohmann::json& about) override;
  using ModelTraining::write;
  int64_t steps_done() const override { return trainer_->steps_done(); }
  ParameterCount parameter_count() const override { return trainer_->parameter_count(); }
  int64_t current_bytes() const override { return trainer_->current_bytes(); }

 private:
  template <class F>
  auto together(const std::string& order, const F& own);

  std::unique_ptr<Trainer> trainer_;
  bool sound_ = true;  ///< do all processes wait for the next order?
};

/// Does in another process what the first one tells, until its end. Throws what the training throws; where the first
/// one decides whether to go on, after its end.
void follow(Trainer& trainer);

}  // namespace remat::cli
