// cli/trainer.h -- a model learning from examples, step by step, plain or within a budget; alone, or as one of several
// processes, which do the same at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <remat/budget.h>
#include <remat/run.h>
#include <remat/state_pager.h>

#include "cli/checkpoint_file.h"
#include "cli/rank_group.h"
#include "cli/settings.h"
#include "cli/training.h"
#include "cli/training_data.h"
#include "cli/training_state.h"

namespace remat::cli {

/// What a training is made from. What it refers to must outlive the trainer.
struct TrainingTask {
  const TrainSettings& settings;
  const TrainingData& data;
  std::optional<Budget> budget = std::nullopt;   ///< nothing: plain, without remat
  const TrainingData* held_out = nullptr;        ///< for evaluate(), which needs it
  const CheckpointReader* checkpoint = nullptr;  ///< that it continues from; null: it begins
  /// Fingerprint gradients (where they are there after backward) and parameters in every step, outside the measured
  /// time and peak.
  bool fingerprints = false;
};

class Trainer final : public Training {
 public:
  /// Parameters, dropout and data depend on the settings alone: the default generator is seeded here. `ranks`: this
  /// process is one of several, which trains on its rows of each batch; null: it is alone. All ranks make a trainer and
  /// call the same functions of it at the same time. Throws Error for a model or budget that cannot be, as
  /// check_model_fits() and load() do, and where ranks have different options or data.
  explicit Trainer(const TrainingTask& task, RankGroup* ranks = nullptr);
  ~Trainer() override;
  Trainer(Trainer&&) noexcept;

  /// Of several ranks the mean loss, the longest time and the highest peak; on rank 0 also the rest of what the rank
  /// gave that peaked highest. A BudgetError is that of the rank that needs most.
  StepResult step() override;

  int64_t steps_done() const override;
  ParameterCount parameter_count() const override;
  int64_t current_bytes() const override;
  bool is_between_steps() const override;
  int stop_signal() const override;
  /// What the optimizer's state has moved to its file and back, in this process; nothing where it is in memory.
  std::optional<PagingReport> paging() const;
  std::optional<PagingReport> gradient_paging() const;  ///< see ParameterUpdates

  /// How well the model does on the held-out data, without dropout; nothing where a signal was noted before the end.
  /// Learns nothing; the budget, which is that of steps, does not hold. Of several ranks each evaluates its part of the
  /// batches, all with the buffers of rank 0.
  std::optional<Evaluation> evaluate();
  /// Writes `output` to `path`, `about` into a checkpoint; of several ranks rank 0 does. Throws Error where there is no
  /// such output, or where it cannot be written: then what was at the path is there still.
  void write(Output output, const std::string& path, const nlohmann::json& about = {});

 private:
  /// Everything that the next step depends on, as save_state(). Of several ranks rank 0 writes what all of them have.
  void save(const WriteBytes& write) const;
  /// Continues from what save() wrote, as load_state(), also with as many ranks.
  void load(const StatePart& all);
  /// The plan that the last step followed, as JSON. Throws Error if there was none.
  std::string plan() const;
  /// The last step, for `remat report`: its graph, the plan where it followed one, and what was measured. Throws Error
  /// where no step was recorded.
  Run last_step() const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace remat::cli
