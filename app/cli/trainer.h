// cli/trainer.h -- a model learning from examples, step by step, plain or within a budget; alone, or as one of several
// processes, which do the same at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <remat/budget.h>
#include <remat/run.h>

#include "cli/rank_place.h"
#include "cli/settings.h"
#include "cli/training.h"
#include "cli/training_data.h"
#include "cli/training_state.h"

namespace remat::cli {

class DataParallel;

class Trainer final : public ModelTraining {
 public:
  /// `budget` nullopt: plain, without remat. `data` must outlive the trainer. Parameters, dropout and data depend on
  /// the settings alone: the default generator is seeded here. `place`: this is one of several processes, and trains on
  /// its rows of each batch. `held_out`: for evaluate(), which needs it; must outlive the trainer too. Throws Error for
  /// a model or budget that cannot be, and as check_model_fits() does.
  Trainer(const TrainSettings& settings, const TrainingData& data, std::optional<Budget> budget,
          const std::optional<RankPlace>& place = std::nullopt, const TrainingData* held_out = nullptr);
  ~Trainer() override;
  Trainer(Trainer&&) noexcept;

  StepResult step() override;

  /// Fingerprint gradients (where they are there after backward) and parameters in every step from now on (outside the
  /// measured time and peak).
  void record_fingerprints();

  int64_t steps_done() const override;
  ParameterCount parameter_count() const override;
  int64_t current_bytes() const override;
  bool is_between_steps() const override;

  /// Of several processes each evaluates its part of the batches, all with the buffers of the first. A signal is heeded
  /// where there is one process.
  std::optional<Evaluation> evaluate() override;
  /// Of several processes all must do the same; the first one writes.
  void write(Output output, const std::string& path, const nlohmann::json& about) override;
  using ModelTraining::write;

  /// Everything that the next step depends on, as save_state(). Of several processes all must do the same: the first
  /// one writes what all of them have.
  void save(const WriteBytes& write) const;
  /// Continues from what save() wrote, as load_state(), also with as many processes.
  void load(const StatePart& all);

  /// The other processes; null where there are none.
  DataParallel* parallel() const;

 private:
  /// The plan that the last step followed, as JSON. Throws Error if there was none.
  std::string plan() const;
  /// The last step, for `remat report`: its graph, the plan where it followed one, and what was measured. Throws Error
  /// where no step was recorded.
  Run last_step() const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace remat::cli
