// cli/rank_agreement.h -- what the ranks of a training agree on, beside what their model does.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "cli/rank_group.h"
#include "cli/training.h"

namespace remat::cli {

struct TrainSettings;

// Each is called by all ranks at the same time.

/// Throws Error on all ranks where one was started with other `options` than rank 0.
void check_same_options(RankGroup& ranks, const nlohmann::json& options);
/// The same of all that decides what a training does, with fingerprints of its data; `held_out` is empty where nothing
/// is held out.
void check_same_training(RankGroup& ranks, const TrainSettings& settings, const std::string& data,
                         const std::string& held_out);

/// The mean loss, the longest time and the highest peak; on rank 0 also the rest of what the rank gave that peaked
/// highest.
StepResult joined_result(RankGroup& ranks, StepResult own);

/// In the handler of a BudgetError that all ranks have caught: throws the one that needs most, on all of them. `sound`:
/// whether the state of this rank's training is; where one's is not, all are apart.
[[noreturn]] void throw_largest_refusal(RankGroup& ranks, bool sound);

}  // namespace remat::cli
