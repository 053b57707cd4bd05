// cli/train_model.h -- the model that a training asks for, and whether there is memory for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <remat/budget.h>

#include "cli/settings.h"
#include "data/labels.h"

namespace remat::zoo {
class Model;
}

namespace remat::cli {

// `labels`: those that the model tells apart; empty: it predicts tokens.

/// New, or with the weights of its directory. Throws Error for a model that cannot be.
std::shared_ptr<zoo::Model> make_model(const ModelSettings& settings, const data::Labels& labels = {});

/// Trainable scalars of that model, which is not built for it.
int64_t parameter_count(const ModelSettings& settings, const data::Labels& labels = {});

/// Throws Error unless a model of `settings`, which names a directory, could be saved to `to`: called before the work,
/// not after. Creates nothing.
void check_model_path(const ModelSettings& settings, const std::string& to);

/// Throws UsageError where `path`, which `option` names for a result, is a file of the model's directory, or one that
/// the directory of the trained model gets.
void check_no_model_file(const TrainSettings& settings, const std::string& path, const std::string& option);

/// Writes `model`, which make_model() made of a directory and training has changed, to another.
void save_model(const ModelSettings& settings, const data::Labels& labels, const zoo::Model& model,
                const std::string& to);

/// Throws Error where parameters, gradients and the state of AdamW alone take more than `machine_bytes`, BudgetError
/// where parameters and gradients do not fit a `budget` in bytes: before hours of building a model, or the machine's
/// last byte. Activations come on top, and are for the steps to find out. `shards`: of so many equal parts of all that
/// one is held here.
void check_model_fits(const ModelSettings& settings, const Budget& budget, int64_t machine_bytes, int64_t shards = 1,
                      const data::Labels& labels = {});

}  // namespace remat::cli
