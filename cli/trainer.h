// cli/trainer.h -- a model learning from examples, step by step, plain or within a budget.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <remat/budget.h>
#include <remat/report.h>
#include <remat/run.h>

#include "cli/fingerprint.h"
#include "cli/rank_place.h"
#include "cli/settings.h"
#include "cli/training_data.h"
#include "cli/training_state.h"

namespace remat::cli {

/// What one step gave. Bytes are tensor bytes on the CPU.
struct StepResult {
  int64_t step = 0;  ///< from 1
  float loss = 0;
  double seconds = 0;          ///< from reading the batch to the updated parameters
  int64_t baseline_bytes = 0;  ///< alive when the step began
  int64_t peak_bytes = 0;      ///< at the worst moment, the optimizer's included
  std::optional<StepReport>
      report;  ///< nothing in a plain run; of several micro-batches, the one with the highest peak
  /// In bytes; nothing in a plain run, and in the first step of a percent budget, which measures what it is a share of.
  std::optional<int64_t> budget_bytes;
  std::vector<int64_t> rank_peak_bytes;  ///< of each process, where there are several
  Fingerprints gradients;                ///< both empty unless asked for
  Fingerprints parameters;               ///< after the update; buffers too
};

/// How well a model does on examples.
struct Evaluation {
  double loss = 0;                 ///< the mean
  std::optional<double> accuracy;  ///< the share of examples whose class has the largest logit; of a classification
};

/// Scalars of a model's parameters.
struct ParameterCount {
  int64_t all = 0;
  int64_t trained = 0;  ///< fewer where some are frozen, as with LoRA
};

/// A training that takes one step after another, here or in other processes.
class Training {
 public:
  virtual ~Training() = default;
  /// Trains on the next batch. When it throws (BudgetError), the training is as it was after the step before, but see
  /// Trainer::is_between_steps().
  virtual StepResult step() = 0;
  virtual int64_t steps_done() const = 0;
  virtual ParameterCount parameter_count() const = 0;
  /// Tensor bytes alive now.
  virtual int64_t current_bytes() const = 0;
};

class Trainer final : public Training {
 public:
  /// `budget` nullopt: plain, without remat. `data` must outlive the trainer. Parameters, dropout and data depend on
  /// the settings alone: the default generator is seeded here. `place`: this is one of several processes, and trains on
  /// its rows of each batch. Throws Error for a model or budget that cannot be, and as check_model_fits() does.
  Trainer(const TrainSettings& settings, const TrainingData& data, std::optional<Budget> budget,
          const std::optional<RankPlace>& place = std::nullopt);
  ~Trainer() override;
  Trainer(Trainer&&) noexcept;

  StepResult step() override;

  /// Fingerprint gradients (where they are there after backward) and parameters in every step from now on (outside the
  /// measured time and peak).
  void record_fingerprints();

  int64_t steps_done() const override;
  ParameterCount parameter_count() const override;
  int64_t current_bytes() const override;

  /// The plan that the last step followed, as JSON. Throws Error if there was none.
  std::string plan() const;

  /// The last step, for `remat report`: its graph, the plan where it followed one, and what was measured. Throws Error
  /// where no step was recorded.
  Run last_step() const;

  /// Has a step failed when it had updated some parameters in backward, and others not? The state is worth nothing
  /// then.
  bool is_between_steps() const;

  /// Without dropout; nothing where a signal was noted before its end. Learns nothing; the budget, which is that of
  /// steps, does not hold.
  std::optional<Evaluation> evaluate(const TrainingData& data);

  /// Writes the model, which came from a directory, to another of the same form.
  void save_model(const std::string& directory) const;
  /// Writes LoRA's factors, and what is trained beside them, as an adapter of the model in that directory.
  void save_adapter(const std::string& directory) const;

  /// Everything that the next step depends on, as save_state().
  void save(const WriteBytes& write) const;
  /// Continues from what save() wrote, as load_state().
  void load(const ReadBytes& read, size_t total_size);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace remat::cli
