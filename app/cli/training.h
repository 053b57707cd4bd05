// cli/training.h -- a training that takes one step after another.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <remat/report.h>
#include <remat/tiles.h>

#include "cli/fingerprint.h"
#include "cli/interrupt.h"

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
  std::optional<TileChoice> head;        ///< how the loss was made, of the last micro-batch; see HeadLoss::choice()
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

/// What a training can write to a path.
enum class Output {
  kCheckpoint,  ///< everything that the next step depends on; a file
  kModel,       ///< the model, which came from a directory; another of the same form
  kAdapter,     ///< LoRA's factors, and what is trained beside them; a directory
  kRun,         ///< the last step, for `remat report`; a file
  kPlan,        ///< the plan that the last step followed; a file
};

class Training {
 public:
  virtual ~Training() = default;
  /// Trains on the next batch. When it throws (BudgetError), the training is as it was after the step before, but see
  /// is_between_steps().
  virtual StepResult step() = 0;
  virtual int64_t steps_done() const = 0;
  virtual ParameterCount parameter_count() const = 0;
  /// Tensor bytes alive now.
  virtual int64_t current_bytes() const = 0;
  /// Has a step failed when it had updated some parameters in backward, and others not, or have ranks lost each other?
  /// The state is worth nothing then.
  virtual bool is_between_steps() const { return false; }
  /// The signal that asks to stop between two steps, 0 for none; of several ranks all have the same answer.
  virtual int stop_signal() const { return interrupted(); }
};

}  // namespace remat::cli
